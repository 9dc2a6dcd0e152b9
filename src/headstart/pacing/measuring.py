"""How long a target forward and a draft take here, found out by running them, in about a second.

What is run is what a step runs: a forward and a look at its logits, on free cache slots, and `propose` on a made-up
text. The measurements take turns, so that a machine that slows down meanwhile slows all of them; noise only ever adds
time, so a low quantile of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from headstart.drafters import Drafter, Observation, Row
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.law import LawRow, LawState, law
from headstart.rule.noise import Noise
from headstart.rule.verify import verify
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

SECONDS = 1.0
_ROWS, _MORE_ROWS = (1, 16, 4, 8, 2), (32, 64)  # in order of importance
_LAW_ROWS = 1, 16
_CHECKED_ROWS = 1, 2, 8
_STEADY = 1.3  # the second quickest run of a forward over the quickest, at most
_MOST = 40  # rounds
_TWICE = 2
_HEAVY = 0.1  # seconds of 16 rows from which on more are not tried: there costs are a straight line
_PREFIX = 24
_SHORT, _LONG = 1, 5
_NODES = 24  # of the trees that are timed
_REQUESTS = 4
_PERIOD = 6
_LOW = 0.2
_GUESS = 0.2  # of a target step, for a draft that could not be measured
_BESIDE = 8  # rows of the forward that is timed with a drafter beside it
_HIDDEN = 0.6  # of drafts that are made ahead, until rounds have shown how many


def measured_batch(slots: int) -> int:
    """How many requests at a time are measured, where there are so many slots; beyond it costs are a straight line."""
    return 1 if slots == 1 else 2 if slots < _REQUESTS else _REQUESTS


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found out."""

    costs: StepCosts
    steady: bool
    """Whether repeated forwards took the same time, so that the figures are worth keeping: on a machine that is busy
    with other work they say what that work left."""


def measure(
    target: ModelRunner, cache: Slots, parts: Sequence[Drafter], *, batch: int, seconds: float = SECONDS
) -> Measurement:
    """Costs of the target and of each part, for up to `batch` requests at a time; `cache` has that many free slots.

    A part that drafts ahead is measured as it drafts in turn, so that nothing runs beside the target's forwards; then a
    forward is timed while the part drafts beside it. How many of its drafts will be ready only real rounds can show.

    Where forwards do not take the same time twice, all is measured for as long again.
    """
    bench = _Bench(target.device)
    forwards = _Forwards(target, cache, batch)
    drafts = [_Drafts(part.in_turn, target, index, forwards) for index, part in enumerate(parts)]
    besides = [
        (part, made, _Drafts(part, target, len(parts) + index, forwards))
        for index, (part, made) in enumerate(zip(parts, drafts, strict=True))
        if part.in_turn is not part
    ]
    for n in _ROWS:
        bench.add(("rows", n), partial(forwards.run, 1, n))
    for n in _LAW_ROWS:
        bench.add(("law", n), partial(_law, torch.randn(n, target.vocab_size, device=target.device)))
    for part, made, ahead in besides:
        judge = partial(forwards.run, 1, _BESIDE)
        bench.add((part.name, "beside"), judge, before=partial(_begin, made, ahead, part), after=ahead.release)
    for part, made in zip(parts, drafts, strict=True):
        # "read" lets the made-up requests go; they are begun anew before the clock runs for the next
        (short, _), (long, _) = _ends(part)
        bench.add((part.name, "read"), made.read)
        bench.add((part.name, _SHORT), partial(made.run, 1, short), before=partial(made.run, batch, short))
        bench.add((part.name, _LONG), partial(made.run, 1, long))
        if part.draws:
            bench.add((part.name, "drawn"), partial(made.run, 1, long, drawn=True))
        if batch > 1:
            bench.add((part.name, "several"), partial(made.run, batch, long))
    if batch > 1:
        bench.add(("requests", batch), partial(forwards.run, batch, 1))
        if forwards.seconds(max(_ROWS)) < _HEAVY:
            for n in _MORE_ROWS:
                bench.add(("rows", n), partial(forwards.run, 1, n))
    try:
        bench.run(seconds)
        if not bench.steady:
            bench.run(seconds)
    finally:
        forwards.release()
        for made in (*drafts, *(ahead for _, _, ahead in besides)):
            made.release()
    found = bench.found
    one = found["rows", 1]
    # The forward of so many requests has as many rows; what it costs more than those rows is the requests' own
    rows_alone = found.get(("rows", batch), one)
    request = max(0.0, found.get(("requests", batch), rows_alone) - rows_alone) / max(1, batch - 1)
    costs = {part.name: _draft_cost(part, found, batch, one) for part in parts}
    for part, _, _ in besides:
        slower = found.get((part.name, "beside"), found["rows", _BESIDE]) / found["rows", _BESIDE] - 1
        costs[part.name] = replace(costs[part.name], hidden=_HIDDEN, slowing=max(0.0, slower))
    # No forward need take longer than its rows one by one
    measured = tuple((n, min(found["rows", n], n * one)) for n in sorted((*_ROWS, *_MORE_ROWS)) if ("rows", n) in found)
    law_1, law_16 = (found["law", n] for n in _LAW_ROWS)
    each = max(0.0, law_16 - law_1) / (_LAW_ROWS[1] - _LAW_ROWS[0])
    law_0 = max(0.0, law_1 - each)
    return Measurement(StepCosts(measured, request, costs, sampled=law_0, sampled_row=each), bench.steady)


