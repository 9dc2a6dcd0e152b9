"""What recorded rounds would have been with shorter drafts, without running anything again.

Where k tokens are drafted instead of more, an accepted stretch of m tokens and the one after it come in
ceil((m + 1) / (k + 1)) rounds, each of which begins where the last one ended. For a greedy request whose drafter goes
by the text alone that is exact, but for one thing that no record knows: whether a draft that was accepted whole would
have gone on to be right. So there are two cuts, and the truth lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


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
