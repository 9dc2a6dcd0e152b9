"""A tokenizer built from a file gives the ids of the tokenizer that the file was made from."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pytest
from support.gguf_files import TEXTS, byte_level, trained, write
from support.tiny import byte_tokenizer, random_model
from tokenizers.pre_tokenizers import ByteLevel
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.models.cohere.tokenization_cohere import CohereTokenizer

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.gguf.checkpoint import load_config, load_tokenizer
from headstart.model.gguf.splits import SPLITS

Make = Callable[[dict[str, Any]], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A file with this tokenizer, and a model that is none of its own."""

    def written(tokenizer: dict[str, Any]) -> Path:
        return write(tmp_path / "m.gguf", random_model("llama"), tokenizer=tokenizer)

    return written


@pytest.mark.parametrize("pre", SPLITS)
def test_the_same_ids_and_back(pre: str, make: Make) -> None:
    original = trained(pre)
    found = load_tokenizer(str(make(byte_level(original, pre, add_bos_token=False))))
    for text in TEXTS:
        ids = found(text)["input_ids"]
        composed = SPLITS[pre].composed and text.startswith("e\u0301")
        assert composed or ids == original(text)["input_ids"], text
        assert composed or found.decode(ids) == text


def test_cuts_differ_where_they_should() -> None:
    """Of a text with digits, apostrophes and letters beyond ASCII."""
    text = "I'LL pay 12345 Ⅷ naïve\n\n"

    def cuts(pre: str) -> list[str]:
        return [text[begin:end] for _, (begin, end) in SPLITS[pre].pre_tokenizer().pre_tokenize_str(text)]

    assert cuts("gpt-2")[:5] == ["I", "'", "LL", " pay", " 12345"]
    assert cuts("smollm")[3:11] == [" pay", " ", "1", "2", "3", "4", "5", " "]
    assert cuts("llama-bpe")[:6] == ["I", "'LL", " pay", " ", "123", "45"]
    assert cuts("qwen2")[3:9] == [" ", "1", "2", "3", "4", "5"]
    assert cuts("gpt-4o")[:4] == ["I'LL", " pay", " ", "123"]
    assert cuts("seed-coder")[:8] == ["I", "'LL", " pay", " ", "1", "2", "3", "4"]
    assert cuts("command-r")[:7] == ["I", "'", "LL", " pay", " ", "1", "2"]
    text = "a/\n漢字かな\u0301x"
    assert cuts("glm4") == ["a", "/\n", "漢字かな", "\u0301x"]
    assert cuts("hunyuan-dense") == ["a", "/\n", "漢字かな", "\u0301x"]
    assert cuts("seed-coder") == ["a", "/", "\n", "漢字かな", "\u0301x"]
    assert cuts("qwen35") == ["a", "/\n", "漢字かな\u0301x"]
    assert cuts("hunyuan-dense") != cuts("qwen35")


def test_patterns_are_those_of_transformers() -> None:
    """Where its own reader of GGUF files knows the name too."""
    shared = {pre: pattern for pre, pattern in GGUF_PRE_TOKENIZER_SPLITS.items() if pre in SPLITS}
    assert {"dbrx", "gpt-4o", "llama-bpe", "qwen2", "qwen35", "smaug-bpe", "tekken"} <= shared.keys()
    assert {pre: SPLITS[pre].patterns for pre in shared} == {pre: (pattern,) for pre, pattern in shared.items()}
    cohere = CohereTokenizer(vocab={each: i for i, each in enumerate(ByteLevel.alphabet())}, merges=[])
    ours, text = SPLITS["command-r"], "I'LL pay 12345 naïve\n\n"
    assert ours.composed == (cohere.backend_tokenizer.normalizer.normalize_str("e\u0301") == "\xe9")
    theirs = cohere.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert ours.pre_tokenizer().pre_tokenize_str(text) == theirs


