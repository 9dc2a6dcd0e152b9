"""A text that is far too long is not tokenized whole, and every other one is tokenized as it always was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.byte_models import save_model
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.base.errors import ContextExceeded
from headstart.model.tokens.bounded import ids_unless_far_too_many


class Counting:
    """Tokenizes words, and counts the characters that it is given."""

    def __init__(self) -> None:
        self.characters = 0

    def __call__(self, text: str) -> Sequence[int]:
        self.characters += len(text)
        return [len(word) for word in text.split()]


@pytest.mark.parametrize("most", [10, 1000])
def test_of_a_text_that_is_far_too_long_only_the_beginning_is_tokenized(most: int) -> None:
    ids = Counting()
    assert ids_unless_far_too_many(ids, "ab " * 1_000_000, most) is None
    assert ids.characters <= 40 * max(most, 1000)


@pytest.mark.parametrize("text", ["a b", "a" * 100_000, " " * 100_000 + "a", "ab " * 1000, ("a" + " " * 500) * 900])
def test_a_text_of_few_tokens_is_tokenized_whole_however_long_it_is(text: str) -> None:
    """There are tokenizers that write a word, or a run of spaces, in one token."""
    ids = Counting()
    assert ids_unless_far_too_many(ids, text, 1000) == tuple(Counting()(text))
    assert ids.characters <= 3 * len(text)


def test_an_engine_does_not_tokenize_what_cannot_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = hs.load(save_model(tmp_path), "none", dtype="float32")
    seen: list[int] = []
    tokenizer = type(engine.tokenizer)
    call = tokenizer.__call__

    def counting(self: object, text: str, *args: object, **options: object) -> object:
        seen.append(len(text))
        return call(self, text, *args, **options)

    monkeypatch.setattr(tokenizer, "__call__", counting)
    for prompt in ("x" * 3_000_000, [7] * 3_000_000):
        with pytest.raises(ContextExceeded, match="and the context holds"):
            engine.encode(prompt)
    assert sum(seen) < 20_000
    assert engine.encode("abc") == tuple(byte_tokenizer()("abc")["input_ids"])
