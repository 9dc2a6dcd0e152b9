"""A grammar as a sampling processor: at least one digit, then a dot, then the end for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.rule.processors import Processor

DIGITS, DOT, END = (0, 1), 2, 3
GRAMMAR_VOCAB = 4


class Matcher:
    """A mutable automaton, as grammar libraries have it: it consumes tokens and says which may come next."""

    def __init__(self) -> None:
        self.state = "begin"

    def consume(self, token: int) -> None:
        if token not in self.allowed():
            self.state = "nowhere"  # a guess may be anything
        else:
            self.state = {DOT: "end", END: "end"}.get(token, "digits")

    def allowed(self) -> tuple[int, ...]:
        return {"begin": DIGITS, "digits": (*DIGITS, DOT), "end": (END,), "nowhere": ()}[self.state]


@dataclass(frozen=True, eq=False)
class Grammar(Processor):
    """Masks the tokens that the matcher does not allow. Each value has a matcher of its own."""

    matcher: Matcher

    def after(self, tokens: Sequence[int]) -> Grammar:
        matcher = Matcher()
        matcher.state = self.matcher.state
        for token in tokens:
            matcher.consume(token)
        return Grammar(matcher)

    def edit(self, x: NDArray[np.float32]) -> None:
        if self.matcher.state == "nowhere":
            return
        masked = np.ones(len(x), dtype=bool)
        masked[list(self.matcher.allowed())] = False
        x[masked] += np.float32(-np.inf)


def follows(tokens: Sequence[int]) -> bool:
    """Whether the tokens are the beginning of a text of the grammar."""
    matcher = Matcher()
    for token in tokens:
        matcher.consume(token)
    return matcher.state != "nowhere"