def a_few_forwards(target: ModelRunner, cache: Slots) -> dict[int, float]:
    """Seconds of a forward by its rows, of a few numbers of rows, quickly: to see whether known figures still hold."""
    forwards = _Forwards(target, cache, 1)
    try:
        forwards.seconds(1)
        return {n: forwards.seconds(n) for n in _CHECKED_ROWS}
    finally:
        forwards.release()


def _begin(in_turn: _Drafts, ahead: _Drafts, part: Drafter) -> None:
    """Have the part begin to draft for what may come of a draft."""
    in_turn.release()  # there may be one slot
    ahead.run(1, _ends(part)[1][0])


def _ends(part: Drafter) -> tuple[tuple[int, int], tuple[int, int]]:
    """(nodes, depth) of a short and of a long draft: of trees the smallest, and the deepest of up to `_NODES` nodes."""
    sizes = part.sizes or ((_SHORT, _SHORT), (_LONG, _LONG))
    some = [size for size in sizes if size[0] <= _NODES] or sizes[:1]
    return sizes[0], max(some, key=lambda size: (size[1], size[0]))


def _draft_cost(part: Drafter, found: dict[tuple[str, int | str], float], requests: int, step: float) -> DraftCost:
    name, ((_, low), (_, high)) = part.name, _ends(part)
    short, long = found.get((name, _SHORT)), found.get((name, _LONG))
    if short is None or long is None:
        return DraftCost(0.0, _GUESS * step)
    token = max(0.0, long - short) / max(1, high - low)
    read = max(0.0, found.get((name, "read"), short) - short) / _Drafts.UNREAD
    drawn = max(0.0, found.get((name, "drawn"), long) - long) / max(1, high)
    several = found.get((name, "several"), long)
    growth = max(0.0, several / long - 1) / max(1, requests - 1)
    return DraftCost(max(0.0, short - token * low), token, read, growth, drawn)


def _law(logits: Tensor) -> None:
    """What a sampled row of a step costs more than a greedy one: its law on the host, and the rule."""
    state = LawState(Sampling(temperature=1.0), (), logits.shape[1], frozenset())
    p = law(logits, [LawRow(state, ())] * len(logits)).cpu().numpy()
    verify(Draft.chain([0] * (len(logits) - 1)), p, None, Noise(0), 0, "exact")


_Action = Callable[[], None]


def _nothing() -> None:
    return


