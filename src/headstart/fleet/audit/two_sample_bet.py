"""Bets on which of two texts is whose: the exact test of two samples that a comparison of servers is made of.

Of a pair, one text is A's and one B's. If both have one distribution, which is which is a fair coin, whatever the two
texts are. So the two symbols at which they first differ are looked at without saying whose they are, odds are given
from earlier pairs alone, and the capital is multiplied by twice the probability that was given to what turned out. It
is a martingale with mean 1 under equality, and by Ville's inequality it reaches 1/level with probability `level` at
most, whenever one looks (Ville 1939; Shafer, "Testing by betting", 2021).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable

import numpy as np

from headstart.engine.in_turn import first_difference

Symbols = tuple[Hashable, ...]
_PRIORS = (0.5, 2.0)
_DEEPEST = 16
"""Symbols of a text that are counted: deeper beginnings hardly come twice."""


class TwoSampleBet:
    """The bets. `add` takes one pair; `capital` is what a stake of 1 has become, `best` the most it ever was.

    Odds are given in three ways, with a third of the stake each: by what came next after this very beginning, by which
    symbols each side writes more often anywhere, and by whether one side writes the commoner of two more often. The
    first two are given with little and with much trust in few counts.
    """

    def __init__(self) -> None:
        self._after: dict[Hashable, tuple[Counter[Hashable], Counter[Hashable]]] = defaultdict(
            lambda: (Counter(), Counter())
        )
        self._anywhere: tuple[Counter[Hashable], Counter[Hashable]] = (Counter(), Counter())
        self._commoner = [0.5, 0.5]
        self._logs = np.zeros(2 * len(_PRIORS) + 1)
        self.best = 1.0
        self.differing = 0

    @property
    def capital(self) -> float:
        return float(np.exp(np.minimum(self._logs, 700)).mean())

    def add(self, prompt: Hashable, a: Symbols, b: Symbols) -> None:
        """One pair: A's text and B's, after the same prompt."""
        at = first_difference(a, b)
        if at is not None:
            self._bet((prompt, a[:at]), symbol_at(a, at), symbol_at(b, at))
        self._learn(prompt, a, b)

    def _bet(self, place: Hashable, x: Hashable, y: Hashable) -> None:
        """A wrote x, B wrote y."""
        local = self._after[place]
        given = [_chance(counts, x, y, prior) for prior in _PRIORS for counts in (local, self._anywhere)]
        common = [sum(counts[symbol] for counts in local) for symbol in (x, y)]
        mine = self._commoner[0] / sum(self._commoner)
        given.append(0.5 if common[0] == common[1] else mine if common[0] > common[1] else 1 - mine)
        self._logs += np.log(2 * np.array(given))
        if common[0] != common[1]:
            self._commoner[0 if common[0] > common[1] else 1] += 1
        self.differing += 1
        self.best = max(self.best, self.capital)

    def _learn(self, prompt: Hashable, a: Symbols, b: Symbols) -> None:
        for side, text in enumerate((a, b)):
            for i, symbol in enumerate(text[:_DEEPEST]):
                self._after[(prompt, text[:i])][side][symbol] += 1
                self._anywhere[side][symbol] += 1


def symbol_at(text: Symbols, i: int) -> Hashable:
    return text[i] if i < len(text) else "(nothing)"


def _chance(counts: tuple[Counter[Hashable], Counter[Hashable]], x: Hashable, y: Hashable, prior: float) -> float:
    """The probability that A wrote x and B wrote y, rather than the other way about, by what was counted."""
    odds = (counts[0][x] + prior) * (counts[1][y] + prior)
    other = (counts[0][y] + prior) * (counts[1][x] + prior)
    return odds / (odds + other)
