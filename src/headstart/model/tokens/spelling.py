"""What a token is called where people see it: its text, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headstart.base.errors import IncompatibleTokenizer
from headstart.model.tokens.vocabulary import Vocabulary


@dataclass(frozen=True)
class Spelling:
    """The tokens of a tokenizer. A token that is a part of a character has bytes that are no text."""

    tokenizer: Any = field(repr=False)

    @cached_property
    def _vocabulary(self) -> Vocabulary | None:
        """Read at first use: it takes a while where the vocabulary is large."""
        try:
            return Vocabulary(self.tokenizer, name="the model")
        except IncompatibleTokenizer:
            return None

    def raw(self, token: int) -> bytes:
        """What it writes, in bytes; of a special token its name."""
        words = self._vocabulary
        found = None if words is None else words.word(token)
        if found is None and words is not None:
            found = words.text(token)
        if found is None:
            found = str(self.tokenizer.decode([token], skip_special_tokens=False)).encode("utf-8", "replace")
        return found

    def text(self, token: int) -> str:
        """What it writes, as text."""
        return self.raw(token).decode("utf-8", "replace")
