"""Tokens as bytes: what each writes, what writes a text, and what two vocabularies have in common."""

from __future__ import annotations

from typing import Any

import pytest
from support.languages import TEXT, byte_level, pieces, renumbered
from support.tiny import byte_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from headstart.base.errors import IncompatibleTokenizer
from headstart.model.tokens.translation import Translation
from headstart.model.tokens.vocabulary import Vocabulary

KINDS = {
    "bytes": byte_tokenizer,
    "byte level": byte_level,
    "added words": lambda: byte_level(added=("<think>", "    ")),
    "pieces": pieces,
    "unigram": lambda: pieces(unigram=True),
}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return KINDS[request.param]()


def written(vocabulary: Vocabulary, ids: tuple[int, ...]) -> bytes:
    return b"".join(vocabulary.word(i) or b"" for i in ids)


def test_words_write_what_the_tokenizer_decodes(tokenizer: Any) -> None:
    vocabulary = Vocabulary(tokenizer, name="it")
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    spaced = b" " if vocabulary.lead != "never" else b""
    assert written(vocabulary, ids) == spaced + TEXT.encode()
    assert tokenizer.decode(ids) == TEXT


def test_encoding_is_the_tokenizers_own_without_what_it_adds(tokenizer: Any) -> None:
    vocabulary = Vocabulary(tokenizer, name="it")
    spaced = " " if vocabulary.lead != "never" else ""
    assert list(vocabulary.encode((spaced + TEXT).encode()).ids) == tokenizer(TEXT, add_special_tokens=False).input_ids
    assert list(vocabulary.opening) == tokenizer("")["input_ids"]


@pytest.mark.parametrize(
    "text", [b"", b"caf\xc3", b"\x9f\x98\x80 x", b"a\xff\xfeb", "😀".encode()[:3], "日本".encode()]
)
def test_any_bytes_can_be_written_and_ends_are_theirs(tokenizer: Any, text: bytes) -> None:
    vocabulary = Vocabulary(tokenizer, name="it")
    found = vocabulary.encode(text)
    assert written(vocabulary, found.ids) == text
    assert [len(written(vocabulary, found.ids[: i + 1])) for i in range(len(found.ids))] == list(found.ends)


def test_the_text_of_a_special_token_is_text(tokenizer: Any) -> None:
    vocabulary = Vocabulary(tokenizer, name="it")
    assert vocabulary.specials
    for mark, token in vocabulary.specials.items():
        assert vocabulary.word(token) is None
        assert vocabulary.text(token) == mark.encode()
        if mark != "<unk>":  # which is also what its own text may be, in pieces that are nowhere to be found
            assert token not in vocabulary.encode(f"so {mark} it is".encode()).ids


def test_where_the_text_is_normalised_ends_are_those_of_characters() -> None:
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    vocabulary = Vocabulary(tokenizer, name="it")
    found = vocabulary.encode("cafe\u0301 au lait".encode())
    assert written(vocabulary, found.ids) == "café au lait".encode()
    assert found.ends[-1] == len("cafe\u0301 au lait".encode())


def test_ids_past_the_tokens_have_no_word() -> None:
    vocabulary = Vocabulary(byte_tokenizer(), name="it")
    assert vocabulary.word(256) is None
    assert vocabulary.word(10_000) is None


@pytest.mark.parametrize("kind", ["word piece", "no decoder", "not fast"])
def test_what_cannot_be_written_as_bytes_is_refused(kind: str) -> None:
    made: Any = object()
    if kind != "not fast":
        inner = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        if kind == "word piece":
            inner.decoder = decoders.WordPiece()
        made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    with pytest.raises(IncompatibleTokenizer, match="draft x has a tokenizer whose tokens cannot be written as bytes"):
        Vocabulary(made, name="draft x")


def between(target: Any, draft: Any, **options: Any) -> Translation:
    return Translation.between(target, draft, target_vocab=len(target), draft_vocab=len(draft), **options)


def test_one_space_convention_against_the_other() -> None:
    target, draft = byte_level(), pieces()
    made = between(target, draft)
    ids, theirs = target.get_vocab(), draft.get_vocab()
    assert made.to_draft[ids["Ġthe"]] == theirs["▁the"]
    assert made.to_target[theirs["▁the"]] == ids["Ġthe"]
    # a space is a token of its own as well as a raw byte; a byte that begins a character is only that
    assert made.to_draft[ids["Ġ"]] == theirs["▁"]
    assert made.to_draft[ids["ð"]] == theirs["<0xF0>"]
    assert made.to_target[theirs["<0xF0>"]] == ids["ð"]
    assert theirs["<0x20>"] not in made.to_target
    for there, here in made.to_target.items():
        if there != draft.eos_token_id:
            assert made.draft.word(there) == made.target.word(here) is not None
    assert made.intersection == len({w for w in made.target.words if w} & {w for w in made.draft.words if w})
    assert 0 < made.share < 1
    assert f"{made.intersection} tokens shared ({made.share:.0%} of the target's" in str(made)


def test_special_tokens_go_by_text_and_then_by_use() -> None:
    target = byte_level(marks=("<|end|>", "<|user|>", "<|mine|>"))
    draft = byte_level(marks=("</s>", "<|user|>"))
    made = between(target, draft)
    ids, theirs = target.get_vocab(), draft.get_vocab()
    assert made.to_target[theirs["</s>"]] == ids["<|end|>"]
    assert made.to_draft[ids["<|user|>"]] == theirs["<|user|>"]
    assert ids["<|mine|>"] not in made.to_draft
    assert ids["<|mine|>"] not in made.to_target.values()


def test_the_first_of_several_tokens_with_one_text_is_taken() -> None:
    """In pieces a letter and its byte both write 'a': the intersection pairs a word once, and both can be read."""
    target, draft = pieces(), byte_level()
    ids, theirs = target.get_vocab(), draft.get_vocab()
    made = between(target, draft)
    assert made.to_draft[ids["a"]] == made.to_draft[ids["<0x61>"]] == theirs["a"]
    assert made.to_target[theirs["a"]] == ids["a"]
    # unless the other side has both
    draft, order = renumbered(target)
    made = between(target, draft)
    assert made.to_draft == dict(enumerate(order))
    assert made.to_target == {there: here for here, there in made.to_draft.items()}


def test_which_way_is_a_matter_of_the_pair() -> None:
    whole = byte_level()
    assert between(whole, renumbered(whole)[0]).method == "ids"
    assert between(whole, byte_level(341, marks=("<eos>", "<|user|>"))).method == "ids"
    assert between(whole, byte_level(added=("<think>",))).method == "ids"
    assert between(whole, byte_level(339)).method == "intersection"
    assert between(whole, byte_tokenizer()).method == "text"
    assert between(whole, byte_tokenizer(), method="intersection").method == "intersection"


def test_padding_of_a_models_embedding_is_nobodys_token() -> None:
    whole = byte_level()
    made = Translation.between(whole, whole, target_vocab=300, draft_vocab=320)
    assert max(made.to_target.values()) < 300
    assert max(made.to_draft) < 300
    assert made.method == "text" or max(made.to_draft.values()) < 320
