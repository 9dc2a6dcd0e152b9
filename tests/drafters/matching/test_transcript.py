"""The draft's reading of committed text: kept up token by token, it is what tokenising everything again would give."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.languages import TEXT, byte_level, pieces, renumbered
from support.tiny import byte_tokenizer

from headstart.drafters.matching.transcript import Retokenised, respaced, transcript
from headstart.model.tokens.translation import Method, Translation

PAIRS = {
    "byte level, pieces": (byte_level, pieces),
    "pieces, byte level": (pieces, byte_level),
    "pieces, unigram": (pieces, lambda: pieces(unigram=True)),
    "more words, fewer words": (lambda: byte_level(420), lambda: byte_level(300)),
    "fewer words, more words": (lambda: byte_level(300), lambda: byte_level(420)),
    "bytes, byte level": (byte_tokenizer, byte_level),
    "bytes, pieces": (byte_tokenizer, pieces),
    "byte level, bytes": (byte_level, byte_tokenizer),
}


def between(target: Any, draft: Any, method: Method = "text") -> Translation:
    return Translation.between(target, draft, target_vocab=len(target), draft_vocab=len(draft), method=method)


def from_scratch(translation: Translation, tokens: list[int]) -> list[int]:
    """Everything tokenised at once; a text without special tokens."""
    text = b"".join(translation.target.word(token) or b"" for token in tokens)
    text = respaced(text, translation.target, translation.draft, 0)
    return [*translation.draft.opening, *translation.draft.encode(text).ids]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("seed", [0, 1])
def test_incremental_equals_from_scratch(pair: str, seed: int) -> None:
    target, draft = (make() for make in PAIRS[pair])
    translation = between(target, draft)
    chance = random.Random(seed)
    lines = TEXT.splitlines(keepends=True)
    text = "So: " + "".join(chance.choice([*lines, "  " * chance.randrange(9), "😀", "ü", "\n"]) for _ in range(12))
    tokens = target(text, add_special_tokens=False)["input_ids"]
    row, read = Retokenised(translation), 0
    while read < len(tokens):
        before = list(row.ids)
        read += chance.choice([1, 1, 2, 3, 5, 9, 70])
        stable = row.follow(tokens[:read])
        assert row.ids == from_scratch(translation, tokens[:read])
        assert row.ids[:stable] == before[:stable]
    assert row.ids == draft(text)["input_ids"]


@pytest.mark.parametrize("pair", PAIRS)
def test_any_tokens_can_be_followed(pair: str) -> None:
    """Random tokens are no text: characters without end, spaces without number. What the draft reads writes the same,
    and only the end of it changes."""
    translation = between(*(make() for make in PAIRS[pair]))
    target, draft = translation.target, translation.draft
    chance = random.Random(3)
    words = [i for i, word in enumerate(target.words) if word is not None]
    tokens = [chance.choice(words) for _ in range(300)]
    row = Retokenised(translation)
    for read in range(1, len(tokens) + 1):
        before = list(row.ids)
        stable = row.follow(tokens[:read])
        assert row.ids[:stable] == before[:stable]
        assert stable >= len(before) - 40
        text = b"".join(target.word(token) or b"" for token in tokens[:read])
        read_back = b"".join(draft.word(token) or b"" for token in row.ids)
        assert read_back == respaced(text, target, draft, 0)


def test_special_tokens_are_the_drafts_own_or_text_or_nothing() -> None:
    target = byte_level(marks=("<|end|>", "<|user|>", "<|mine|>"), opening=True)
    draft = byte_level(marks=("</s>", "<|user|>"))
    translation = between(target, draft)
    ids, theirs = target.get_vocab(), draft.get_vocab()
    quick, dog = target("quick")["input_ids"][1:], target(" dog")["input_ids"][1:]
    row = Retokenised(translation)
    row.follow([ids["<|end|>"], ids["<|user|>"], *quick, ids["<|mine|>"], *dog, ids["<|end|>"]])
    plain = [draft(text, add_special_tokens=False)["input_ids"] for text in ("quick", "<|mine|>", " dog")]
    # what opens the target's texts is not what opens the draft's: there, nothing does
    assert row.ids == [theirs["<|user|>"], *plain[0], *plain[1], *plain[2], theirs["</s>"]]
    assert draft.decode(row.ids) == "<|user|>quick<|mine|> dog</s>"


def test_the_draft_begins_as_its_own_texts_begin() -> None:
    target, draft = byte_level(opening=True), pieces()
    row = Retokenised(between(target, draft))
    row.follow(target("The fox")["input_ids"])
    assert row.ids == draft("The fox")["input_ids"]
    row = Retokenised(between(draft, target))
    row.follow(draft("The fox")["input_ids"])
    assert row.ids == target("The fox")["input_ids"]


def test_the_same_words_are_renumbered_one_by_one() -> None:
    target = byte_level(marks=("<eos>", "<|mine|>"), added=("<think>",))
    draft, order = renumbered(byte_level(341))
    draft_words = byte_level(341)
    assert set(target.get_vocab()) - {"<eos>", "<|mine|>", "<think>"} <= set(draft_words.get_vocab())
    translation = between(target, draft, "ids")
    row = transcript(translation)
    trained = [i for i, word in enumerate(translation.target.words) if word is not None and i < 338]
    random.Random(0).shuffle(trained)
    assert row.follow(trained) == 0
    assert row.ids == [translation.to_draft[token] for token in trained]
    words = draft_words.get_vocab()
    names = target.convert_ids_to_tokens(trained)
    assert row.ids == [order[words[name]] for name in names]
    # <|mine|> and <think> are known to the target alone: their text stands for them
    ids = target.get_vocab()
    before = len(row.ids)
    assert row.follow([*trained, ids["<think>"], ids["<|mine|>"], ids["<eos>"]]) == before
    want = draft("<think>")["input_ids"] + draft("<|mine|>")["input_ids"] + [draft.eos_token_id]
    assert row.ids[before:] == want
