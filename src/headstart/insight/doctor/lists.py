"""Lists worth a try: the best copier in front of a good drafter that guesses everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.insight.doctor.candidates import Candidate
from headstart.insight.doctor.measuring import LONGEST
from headstart.insight.doctor.verdict import Ranked
from headstart.loading.choice import WEIGHTLESS

COPIERS = ("ngram", "suffix")
HOPELESS = 0.8
"""A drafter that is slower than this alone is not made good by a copier before it."""


def promising(ranked: Sequence[Ranked]) -> list[tuple[Candidate, int]]:
    """(list, nodes of a draft): copier, then each promising other drafter, the fastest first."""
    singles = [one for one in ranked if len(one.candidate.drafters) == 1]
    copiers = [one for one in singles if one.candidate.drafters[0] in COPIERS and one.best.drafting > 0]
    others = [one for one in singles if one.candidate.drafters[0] not in WEIGHTLESS and one.gain >= HOPELESS]
    others += [one for one in singles if one.candidate.drafters[0] == "early-exit" and one.gain > 1]
    if not copiers:
        return []
    first = max(copiers, key=lambda one: one.gain).candidate.drafters[0]
    return [
        (Candidate((first, *one.candidate.drafters), "list"), one.best.k if one.tree else LONGEST)
        for one in sorted(others, key=lambda one: -one.gain)
    ]
