"""How long a target forward and a draft take here, found out by running them, in about a second.

What is run is what a step runs: a forward and a look at its logits, on free cache slots, and `propose` on a
synthetic text (`synthetic`). The measurements take turns, so that a machine that slows down meanwhile slows all of them
alike. On a processor that other work shares, what the thread waits for its turn does not count: an action that takes
longer than a turn is interrupted in every run, a short one in few, and no quantile would make the two comparable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from headstart.base.errors import CONTAINED
from headstart.drafters import Drafter, capabilities
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.pacing.belief import MEAN_RATE
from headstart.pacing.constants import (
    CHECKING_SECONDS,
    FEW_ROWS,
    LONG_DRAFT,
    MANY_ROWS,
    MEASURING_SECONDS,
    MOST_REQUESTS,
    MOST_RUNS,
    PRECISION,
    STEADY,
    TEXT_TOKENS,
    UNKNOWN_COST,
)
from headstart.pacing.mixtures import routing_of
from headstart.pacing.synthetic import SyntheticDrafts, SyntheticForwards
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.noise import Noise
from headstart.rule.verify import verify
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.mixture import Routing
from headstart.types import Draft, Sampling

_CHECKED_ROWS = FEW_ROWS[:-1]
"""Rows of the forwards that tell whether a profile still holds."""
_USUAL_ROWS = _CHECKED_ROWS[-1]
"""Rows of the forward that is timed with a drafter beside it."""
_BETWEEN = tuple((low + high) // 2 for low, high in pairwise(_CHECKED_ROWS))
"""Rows of the forwards that are timed besides, where experts bend the curve."""
_COUNTED_ROWS = FEW_ROWS[2]
"""Rows of the forward whose experts are counted: of more, some models meet all."""
_DISTRIBUTION_ROWS = FEW_ROWS[0], FEW_ROWS[-1]


Action = Callable[[], None]
Name = tuple[str, int | str]
"""Its kind, and which of that kind."""

_SCHEDULED = Path("/proc/thread-self/schedstat")
"""Of this thread, on Linux: nanoseconds that it ran, nanoseconds that it waited for a processor, turns that it had."""


def _nothing() -> None:
    return


def _waited() -> float:
    """Seconds that this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        return int(_SCHEDULED.read_text(encoding="utf-8").split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


class InterleavedTimer:
    """Named actions, timed in turn."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._actions: dict[Name, tuple[Action, Action, Action]] = {}
        self._optional: set[Name] = set()
        self.times: dict[Name, list[float]] = {}

    def add(
        self,
        name: Name,
        action: Action,
        *,
        before: Action = _nothing,
        after: Action = _nothing,
        optional: bool = False,
    ) -> None:
        """before: run each time before the clock is started. after: run when it has been stopped. optional: an action
        that raises is dropped; the error of another one is the caller's."""
        if optional:
            self._optional.add(name)
        self._actions[name] = before, action, after

    def run(self, seconds: float) -> None:
        """Round after round until the time is spent; each action at least twice. Runs add to those of earlier calls.

        An action that has had an equal share of the time rests, so that forwards of many rows of a big model do not
        take it all. A share is counted by the action's quickest run: one that other work has interrupted twice is run
        again.
        """
        known = {name: len(times) for name, times in self.times.items()}
        start, share = time.perf_counter(), self.share(seconds)
        for _ in range(MOST_RUNS):
            for name in list(self._actions):
                times = self.times.setdefault(name, [])
                runs = len(times) - known.get(name, 0)
                spent = time.perf_counter() - start > seconds
                if runs >= 2 and (spent or runs * min(times) > share):
                    continue
                self._time(name)

    def share(self, seconds: float) -> float:
        """Seconds of each action, of so many for all."""
        return seconds / len(self._actions)

    def _time(self, name: Name) -> None:
        before, action, after = self._actions[name]
        try:
            before()
            waited = _waited()
            ran, start = time.thread_time(), time.perf_counter()
            action()
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            seconds, ran = time.perf_counter() - start, time.thread_time() - ran
            if self._device.type == "cpu":  # another device works on while the thread waits
                # The thread may have waited before the clock ran; it took the time for which it ran in any case
                seconds = min(seconds, max(ran, seconds - (_waited() - waited)))
            after()
        except CONTAINED:
            if name not in self._optional:
                raise
            del self._actions[name], self.times[name]
            return
        self.times[name].append(seconds)

    def steady(self, negligible: float = 0.0) -> bool:
        """Whether every action took the same time twice, or the difference is at most `negligible` seconds."""
        quickest = [sorted(times)[:2] for times in self.times.values()]
        return all(second <= max(STEADY * first, first + negligible) for first, second in quickest)

    @property
    def seconds(self) -> dict[Name, float]:
        """The quickest run of each action that did not raise: other work only ever adds time, and on a busy machine to
        most of the runs."""
        return {name: min(times) for name, times in self.times.items()}


def measured_batch(slots: int) -> int:
    """How many requests at a time are measured, where there are so many slots; beyond it costs are a straight line."""
    return 1 if slots == 1 else 2 if slots < MOST_REQUESTS else MOST_REQUESTS


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found out."""

    costs: StepCosts
    steady: bool
    """Whether repeated forwards and drafts took the same time, so that the figures are worth keeping: on a machine that
    is busy with other work they say what that work left."""


def measure(
    target: ModelRunner, cache: Slots, parts: Sequence[Drafter], *, batch: int, seconds: float = MEASURING_SECONDS
) -> Measurement:
    """Costs of the target and of each part, for up to `batch` requests at a time; `cache` has that many free slots.

    A part that drafts ahead is measured as it drafts in turn, so that nothing runs beside the target's forwards; then a
    forward is timed while the part drafts beside it. How many of its drafts will be ready only real rounds can show;
    until then an outcome is foreseen as surely as a guess is accepted.

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
    routing = routing_of(target.config)
    for n in FEW_ROWS if routing.dense else sorted({*FEW_ROWS, *_BETWEEN}):
        timer.add(("rows", n), partial(forwards.run, 1, n))
    for n in _DISTRIBUTION_ROWS:
        timer.add(("distribution", n), partial(_distribution, torch.randn(n, target.vocab_size, device=target.device)))
    for index, ahead in besides.items():
        _add_forward_beside(timer, forwards, parts[index], drafts[index], ahead)
    for part, made in zip(parts, drafts, strict=True):
        _add_drafts(timer, part, made, batch)
    if batch > 1:
        timer.add(("requests", batch), partial(forwards.run, batch, 1))
        # Beyond forwards that take all of their share, costs are a straight line
        if forwards.seconds(FEW_ROWS[-1]) < timer.share(seconds):
            for n in MANY_ROWS:
                timer.add(("rows", n), partial(forwards.run, 1, n))
    try:
        timer.run(seconds)
        if not _steady(timer):
            timer.run(seconds)
        counted = _as_counted(routing, forwards)
    finally:
        forwards.release()
        for made in (*drafts, *besides.values()):
            made.release()
    costs = _step_costs(timer.seconds, parts, [parts[index].name for index in besides], batch)
    if counted is not None:
        costs = replace(costs, routing=counted[0], alike=counted[1])
    elif not routing.dense:
        costs = replace(costs, routing=routing).of_texts()
    return Measurement(costs, _steady(timer))


def _as_counted(routing: Routing, forwards: SyntheticForwards) -> tuple[Routing, float] | None:
    """The routing with the layers that have experts, and how alike the made-up rows choose: some experts are chosen
    much more often than others, so that even rows that have nothing in common meet the same ones. None where nothing
    counts experts."""
    one = None if routing.dense else forwards.experts(1)
    if not one:
        return None
    routing = replace(routing, layers=max(1, round(one / routing.chosen)))
    many = forwards.experts(_COUNTED_ROWS)
    found = (routing.independent((many or one) / routing.layers) - 1) / (_COUNTED_ROWS - 1)
    return routing, min(max(0.0, 1 - found), routing.rho)


def _steady(timer: InterleavedTimer) -> bool:
    return timer.steady(PRECISION * timer.seconds["rows", 1])


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
        ahead.run(1, timed_sizes(part)[1][0])

    forward = partial(forwards.run, 1, _USUAL_ROWS)
    timer.add((part.name, "beside"), forward, before=begin, after=ahead.release, optional=True)


def _add_drafts(timer: InterleavedTimer, part: Drafter, made: SyntheticDrafts, batch: int) -> None:
    """Drafts of two lengths, a wide tree, of a text that was not read, drawn ones, and of several requests. What raises
    is a drafter's: its cost is then guessed, and the engine will find it out."""
    (short, _), (long, _), (wide, _) = timed_sizes(part)
    add = partial(timer.add, optional=True)
    # "read" lets the synthetic requests go; they are begun anew before the clock runs for the next
    add((part.name, "read"), made.read)
    add((part.name, "short"), partial(made.run, 1, short), before=partial(made.run, batch, short))
    add((part.name, "long"), partial(made.run, 1, long))
    if wide > long:
        add((part.name, "wide"), partial(made.run, 1, wide))
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
        slower = found.get((name, "beside"), found["rows", _USUAL_ROWS]) / found["rows", _USUAL_ROWS] - 1
        costs[name] = replace(costs[name], hidden=MEAN_RATE, slowing=max(0.0, slower))
    # No forward need take longer than its rows one by one
    numbers = sorted({*FEW_ROWS, *_BETWEEN, *MANY_ROWS})
    measured = tuple((n, min(found["rows", n], n * one)) for n in numbers if ("rows", n) in found)
    distribution_1, distribution_16 = (found["distribution", n] for n in _DISTRIBUTION_ROWS)
    each = max(0.0, distribution_16 - distribution_1) / (_DISTRIBUTION_ROWS[1] - _DISTRIBUTION_ROWS[0])
    return StepCosts(measured, request, costs, sampled=max(0.0, distribution_1 - each), sampled_row=each)


def a_few_forwards(target: ModelRunner, cache: Slots) -> dict[int, float]:
    """Seconds of a forward by its rows, of a few numbers of rows, quickly: to see whether known figures still hold. Of
    a big model, whose forwards take long, it is fewer numbers of rows, and one at least."""
    forwards = SyntheticForwards(target, cache, 1, text=1)  # a long one would read most experts of a mixture
    found: dict[int, float] = {}
    try:
        forwards.seconds(1)
        for n in _CHECKED_ROWS:
            found[n] = forwards.seconds(n)
            if sum(found.values()) > CHECKING_SECONDS:
                break
        return found
    finally:
        forwards.release()


def timed_sizes(part: Drafter) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(nodes, depth) of a short, a long and a wide draft: of trees the smallest, and the deepest of those that fit into
    the forwards that are always timed, with the fewest nodes and with the most; the next wider one where that is the
    same. A long chain is the widest, too."""
    sizes = capabilities.sizes(part) or ((1, 1), (LONG_DRAFT, LONG_DRAFT))
    some = [size for size in sizes if size[0] <= FEW_ROWS[-1]] or sizes[:1]
    long = max(some, key=lambda size: (size[1], -size[0]))
    wide = max(size for size in some if size[1] == long[1])
    if wide == long:
        wide = min((size for size in sizes if size[1] == long[1] and size[0] > long[0]), default=long)
    return sizes[0], long, wide


def _draft_cost(part: Drafter, found: Mapping[Name, float], requests: int, step: float) -> DraftCost:
    name, ((least, low), (some, high), (most, _)) = part.name, timed_sizes(part)
    short, long = found.get((name, "short")), found.get((name, "long"))
    if short is None or long is None:
        return DraftCost(0.0, UNKNOWN_COST * step, point_masses=not capabilities.draws(part))
    sibling = max(0.0, found.get((name, "wide"), long) - long) / max(1, most - some)
    siblings = least - low, some - high
    token = max(0.0, long - short - sibling * (siblings[1] - siblings[0])) / max(1, high - low)
    read = max(0.0, found.get((name, "read"), short) - short) / TEXT_TOKENS
    drawn = max(0.0, found.get((name, "drawn"), long) - long) / max(1, high)
    several = found.get((name, "several"), long)
    growth = max(0.0, several / long - 1) / max(1, requests - 1)
    start = max(0.0, short - token * low - sibling * siblings[0])
    return DraftCost(start, token, read, growth, drawn, sibling, point_masses=not capabilities.draws(part))


def _distribution(logits: Tensor) -> None:
    """What a sampled row of a step costs more than a greedy one: its distribution on the host, and the rule."""
    state = SamplingState(Sampling(temperature=1.0), (), logits.shape[1], frozenset())
    p = distribution(logits, [SamplingRow(state, ())] * len(logits)).cpu().numpy()
    verify(Draft.chain([0] * (len(logits) - 1)), p, None, Noise(0), 0, "exact")
