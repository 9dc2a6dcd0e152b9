"""Which tokens a structure lets come after a text, from its definition: no gate, no budget, no copied matcher."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from headstart.rule.grammars import Grammars
from headstart.types import Structure

Text = tuple[int, ...]


class AllowedTokens:
    """Of an engine's grammars, with a vocabulary of `size` tokens of which `end` ends a text."""

    def __init__(self, grammars: Grammars, size: int, end: int) -> None:
        self._grammars, self._size, self._end = grammars, size, end
        self._after = cache(self._found)

    def __call__(self, structure: Structure, text: Text) -> Sequence[int]:
        """The tokens that may follow. text: all tokens from the first of the answer on."""
        return self._after(structure, text)

    def by_grammar(self, structure: Structure, text: Text) -> Sequence[int]:
        """By a matcher that has taken these tokens and nothing else."""
        bare = Structure(structure.kind, structure.text, structure.whitespace, structure.spelling, structure.lenient)
        matcher = self._grammars.compiled(bare).fresh(now=True)
        if self._end in text or matcher.try_consume_tokens(list(text)) < len(text):
            return range(self._size)  # behind the end, or there is no such text
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        assert not matcher.is_error()
        return [token for token in np.flatnonzero(bits).tolist() if token < self._size]

    def _found(self, structure: Structure, text: Text) -> Sequence[int]:
        everything = range(self._size)
        if structure.after:
            behind = _behind(text, structure.after)
            if behind is None:
                if structure.thinking is None or len(text) < structure.thinking:
                    return everything
                marker = structure.after
                begun = next(n for n in range(len(marker), -1, -1) if text[len(text) - n :] == marker[:n])
                return [marker[begun]]
            text = behind
        if structure.kind == "text":
            return everything
        while structure.trigger:
            behind = _behind(text, structure.trigger)
            if behind is None:
                return everything
            complete = (n for n in range(len(behind) + 1) if self.by_grammar(structure, behind[:n]) == [self._end])
            if (n := next(complete, None)) is None:
                text = behind
                break
            text = behind[n:]
        return self.by_grammar(structure, text)


def _behind(text: Text, marker: Text) -> Text | None:
    """What follows the first marker of a text; None where there is none."""
    for at in range(len(text) - len(marker) + 1):
        if text[at : at + len(marker)] == marker:
            return text[at + len(marker) :]
    return None


class StructureLogitsProcessor:
    """A processor for transformers. prompt_length: tokens before the answer."""

    def __init__(self, allowed: AllowedTokens, structure: Structure, prompt_length: int) -> None:
        self._allowed, self._structure, self._begin = allowed, structure, prompt_length

    def __call__(self, ids: Any, scores: Any) -> Any:
        masked = torch.full_like(scores, -torch.inf)
        for row, text in enumerate(ids[:, self._begin :].tolist()):
            may = list(self._allowed(self._structure, tuple(text)))
            masked[row, may] = scores[row, may]
        return masked
