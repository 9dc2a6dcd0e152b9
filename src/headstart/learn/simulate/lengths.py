"""How many tokens to draft: rules that choose K for each stream before each round.

Any callable from a `History` to a whole number, or to one per stream [B], will do. A rule that also has
`go_on(top, depth)` is asked before each further token whether to draft it, with `top` [B], the greatest probability
of the draft's distribution there. Both see what was emitted and the draft's distribution, never the token about to be
drawn: a rule that looked at it, and then threw it away, would change the distribution of the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.learn.simulate.distributions import Floats, Ints
from headstart.theory import VerifyCost, alpha_k_table

MOST = 64
"""The longest draft a rule may ask for."""
_MEMORY = 64  # rounds a History holds


@dataclass(eq=False)
class History:
    """What a rule may look at.

    streams: B.
    acceptance: gives [B], the true chance that the next guess is kept, sum of min(p, q). No engine can know it;
        only the oracle asks.
    drafted: tokens [B] drafted in each past round, oldest first; the last 64 rounds are kept.
    accepted: tokens [B] accepted in each past round, likewise.
    """

    streams: int
    acceptance: Callable[[], Floats]
    drafted: deque[Ints] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    accepted: deque[Ints] = field(default_factory=lambda: deque(maxlen=_MEMORY))

    def note(self, drafted: Ints, accepted: Ints) -> None:
        self.drafted.append(drafted)
        self.accepted.append(accepted)

    def last(self, rounds: int) -> tuple[Ints, Ints]:
        """How many tokens [B] the last `rounds` rounds drafted, and how many were accepted."""
        return sum_of(self.drafted, rounds, self.streams), sum_of(self.accepted, rounds, self.streams)


Lengths = Callable[[History], ArrayLike]


@runtime_checkable
class Stopping(Protocol):
    """A rule that may end a draft early."""

    def go_on(self, top: Floats, depth: int) -> ArrayLike:
        """Which streams [B] draft their token number `depth` (0 is the first)."""
        ...


@dataclass(frozen=True)
class FixedK:
    """Always k tokens."""

    k: int

    def __post_init__(self) -> None:
        check_number("k", self.k, low=0, high=MOST, integer=True)

    def __call__(self, history: History, /) -> int:  # noqa: ARG002
        return self.k


@dataclass(frozen=True)
class SimpleK:
    """The rule in circulation: over 80% of the last 5 rounds' guesses accepted, one more; under 50%, one less."""

    start: int = 5
    least: int = 2
    most: int = 10
    rounds: int = 5
    up: float = 0.8
    down: float = 0.5

    def __post_init__(self) -> None:
        check_number("least", self.least, low=1, integer=True)
        check_number("most", self.most, low=self.least, high=MOST, integer=True)
        check_number("start", self.start, low=self.least, high=self.most, integer=True)
        check_number("rounds", self.rounds, low=1, high=_MEMORY, integer=True)
        check_number("up", self.up, low=self.down, high=1)
        check_number("down", self.down, low=0, high=1)

    def __call__(self, history: History, /) -> Ints:
        if len(history.drafted) < self.rounds:
            return np.full(history.streams, self.start)
        drafted, accepted = history.last(self.rounds)
        step = (accepted > self.up * drafted).astype(np.int64) - (accepted < self.down * drafted)
        k: Ints = np.clip(history.drafted[-1] + step, self.least, self.most)
        return k


@dataclass(frozen=True)
class ConfidentK:
    """Up to `most` tokens, as long as the draft's greatest probability is at least `threshold`.

    The draft's distribution has to be computed to be looked at, so the token that is not drafted costs a draft step
    too.
    """

    threshold: float = 0.5
    most: int = 10

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, low=0, high=1)
        check_number("most", self.most, low=1, high=MOST, integer=True)

    def __call__(self, history: History, /) -> int:  # noqa: ARG002
        return self.most

    def go_on(self, top: Floats, depth: int) -> ArrayLike:  # noqa: ARG002
        return top >= self.threshold


@dataclass(frozen=True)
class OracleK:
    """The K with the greatest speedup if the true acceptance here held for the whole draft; 0 if none pays.

    It knows what no engine knows. Where acceptance changes within a draft even this is not the best that could be done.
    c, v: costs as in `headstart.theory.speedup`.
    """

    c: float
    v: VerifyCost = None
    most: int = 16

    def __post_init__(self) -> None:
        check_number("c", self.c, low=0)
        check_number("most", self.most, low=0, high=MOST, integer=True)

    def __call__(self, history: History, /) -> Ints:
        alphas, where = np.unique(history.acceptance().round(6), return_inverse=True)
        table = alpha_k_table(alphas.clip(0, 1), np.arange(self.most + 1), self.c, self.v)
        best: Ints = np.asarray(table.argmax(axis=1)[where], dtype=np.int64)
        return best


def chosen(rule: Lengths, history: History) -> Ints:
    """The rule's draft lengths, as [B].

    Raises:
        InvalidOption: it is not a whole number of 0 to MOST, or not one per stream.
    """
    k = np.asarray(rule(history))
    if k.dtype.kind not in "iu" or k.shape not in ((), (history.streams,)) or k.min() < 0 or k.max() > MOST:
        raise InvalidOption(
            f"the draft-length rule gave {k.tolist() if k.size < 8 else f'an array {k.shape} of {k.dtype}'}",
            hint=f"give a whole number of 0 to {MOST}, or one for each of the {history.streams} streams",
        )
    return np.broadcast_to(k, history.streams).astype(np.int64)


def sum_of(rounds: deque[Ints], last: int, streams: int) -> Ints:
    total = np.zeros(streams, dtype=np.int64)
    for counts in list(rounds)[-last:]:
        total = total + counts
    return total
