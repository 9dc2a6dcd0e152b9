"""Rounds of a measured run, and what they would have been with shorter drafts.

A round is one target forward that emits tokens. What a shorter draft would have brought need not be run again: where k
tokens are drafted instead of more, an accepted stretch of m tokens and the one after it come in ceil((m + 1) / (k + 1))
rounds, each of which begins where the last one ended. For a greedy request that is exact, up to the end of a draft that
was accepted whole; sampled ones have the same law.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headstart.insight.measure import Round
from headstart.theory.rounds import PositionCounts


def recut(rounds: Sequence[Round], k: int, *, joined: bool) -> list[Round]:
    """The rounds of chains as they would be with at most k tokens a draft; without times.

    joined: a draft that was accepted whole would have gone on to be right, so that its stretch and the next one's are
    one; otherwise it would have been wrong after its last token. The truth lies between, see `whole_goes_on`.
    """
    return [piece for stretch in (_join(rounds, k) if joined else rounds) for piece in _cut(stretch, k)]


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


def _join(rounds: Sequence[Round], k: int) -> list[Round]:
    """Stretches: rounds whose whole draft was accepted, with the one after it if the same drafter goes on there."""
    found: list[Round] = []
    open_ = False
    for one in rounds:
        last = found[-1] if found else None
        if open_ and last is not None and one.nodes and one.source == last.source:
            found[-1] = replace(
                last,
                nodes=max(last.nodes, one.nodes),
                depth=max(last.depth, one.depth),
                accepted=last.accepted + 1 + one.accepted,
                tokens=last.tokens + one.tokens,
            )
        else:
            found.append(one)
        open_ = one.nodes > 0 and one.accepted == one.nodes > k
    return found


def _cut(stretch: Round, k: int) -> list[Round]:
    draft = min(k, stretch.nodes)
    pieces: list[Round] = []
    tokens, accepted = stretch.tokens, stretch.accepted
    while tokens > 0:
        taken = min(draft, accepted)
        emitted = min(tokens, taken + 1)
        pieces.append(Round(stretch.source if draft else "", draft, draft, taken, emitted))
        tokens -= emitted
        accepted = max(0, accepted - emitted)
    return pieces
