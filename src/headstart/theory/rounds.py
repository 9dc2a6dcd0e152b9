"""Tokens that a round emits: the accepted draft tokens and the bonus token, for one forward of the target.

alpha is the chance that a draft token is accepted once everything before it was. Where it is the same at every position
("i.i.d."), a round of K draft tokens emits E = 1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha).
Source: Leviathan et al. (arXiv:2211.17192), section 3.1, equation 1.

Recorded rounds of chains also tell what shorter drafts would have given, without running anything again (`recut`).
Where k tokens are drafted instead of more, an accepted stretch of m tokens and the one after it come in
ceil((m + 1) / (k + 1)) rounds, each of which begins where the last one ended. For a greedy request whose drafter goes
by the text alone that is exact, but for one thing that no record knows: whether a draft that was accepted whole would
have gone on to be right. So there are two cuts, and the truth lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.theory.values import Array, Real, numbers, plain, whole


class PositionCounts:
    """Acceptance by position as it was observed. A position was tested if the draft reached it and everything before it
    was accepted; `accepted` of `tested` is its conditional acceptance."""

    def __init__(self) -> None:
        self.tested: list[int] = []
        self.accepted: list[int] = []

    def add(self, depth: int, accepted: int) -> None:
        """A draft of so many levels, and how many of them were accepted."""
        for position in range(min(accepted + 1, depth)):
            if position == len(self.tested):
                self.tested.append(0)
                self.accepted.append(0)
            self.tested[position] += 1
            self.accepted[position] += position < accepted


def expected_tokens(alpha: ArrayLike, k: ArrayLike) -> Real:
    """E(alpha, K): tokens per round; 1 at alpha = 0, K + 1 at alpha = 1.

    Raises:
        InvalidOption: alpha outside [0, 1], or k not a whole number of at least 0.
    """
    a, n = np.broadcast_arrays(numbers("alpha", alpha, low=0, high=1), whole("k", k))
    # 1 - a^(K+1) loses its digits as a nears 1; expm1 and log1p keep them.
    with np.errstate(divide="ignore", invalid="ignore"):
        tokens = -np.expm1((n + 1) * np.log1p(-(1 - a))) / (1 - a)
    return plain(np.where(n == 0, 1, np.where(a == 1, n + 1, tokens)))


def expected_tokens_by_position(acceptance: ArrayLike, k: ArrayLike | None = None) -> Real:
    """E = 1 + a_1 + a_1 a_2 + ... + a_1...a_K, where acceptance differs by position.

    acceptance: [..., n], conditional: [..., i] is the chance of position i + 1 once all before it were accepted; the
    last value holds for every later position. k: draft length, n by default; it broadcasts against [...].

    Raises:
        InvalidOption: an acceptance outside [0, 1] or none at all, or k not a whole number of at least 0.
    """
    a = by_position(acceptance)
    n = whole("k", a.shape[-1] if k is None else k)
    longest = int(n.max(initial=0))
    reached = np.ones((*a.shape[:-1], longest + 1))
    reached[..., 1:] = np.cumprod(extended(a, longest), axis=-1)
    tokens = np.cumsum(reached, axis=-1)
    lead = np.broadcast_shapes(a.shape[:-1], n.shape)
    at = np.broadcast_to(n, lead).astype(np.int64)
    return plain(np.take_along_axis(np.broadcast_to(tokens, (*lead, longest + 1)), at[..., None], axis=-1)[..., 0])


def ceiling(alpha: ArrayLike) -> Real:
    """1 / (1 - alpha): what E, and so the speedup, stays below for every K; infinite for a perfect draft.

    A draft that costs something has a lower ceiling still, `best_k(...).speedup`; and where c < 1 and v >= 1 the
    speedup stays below 1/c even if all is accepted.
    """
    a = numbers("alpha", alpha, low=0, high=1)
    with np.errstate(divide="ignore"):
        return plain(1 / (1 - a))


def by_position(acceptance: ArrayLike) -> Array:
    """Conditional acceptances [..., n], n >= 1, each in [0, 1]."""
    a = numbers("acceptance", acceptance, low=0, high=1)
    if a.ndim == 0 or a.shape[-1] == 0:
        raise InvalidOption("acceptance has no positions", hint="give one conditional acceptance for each position")
    return a


def extended(acceptance: Array, k: int) -> Array:
    """[..., k]: cut after position k, or its last value repeated."""
    return acceptance[..., np.minimum(np.arange(k), acceptance.shape[-1] - 1)]


@dataclass(frozen=True, slots=True)
class Stretch:
    """One round of a chain: what was drafted, how much of it was accepted, and what the text gained."""

    source: str
    """Who drafted; "" if there was no draft."""
    nodes: int
    """Drafted tokens."""
    accepted: int
    """Drafted tokens on the accepted path."""
    tokens: int
    """Emitted."""


def recut(rounds: Sequence[Stretch], k: int, *, joined: bool) -> list[Stretch]:
    """The rounds of chains as they would be with at most k tokens a draft.

    joined: a draft that was accepted whole would have gone on to be right, so that its stretch and the next one's are
    one; otherwise it would have been wrong after its last token.
    """
    return [piece for stretch in (_join(rounds, k) if joined else rounds) for piece in _cut(stretch, k)]


def _join(rounds: Sequence[Stretch], k: int) -> list[Stretch]:
    """Stretches: rounds whose whole draft was accepted, with the one after it if the same drafter goes on there."""
    found: list[Stretch] = []
    open_ = False
    for one in rounds:
        last = found[-1] if found else None
        if open_ and last is not None and one.nodes and one.source == last.source:
            found[-1] = replace(
                last,
                nodes=max(last.nodes, one.nodes),
                accepted=last.accepted + 1 + one.accepted,
                tokens=last.tokens + one.tokens,
            )
        else:
            found.append(one)
        open_ = one.nodes > 0 and one.accepted == one.nodes > k
    return found


def _cut(stretch: Stretch, k: int) -> list[Stretch]:
    draft = min(k, stretch.nodes)
    pieces: list[Stretch] = []
    tokens, accepted = stretch.tokens, stretch.accepted
    while tokens > 0:
        taken = min(draft, accepted)
        emitted = min(tokens, taken + 1)
        pieces.append(Stretch(stretch.source if draft else "", draft, taken, emitted))
        tokens -= emitted
        accepted = max(0, accepted - emitted)
    return pieces