def test_a_first_token_by_flag_and_by_kind(make: Make) -> None:
    original = trained("llama-bpe")
    first = original.bos_token_id
    for said, expected in (({}, True), ({"add_bos_token": False}, False), ({"add_bos_token": True}, True)):
        ids = load_tokenizer(str(make(byte_level(original, "llama-bpe", **said))))("x")["input_ids"]
        assert (ids[0] == first) == expected
    assert load_tokenizer(str(make(byte_level(original, "qwen2"))))("x")["input_ids"][0] != first
    last = load_tokenizer(str(make(byte_level(original, "qwen2", add_eos_token=True))))("x")["input_ids"][-1]
    assert last == original.eos_token_id


def test_a_cut_that_is_not_known_is_refused_by_name(make: Make) -> None:
    for pre in ("default", "a-new-one"):
        with pytest.raises(UnsupportedModel, match=rf"tokenizer\.ggml\.pre, .*, is '{pre}'"):
            load_tokenizer(str(make(byte_level(byte_tokenizer(), pre))))
    with pytest.raises(UnsupportedModel, match="'bert'"):
        load_tokenizer(str(make({"ggml.model": "bert"})))
    assert load_tokenizer(str(make({"ggml.model": "no_vocab"}))) is None


def test_a_tokenizer_beside_the_file_wins(make: Make) -> None:
    path = make(byte_level(byte_tokenizer(), "a-new-one", chat_template="{{ messages }}"))
    byte_tokenizer().backend_tokenizer.save(str(path.parent / "tokenizer.json"))
    found = load_tokenizer(str(path))
    assert found("hi")["input_ids"] == byte_tokenizer()("hi")["input_ids"]
    assert found.eos_token == "<eos>"
    assert found.chat_template == "{{ messages }}"
    trained("qwen2").backend_tokenizer.save(str(path.parent / "tokenizer.json"))
    with pytest.raises(DamagedModel, match="of another model"):
        load_tokenizer(str(path))


def test_padding_is_no_token(make: Make) -> None:
    original = trained("qwen2")
    said = byte_level(original, "qwen2")
    said["ggml.tokens"] += ["[PAD1]", "[PAD2]"]
    said["ggml.token_type"] += [5, 5]
    assert load_tokenizer(str(make(said))).get_vocab() == original.get_vocab()


def test_chat_templates(make: Make) -> None:
    said = byte_level(trained("qwen2"), "qwen2", chat_template="one")
    assert load_tokenizer(str(make(said))).chat_template == "one"
    said["chat_template.tool_use"] = "two"
    assert load_tokenizer(str(make(said))).chat_template == {"default": "one", "tool_use": "two"}


def test_all_tokens_that_end_a_text(make: Make) -> None:
    original = trained("smollm")
    end = original.convert_tokens_to_ids("<|im_end|>")
    said = byte_level(original, "smollm", eom_token_id=7)
    assert set(load_config(str(make(said))).eos_token_id) == {original.eos_token_id, 7}
    said["chat_template"] = "{{ message.content }}<|im_end|>"
    assert set(load_config(str(make(said))).eos_token_id) == {original.eos_token_id, 7, end}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ggml.merges": ["a zzz"]}, "merges 'a zzz'"),
        ({"ggml.token_type": [1]}, r"tokens and the kinds of 1"),
        ({"ggml.unknown_token_id": 9999}, "unknown token is 9999"),
        ({"ggml.add_eos_token": True, "ggml.eos_token_id": None}, "add_eos_token is true"),
        ({"ggml.tokens": "abc"}, "not a list of texts"),
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, Any], message: str, make: Make) -> None:
    with pytest.raises(DamagedModel, match=message):
        load_tokenizer(str(make({**byte_level(trained("gpt-2")), **change})))


# -- SentencePiece --------------------------------------------------------------------------------------------------

PIECES = [
    "<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
    *("\u2581t", "er", "in",
      "\u2581a", "he", "\u2581the", "on", "re", "\u2581s", "\u2581c", "at", "\u2581cat", "\u2581sat",
      "th", "the", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "ca", "sa", "\u2581to", "ten", "en"),
    *"\u2581etaoinshrdlucmfwypvbgkqjxz.,!ABC",
]  # fmt: skip
"""In the order of their scores, as SentencePiece writes them."""


