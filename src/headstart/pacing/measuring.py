"""How long a target forward and a draft take here, found out by running them, in about a second.

What is run is what a step runs: a forward and a look at its logits, on free cache slots, and `propose` on a
synthetic text (`synthetic`). The measurements take turns (`timer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from headstart.drafters import Drafter, capabilities
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.pacing.synthetic import REQUESTS, SyntheticDrafts, SyntheticForwards
from headstart.pacing.timer import InterleavedTimer, Name
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.noise import Noise
from headstart.rule.verify import verify
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft, Sampling

SECONDS = 1.0
_ROWS, _MORE_ROWS = (1, 16, 4, 8, 2), (32, 64)  # in order of importance
_DISTRIBUTION_ROWS = 1, 16
_CHECKED_ROWS = 1, 2, 8
_HEAVY = 0.1  # seconds of 16 rows from which on more are not tried: there costs are a straight line
_SHORT, _LONG = 1, 5
_NODES = 24  # of the trees that are timed
_GUESS = 0.2  # of a target step, for a draft that could not be measured
_BESIDE = 8  # rows of the forward that is timed with a drafter beside it
_NEGLIGIBLE = 0.02  # of a forward of one row: costs that differ by less decide nothing
_HIDDEN = 0.6  # of drafts that are made ahead, until rounds have shown how many


def measured_batch(slots: int) -> int:
    """How many requests at a time are measured, where there are so many slots; beyond it costs are a straight line."""
    return 1 if slots == 1 else 2 if slots < REQUESTS else REQUESTS


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found out."""

    costs: StepCosts
    steady: bool
    """Whether repeated forwards and drafts took the same time, so that the figures are worth keeping: on a machine that
    is busy with other work they say what that work left."""


def measure(
    target: ModelRunner, cache: Slots, parts: Sequence[Drafter], *, batch: int, seconds: float = SECONDS
) -> Measurement:
    """Costs of the target and of each part, for up to `batch` requests at a time; `cache` has that many free slots.

    A part that drafts ahead is measured as it drafts in turn, so that nothing runs beside the target's forwards; then a
    forward is timed while the part drafts beside it. How many of its drafts will be ready only real rounds can show.

    Where forwards or drafts do not take the same time twice, all is measured for as long again.
    """
    timer = InterleavedTimer(target.device)
    forwards = SyntheticForwards(target, cache, batch)
    drafts = [SyntheticDrafts(capabilities.in_turn(part), target, index, forwards) for index, part in enumerate(parts)]
    besides = {
        index: SyntheticDrafts(part, target, len(parts) + index, forwards)
        for index, part in enumerate(parts)
        if capabilities.in_turn(part) is not part
    }
    for n in _ROWS:
        timer.add(("rows", n), partial(forwards.run, 1, n))
    for n in _DISTRIBUTION_ROWS:
        timer.add(("distribution", n), partial(_distribution, torch.randn(n, target.vocab_size, device=target.device)))
    for index, ahead in besides.items():
        _add_forward_beside(timer, forwards, parts[index], drafts[index], ahead)
    for part, made in zip(parts, drafts, strict=True):
        _add_drafts(timer, part, made, batch)
    if batch > 1:
        timer.add(("requests", batch), partial(forwards.run, batch, 1))
        if forwards.seconds(max(_ROWS)) < _HEAVY:
            for n in _MORE_ROWS:
                timer.add(("rows", n), partial(forwards.run, 1, n))
    try:
        timer.run(seconds)
        if not _steady(timer):
            timer.run(seconds)
    finally:
        forwards.release()
        for made in (*drafts, *besides.values()):
            made.release()
    costs = _step_costs(timer.seconds, parts, [parts[index].name for index in besides], batch)
    return Measurement(costs, _steady(timer))


def _steady(timer: InterleavedTimer) -> bool:
    return timer.steady(_NEGLIGIBLE * timer.seconds["rows", 1])


def _add_forward_beside(
    timer: InterleavedTimer,
    forwards: SyntheticForwards,
    part: Drafter,
    in_turn: SyntheticDrafts,
    ahead: SyntheticDrafts,
) -> None:
    """A forward of the target while the part drafts for what may come of a draft."""

    def begin() -> None:
        in_turn.release()  # there may be one slot
        ahead.run(1, _ends(part)[1][0])

    forward = partial(forwards.run, 1, _BESIDE)
    timer.add((part.name, "beside"), forward, before=begin, after=ahead.release, optional=True)


