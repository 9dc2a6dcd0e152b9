"""Which outcomes of a round are the likeliest: learnt from those that came, and shared out as fan-outs.

An outcome is a node of the draft (or x0) after which nothing is accepted, and the place of the bonus token among the
drafter's likeliest ones there. With acceptance a, a chain ends after k tokens with the chance a^k (1 - a), after all of
its K with a^K; places are counted apart for the two, since after a rejection the bonus token is drawn from what the
draft does not have, and after the last token from the whole distribution. Taking the likeliest pairs of node and place
one by one is what makes the expected hits the most for their number; for places that fall off as a power, it is the
geometric fan-out of Saguaro (arXiv:2603.03251; see `theory.ssd.fan_outs`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from headstart.drafters import Foreseen
from headstart.types import Draft

PLACES = 16
"""Places that are counted."""
_KEPT = 0.99
"""Share of all counts that is kept from one round to the next: about the last hundred rounds count."""
_SIBLING = 0.3
"""Of what is left after a node's elder sibling, the share of acceptance that is expected of the next one."""


class Outcomes:
    """Fan-outs for drafts whose nodes are in order of likelihood.

    branches: of one draft, how many outcomes are foreseen.
    """

    def __init__(self, branches: int) -> None:
        self._branches = branches
        prior = [4.0 / (place + 1) ** 2 for place in range(PLACES)]
        self._places = {end: list(prior) for end in (True, False)}
        self._accepted, self._tested = 3.0, 5.0

    def learn(self, found: Foreseen) -> int:
        """Count what came of a round whose outcome is known; returns how many tokens were accepted."""
        assert found.last is not None, "only of a round that was foreseen"
        assert found.node is not None, "only of a known outcome"
        depth = 0 if found.node < 0 else found.last.depths[found.node]
        end = not found.last.children[found.node + 1]
        self._accepted = _KEPT * self._accepted + depth
        self._tested = _KEPT * self._tested + depth + (not end)
        places = [_KEPT * count for count in self._places[end]]
        if found.rank is not None:
            places[found.rank] += 1
        self._places[end] = places
        return depth

    def fan_outs(self, draft: Draft) -> list[int]:
        """[N + 1]: how many bonus tokens to foresee after x0, and after each node of the draft."""
        ends = self._ends(draft)
        found = [0] * len(ends)
        falling = {end: _falling(places) for end, places in self._places.items()}
        open_ = [(-chance * falling[not draft.children[at]][0], at) for at, chance in enumerate(ends)]
        heapq.heapify(open_)
        for _ in range(self._branches):
            chance, at = heapq.heappop(open_)
            if chance >= 0:
                break
            found[at] += 1
            places = falling[not draft.children[at]]
            following = places[found[at]] if found[at] < PLACES else 0.0
            heapq.heappush(open_, (-ends[at] * following, at))
        return found

    def _ends(self, draft: Draft) -> Sequence[float]:
        """[N + 1]: the chance that the accepted path ends at x0, and at each node."""
        alpha = min(0.98, max(0.02, self._accepted / self._tested))
        reached = [1.0] + [0.0] * len(draft)
        ends = []
        for at in range(len(draft) + 1):
            left, share = reached[at], alpha
            for child in draft.children[at]:
                reached[child + 1] = left * share
                left -= reached[child + 1]
                share = _SIBLING * alpha
            ends.append(left)
        return ends


def _falling(places: Sequence[float]) -> list[float]:
    """Chances by place, never rising: what a place has less than a later one is chance."""
    total = sum(places)
    chances = [count / total for count in places]
    for place in reversed(range(len(chances) - 1)):
        chances[place] = max(chances[place], chances[place + 1])
    return chances