def sentence_piece(**more: Any) -> dict[str, Any]:
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
    return {
        "ggml.model": "llama",
        "ggml.tokens": PIECES,
        "ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(len(PIECES) - 259)],
        "ggml.token_type": kinds,
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
        "ggml.unknown_token_id": 0,
        **{f"ggml.{key}": value for key, value in more.items()},
    }


def by_score(text: str) -> list[int]:
    """SentencePiece's own way: join the neighbours whose token has the highest score, again and again."""
    rank = {piece: index for index, piece in enumerate(PIECES)}
    parts: list[str | None] = list(text)
    heap: list[tuple[int, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        joined = f"{parts[left]}{parts[right]}"
        if rank.get(joined, 0) > 258:
            heappush(heap, (rank[joined], left, right, joined))

    for left in range(len(parts) - 1):
        offer(left, left + 1)
    while heap:
        _, left, right, joined = heappop(heap)
        if parts[left] is None or parts[right] is None or f"{parts[left]}{parts[right]}" != joined:
            continue
        parts[left], parts[right] = joined, None
        before = [i for i in range(left) if parts[i] is not None]
        after = [i for i in range(right + 1, len(parts)) if parts[i] is not None]
        if before:
            offer(before[-1], left)
        if after:
            offer(left, after[0])
    ids: list[int] = []
    for part in parts:
        if part is not None:
            ids += [rank[part]] if part in rank else [3 + byte for byte in part.encode()]
    return ids


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece(prefix: bool, make: Make) -> None:
    found = load_tokenizer(str(make(sentence_piece(add_space_prefix=prefix))))
    for text in ("the cat sat on the tent", "  spaces    here ", "naïve 漢\n\t", "attender, ABC!", "a", "zzz"):
        marked = ("\u2581" if prefix else "") + text.replace(" ", "\u2581")
        ids = found(text)["input_ids"]
        assert ids == [1, *by_score(marked)], text
        assert found.decode(ids, skip_special_tokens=True) == text
    assert found("</s>a")["input_ids"][1] == 2


def test_the_tokens_of_gemma_are_merged_in_their_order(tmp_path: Path) -> None:
    """Whatever their scores are; and runs of spaces are spelled with spaces in its files."""
    said = sentence_piece(add_space_prefix=False, scores=[0.0] * len(PIECES))
    said["ggml.tokens"] = [piece.replace("\u2581", " ") if set(piece) == {"\u2581"} else piece for piece in PIECES]
    said["ggml.tokens"][PIECES.index("\u2581", 3)] = "\u2581"
    said["ggml.token_type"][PIECES.index("\u2581\u2581")] = 4
    found = load_tokenizer(str(write(tmp_path / "m.gguf", random_model("gemma2"), tokenizer=said)))
    for text in ("the cat sat on the tent", "  spaces    here     ", "attender, ABC!"):
        ids = found(text)["input_ids"]
        assert ids == [1, *by_score(text.replace(" ", "\u2581"))], text
        assert found.decode(ids, skip_special_tokens=True) == text


def test_files_of_gemma4_list_their_merges(make: Make) -> None:
    """Their scores say nothing, no space is put before a text, and there is a first token only if they say so."""
    rank = {piece: index for index, piece in enumerate(PIECES) if index > 258}
    pairs = [(piece[:cut], piece[cut:]) for piece in rank for cut in range(1, len(piece))]
    merges = [f"{left} {right}" for left, right in pairs if left in rank and right in rank]
    said = sentence_piece(scores=[0.0] * len(PIECES), merges=merges) | {"ggml.model": "gemma4"}
    found = load_tokenizer(str(make(said)))
    for text in ("the cat sat on the tent", "  spaces    here ", "naïve 漢\n\t", "attender, ABC!", "\n\nthe"):
        ids = found(text)["input_ids"]
        assert ids == by_score(text.replace(" ", "\u2581")), text
        assert found.decode(ids, skip_special_tokens=True) == text
    assert load_tokenizer(str(make(said | {"ggml.add_bos_token": True})))("a")["input_ids"][0] == 1


def test_no_first_token_where_the_file_says_so(make: Make) -> None:
    assert load_tokenizer(str(make(sentence_piece(add_bos_token=False))))("a")["input_ids"][0] != 1