def _add_drafts(timer: InterleavedTimer, part: Drafter, made: SyntheticDrafts, batch: int) -> None:
    """Drafts of two lengths, of a text that was not read, drawn ones, and of several requests. What raises is a
    drafter's: its cost is then guessed, and the engine will find it out."""
    (short, _), (long, _) = _ends(part)
    add = partial(timer.add, optional=True)
    # "read" lets the synthetic requests go; they are begun anew before the clock runs for the next
    add((part.name, "read"), made.read)
    add((part.name, _SHORT), partial(made.run, 1, short), before=partial(made.run, batch, short))
    add((part.name, _LONG), partial(made.run, 1, long))
    if capabilities.draws(part):
        add((part.name, "drawn"), partial(made.run, 1, long, drawn=True))
    if batch > 1:
        add((part.name, "several"), partial(made.run, batch, long))


def _step_costs(found: Mapping[Name, float], parts: Sequence[Drafter], beside: Sequence[str], batch: int) -> StepCosts:
    """From seconds by action to costs. beside: names of the parts that draft ahead."""
    one = found["rows", 1]
    # The forward of so many requests has as many rows; what it costs more than those rows is the requests' own
    rows_alone = found.get(("rows", batch), one)
    request = max(0.0, found.get(("requests", batch), rows_alone) - rows_alone) / max(1, batch - 1)
    costs = {part.name: _draft_cost(part, found, batch, one) for part in parts}
    for name in beside:
        slower = found.get((name, "beside"), found["rows", _BESIDE]) / found["rows", _BESIDE] - 1
        costs[name] = replace(costs[name], hidden=_HIDDEN, slowing=max(0.0, slower))
    # No forward need take longer than its rows one by one
    measured = tuple((n, min(found["rows", n], n * one)) for n in sorted((*_ROWS, *_MORE_ROWS)) if ("rows", n) in found)
    distribution_1, distribution_16 = (found["distribution", n] for n in _DISTRIBUTION_ROWS)
    each = max(0.0, distribution_16 - distribution_1) / (_DISTRIBUTION_ROWS[1] - _DISTRIBUTION_ROWS[0])
    return StepCosts(measured, request, costs, sampled=max(0.0, distribution_1 - each), sampled_row=each)


def a_few_forwards(target: ModelRunner, cache: Slots) -> dict[int, float]:
    """Seconds of a forward by its rows, of a few numbers of rows, quickly: to see whether known figures still hold."""
    forwards = SyntheticForwards(target, cache, 1)
    try:
        forwards.seconds(1)
        return {n: forwards.seconds(n) for n in _CHECKED_ROWS}
    finally:
        forwards.release()


def _ends(part: Drafter) -> tuple[tuple[int, int], tuple[int, int]]:
    """(nodes, depth) of a short and of a long draft: of trees the smallest, and the deepest of up to `_NODES` nodes."""
    sizes = capabilities.sizes(part) or ((_SHORT, _SHORT), (_LONG, _LONG))
    some = [size for size in sizes if size[0] <= _NODES] or sizes[:1]
    return sizes[0], max(some, key=lambda size: (size[1], size[0]))


def _draft_cost(part: Drafter, found: Mapping[Name, float], requests: int, step: float) -> DraftCost:
    name, ((_, low), (_, high)) = part.name, _ends(part)
    short, long = found.get((name, _SHORT)), found.get((name, _LONG))
    if short is None or long is None:
        return DraftCost(0.0, _GUESS * step, point_masses=not capabilities.draws(part))
    token = max(0.0, long - short) / max(1, high - low)
    read = max(0.0, found.get((name, "read"), short) - short) / SyntheticDrafts.UNREAD
    drawn = max(0.0, found.get((name, "drawn"), long) - long) / max(1, high)
    several = found.get((name, "several"), long)
    growth = max(0.0, several / long - 1) / max(1, requests - 1)
    start = max(0.0, short - token * low)
    return DraftCost(start, token, read, growth, drawn, point_masses=not capabilities.draws(part))


def _distribution(logits: Tensor) -> None:
    """What a sampled row of a step costs more than a greedy one: its distribution on the host, and the rule."""
    state = SamplingState(Sampling(temperature=1.0), (), logits.shape[1], frozenset())
    p = distribution(logits, [SamplingRow(state, ())] * len(logits)).cpu().numpy()
    verify(Draft.chain([0] * (len(logits) - 1)), p, None, Noise(0), 0, "exact")
