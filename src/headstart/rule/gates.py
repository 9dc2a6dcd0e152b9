"""What surrounds a grammar in an answer: gates that open it at a marker, and a limit on the thinking before one.

A marker is a sequence of tokens, such as the one that ends a model's thinking or begins a call of a tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import HeadstartError
from headstart.rule.processors import Processor


@dataclass(frozen=True, eq=False)
class Gate(Processor):
    """Does nothing until a marker has come, and from then on is the processor within.

    marker: its tokens.
    begin: the processor right after the marker.
    again: whether the gate closes when that processor is a complete grammar, until the marker comes again.
    seen: how many of the marker's tokens the text ends with.
    within: the processor where the gate is open; None where it is closed.
    """

    masks = True

    marker: tuple[int, ...]
    begin: Processor
    again: bool = False
    seen: int = 0
    within: Processor | None = None

    def after(self, tokens: Sequence[int]) -> Processor:
        found: Processor = self
        for n, token in enumerate(tokens):
            if not isinstance(found, Gate):
                return found.after(tokens[n:])
            found = found._after(token)
        return found

    def _after(self, token: int) -> Processor:
        if self.within is not None:
            within = self.within.after((token,))
            closes = getattr(within, "complete", False) and not getattr(within, "ended", False)
            return replace(self, seen=0, within=None if closes else within)
        seen = matched(self.marker, self.seen, token)
        if seen < len(self.marker):
            return self if seen == self.seen else replace(self, seen=seen)
        return replace(self, seen=0, within=self.begin) if self.again else self.begin

    def edit(self, x: NDArray[np.float32]) -> None:
        if self.within is not None:
            self.within.edit(x)

    def edit_columns(self, x: NDArray[np.float32], ids: NDArray[np.int64], size: int) -> None:
        if self.within is not None:
            self.within.edit_columns(x, ids, size)

    @classmethod
    def edit_rows(cls, x: Tensor, members: Sequence[tuple[int, Any]]) -> None:
        within = [(r, gate.within) for r, gate in members if gate.within is not None]
        for kind in dict.fromkeys(type(each) for _, each in within):
            kind.edit_rows(x, [(r, each) for r, each in within if type(each) is kind])

    def forced(self) -> int | None:
        return None if self.within is None else self.within.forced()

    def allows(self, token: int) -> bool:
        return self.within is None or self.within.allows(token)

    @property
    def failure(self) -> HeadstartError | None:
        return None if self.within is None else self.within.failure


def matched(marker: Sequence[int], seen: int, token: int) -> int:
    """How many of the marker's tokens a text ends with, once this token follows `seen` of them."""
    text = (*marker[:seen], token)
    return next(n for n in range(min(len(text), len(marker)), -1, -1) if n == 0 or text[-n:] == tuple(marker[:n]))


@dataclass(frozen=True, eq=False)
class ThinkingBudget(Processor):
    """Lets a marker come after so many tokens at the latest, by letting nothing else come.

    marker: its tokens.
    left: tokens that may still come before it.
    seen: how many of the marker's tokens the text ends with; all of them once it has come.
    """

    masks = True

    marker: tuple[int, ...]
    left: int
    seen: int = 0

    def after(self, tokens: Sequence[int]) -> ThinkingBudget:
        left, seen = self.left, self.seen
        for token in tokens:
            if seen == len(self.marker):
                break
            seen = matched(self.marker, seen, token)
            left -= 1
        return ThinkingBudget(self.marker, left, seen) if seen != self.seen or left != self.left else self

    def forced(self) -> int | None:
        return self.marker[self.seen] if self.left <= 0 and self.seen < len(self.marker) else None

    def allows(self, token: int) -> bool:
        forced = self.forced()
        return forced is None or token == forced

    def edit(self, x: NDArray[np.float32]) -> None:
        forced = self.forced()
        if forced is not None:
            kept = x[forced]
            x += np.float32(-np.inf)
            x[forced] = kept