class _Bench:
    """Named actions, timed in turn."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._actions: dict[tuple[str, int | str], tuple[_Action, _Action, _Action]] = {}
        self.times: dict[tuple[str, int | str], list[float]] = {}

    def add(
        self, name: tuple[str, int | str], action: _Action, *, before: _Action = _nothing, after: _Action = _nothing
    ) -> None:
        """`before` is run each time before the clock is started, `after` when it has been stopped."""
        self._actions[name] = before, action, after

    def run(self, seconds: float) -> None:
        """Round after round until the time is spent; each action at least twice.

        An action that has had its share rests, so that forwards of many rows of a big model do not take it all.
        """
        start = time.perf_counter()
        for _ in range(_MOST):
            for name in list(self._actions):
                times = self.times.setdefault(name, [])
                enough = len(times) >= _TWICE
                if enough and (time.perf_counter() - start > seconds or sum(times) > seconds / 8):
                    continue
                self._time(name)

    def _time(self, name: tuple[str, int | str]) -> None:
        before, action, after = self._actions[name]
        try:
            before()
            start = time.perf_counter()
            action()
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            seconds = time.perf_counter() - start
            after()
        except Exception:  # a drafter's, whatever it is: its cost is then guessed, and the engine will find it out
            if name[0] in ("rows", "requests", "law"):
                raise
            del self._actions[name], self.times[name]
            return
        self.times[name].append(seconds)

    @property
    def steady(self) -> bool:
        forwards = [sorted(times) for (kind, _), times in self.times.items() if kind == "rows"]
        return all(times[1] <= _STEADY * times[0] for times in forwards)

    @property
    def found(self) -> dict[tuple[str, int | str], float]:
        return {name: _quantile(times, _LOW) for name, times in self.times.items()}


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


class _Forwards:
    """Target forwards on slots that hold a short text meanwhile."""

    def __init__(self, target: ModelRunner, cache: Slots, requests: int) -> None:
        self._target = target
        self._prefix = min(_PREFIX, target.max_length // 4)
        self._cache = cache
        self.slots = [cache.acquire() for _ in range(requests)]
        text = made_up(self._prefix, target.vocab_size)
        for slot in self.slots:
            target.forward([Segment(slot, tuple(text))], cache)
            cache.keep(slot, self._prefix)

    def run(self, requests: int, rows: int) -> None:
        room = self._target.max_length - self._prefix
        draft = Draft.chain(made_up(min(rows, room) - 1, self._target.vocab_size))
        segments = [Segment(slot, (1,), draft, judged=len(draft) + 1) for slot in self.slots[:requests]]
        logits = self._target.forward(segments, self._cache).logits
        logits.argmax(-1).cpu()  # as a greedy step looks at them, and so that a GPU has finished

    @contextmanager
    def holding(self, lengths: Sequence[int]) -> Iterator[None]:
        """Meanwhile the first slots count as holding so many tokens, for drafters that draft on the target's cache."""
        for slot, length in zip(self.slots, lengths, strict=False):
            self._cache.lengths[slot] = min(length, self._cache.capacity - 1)
        try:
            yield
        finally:
            for slot in self.slots:
                self._cache.lengths[slot] = self._prefix

    def seconds(self, rows: int) -> float:
        start = time.perf_counter()
        self.run(1, rows)
        return time.perf_counter() - start

    def release(self) -> None:
        for slot in self.slots:
            self._cache.release(slot)


class _Drafts:
    """Drafts of one drafter for requests that do not exist. Numbers below zero are nobody else's."""

    UNREAD = 40

    def __init__(self, drafter: Drafter, target: ModelRunner, index: int, forwards: _Forwards) -> None:
        self._drafter = drafter
        self._forwards = forwards
        self._target = target
        self._vocab_size = target.vocab_size
        self._first = -1 - _REQUESTS * index
        self._lengths: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    def run(self, requests: int, depth: int, *, drawn: bool = False) -> None:
        """The next round of each, two tokens further on in its text, as after an accepted guess."""
        numbers = range(self._first, self._first - requests, -1)
        contexts = [self._context(number, depth, drawn=drawn) for number in numbers]
        with self._forwards.holding([len(context.tokens) - 1 for context in contexts]):
            self._drafter.propose(contexts)

    def read(self) -> None:
        """The first round of a request: its whole text is new."""
        self.release()
        self._lengths[self._first] = self.UNREAD
        context = self._context(self._first, _SHORT)
        with self._forwards.holding([len(context.tokens) - 1]):
            self._drafter.propose([context])
        self.release()

    def _context(self, number: int, depth: int, *, drawn: bool = False) -> Row:
        length = self._lengths[number] = self._lengths.get(number, _PREFIX) + 2
        tokens = made_up(length, self._vocab_size)
        sampling = Sampling(temperature=1.0 if drawn else 0.0)
        state = LawState(sampling, (), self._vocab_size, frozenset())
        slot = self._forwards.slots[self._first - number]
        if self._drafter.taps:
            self._show(number, tokens)
        return Row(number, tuple(tokens), state, Noise(0), slot=slot, budget=Budget(depth))

    def _show(self, number: int, tokens: Sequence[int]) -> None:
        """What a step would have shown of the text since the last round, with made-up hidden states."""
        new = tuple(tokens[self._shown.get(number, 0) : -1])
        self._shown[number] = len(tokens) - 1
        width = self._target.config.get_text_config().hidden_size
        states = torch.ones(len(new), width, dtype=self._target.dtype, device=self._target.device)
        step = Step(
            number, 0, len(tokens), Draft(), (), (), None, len(new), 1, Seconds(), None, Speculation(True, "measured")
        )
        start = len(tokens) - 1 - len(new)
        self._drafter.observe(Observation(step, new, start, dict.fromkeys(self._drafter.taps, states)))

    def release(self) -> None:
        """Let all requests go; the next round begins new ones."""
        for number in self._lengths:
            with suppress(Exception):  # a drafter's, as above
                self._drafter.release(number)
        self._lengths.clear()
        self._shown.clear()


def made_up(length: int, vocab_size: int) -> list[int]:
    """A text that repeats itself, so that every kind of drafter has something to say."""
    return [(i % _PERIOD) % vocab_size for i in range(length)]
