"""Rounds of a measured run, and what they would have been with shorter drafts.

A round is one target forward that emits tokens. What a shorter draft would have brought need not be run again, see
`theory.recut`. For a greedy request that is exact, up to the end of a draft that was accepted whole; sampled ones have
the same distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headstart.engine.in_turn import Round
from headstart.theory.recut import Stretch
from headstart.theory.recut import recut as theory_recut
from headstart.theory.rounds import PositionCounts


def recut(rounds: Sequence[Round], k: int, *, joined: bool) -> list[Round]:
    """The rounds of chains as they would be with at most k tokens a draft; without times.

    joined: a draft that was accepted whole would have gone on to be right, so that its stretch and the next one's are
    one; otherwise it would have been wrong after its last token. The truth lies between, see `whole_goes_on`.
    """
    stretches = [Stretch(one.source, one.nodes, one.accepted, one.tokens) for one in rounds]
    return [
        Round(piece.source, piece.nodes, piece.nodes, piece.accepted, piece.tokens)
        for piece in theory_recut(stretches, k, joined=joined)
    ]


def whole_goes_on(rounds: Iterable[Round]) -> float:
    """How often a draft that was accepted whole would have been right about one more token, taken from what happened
    at the last places that are known: the acceptance over the second half of the positions."""
    rounds = [one for one in rounds if one.nodes]
    deepest = max((one.depth for one in rounds), default=0)
    tested = kept = 0
    for one in rounds:
        for place in range(deepest // 2, min(one.accepted + 1, one.depth)):
            tested += 1
            kept += place < one.accepted
    return kept / tested if tested else 0.0


def conditional(rounds: Iterable[Round]) -> tuple[tuple[int, int], ...]:
    """[(accepted, tested)] by position: a position was tested if all before it were accepted and the draft reached
    it."""
    counts = PositionCounts()
    for one in rounds:
        counts.add(one.depth, one.accepted)
    return tuple(zip(counts.accepted, counts.tested, strict=True))


def shares(counts: Iterable[tuple[int, int]]) -> tuple[float, ...]:
    """Conditional acceptance by position."""
    return tuple(kept / tested for kept, tested in counts)
