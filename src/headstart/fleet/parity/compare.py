"""From both sides' counters to a verdict.

In float32 every counter must be equal, prompt by prompt: the text is the same on both sides, and rounding that could
turn a draft is too rare to be expected. In narrower numbers near-ties among a drafter's guesses fall either way, so the
sides differ a little at random. Then the acceptance at each position and the tokens per forward are compared, paired by
prompt: 0 must lie inside the interval of every difference, and the intervals hold all together at the stated level
(Bonferroni). An interval that contains 0 is no proof: its width says which faults would have stayed unseen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.base.words import counted
from headstart.fleet.parity.counts import Counts
from headstart.fleet.parity.plan import Plan
from headstart.fleet.parity.report import Compared, Difference
from headstart.theory.statistics import bootstrap

NEAR = {"float32": 1e-3, "float16": 0.06, "bfloat16": 0.5}
"""How far below the target's likeliest token a greedy server's token may lie, in logits, by dtype: a few steps of its
numbers at the size of logits, as other kernels add up in another order."""

Array = NDArray[np.float64]


def differences(compared: Sequence[Compared], depth: int, level: float) -> tuple[Difference, ...]:
    """Theirs minus ours: acceptance at each position given acceptance before it, then tokens per forward."""
    units = np.array([[_row(each.ours, depth), _row(each.theirs, depth)] for each in compared])
    figures = [(f"acceptance at position {i + 1}", _acceptance(i)) for i in range(depth)]
    figures.append(("tokens per forward", _per_forward))
    each_level = 1 - (1 - level) / len(figures)
    found = []
    for name, figure in figures:
        sums = units.sum(0)
        interval = bootstrap(units, lambda drawn, figure=figure: _minus(figure, drawn), level=each_level)  # type: ignore[misc]
        found.append(Difference(name, figure(sums[0]), figure(sums[1]), interval))
    return tuple(found)


def reasons(
    plan: Plan, compared: Sequence[Compared], found: Sequence[Difference], level: float
) -> tuple[list[str], list[str]]:
    """Why it is no parity, and what else is worth knowing."""
    wrong, notes = _text(plan, compared)
    unequal = [number for number, each in enumerate(compared, start=1) if not each.equal]
    outside = [each for each in found if each.interval.known and 0 not in each.interval]
    unknown = [each.name for each in found if not each.interval.known]
    if plan.exact and unequal:
        wrong.append(_unequal(compared, unequal))
        if not outside:
            notes.append(
                f"The differences are within the noise at the level {level:g}. A fault may do that, and so may "
                "rounding between a drafter's nearly equal guesses; more prompts would tell."
            )
    if not plan.exact:
        wrong += [
            f"{each.name} is {each.theirs:.3f} there and {each.ours:.3f} here: the difference lies between "
            f"{each.interval.low:+.3f} and {each.interval.high:+.3f}, all intervals together at the level {level:g}."
            for each in outside
        ]
        if unequal and unknown:
            notes.append(f"No interval is known for {', '.join(unknown)}: too few drafts reach there.")
        if unequal and len(unknown) == len(found):
            wrong.append(f"In {plan.dtype} one prompt shows nothing: give several.")
    return wrong, notes


def _text(plan: Plan, compared: Sequence[Compared]) -> tuple[list[str], list[str]]:
    """Whether the texts are the target's, up to rounding."""
    allowed = NEAR.get(plan.dtype, NEAR["bfloat16"])
    worst = max(each.predicted.gap for each in compared)
    ties = sum(each.predicted.ties for each in compared)
    if worst > allowed:
        number = next(i for i, each in enumerate(compared, start=1) if each.predicted.gap == worst)
        return [
            f"The server's greedy text is not this target's: at prompt {number} it took a token {worst:.3g} logits "
            f"below the likeliest, and rounding in {plan.dtype} explains {allowed:g}. Is it the same model? "
            "`headstart audit` looks closer."
        ], []
    if ties:
        return [], [f"{ties} tokens of the server's text are decided by rounding (up to {worst:.2g} logits)."]
    return [], []


def _unequal(compared: Sequence[Compared], unequal: Sequence[int]) -> str:
    first = compared[unequal[0] - 1]
    ours, theirs = first.ours, first.theirs
    facts = (
        ("drafts", ours.drafts, theirs.drafts),
        ("drafted tokens", ours.drafted, theirs.drafted),
        ("accepted by position", ours.accepted_per_position, theirs.accepted_per_position),
    )
    what = "; ".join(f"{name} {there} there, {here} here" for name, here, there in facts if here != there)
    count = f"{len(unequal)} of {counted(len(compared), 'prompt')}"
    return f"The counters of {count} differ, first those of prompt {unequal[0]}: {what}."


def _row(counts: Counts, depth: int) -> list[int]:
    """[generated, forwards, drafts, A_1, ..., A_depth]"""
    by_position = (*counts.accepted_per_position, *[0] * depth)[:depth]
    return [counts.generated, counts.forwards, counts.drafts, *by_position]


def _acceptance(position: int) -> Callable[[Array], float]:
    return lambda sums: _ratio(sums[3 + position], sums[2 + position])


def _per_forward(sums: Array) -> float:
    return _ratio(sums[0], sums[1])


def _minus(figure: Callable[[Array], float], drawn: Array) -> float:
    sums = drawn.sum(0)
    return figure(sums[1]) - figure(sums[0])


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else math.nan
