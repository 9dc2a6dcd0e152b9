"""A bench from beginning to end: check the prompts, measure costs, warm up, run the arms, keep what was finished.

Arms are several ways of decoding the same prompts, in turn, so that a changing machine is fair to all. A step's event
is counted and let go at once: kept to the end of a run, as `engine.in_turn` keeps the steps, events would be part of
the memory that is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.base.prompt_sets import PromptItem, by_category
from headstart.engine.in_turn import Round, first_difference, rotated, timed
from headstart.measure.bench.machine import Meter, least, measure_costs, memory_of
from headstart.measure.bench.options import BenchSettings
from headstart.measure.bench.result import FAST, PLAIN, BenchResult, PromptRecord, RunRecord, SourceRecord, Trial, added
from headstart.measure.bench.sweep import arm_of
from headstart.measure.bench.synthetic import SyntheticJudge
from headstart.measure.conversations import every_turn
from headstart.measure.provenance import Provenance
from headstart.types import PARTS, Output, Sampling, Step

if TYPE_CHECKING:
    from headstart.engine.engine import Engine

_DIGITS = 7  # of seconds: finer than the clock is steady, and it keeps the files short


@dataclass(frozen=True, slots=True)
class Arm:
    """A way of decoding: an engine, and the K that it drafts in every step, or None for its own pacing."""

    name: str
    engine: Engine
    k: int | None = None
    acceptance: float | None = None
    """With which each guess is kept, see `SyntheticJudge`; None for the rule."""

    @contextmanager
    def set_up(self) -> Iterator[None]:
        """Meanwhile the engine drafts K, and keeps guesses so."""
        from headstart.pacing import FixedPacing

        with ExitStack() as stack:
            if self.k is not None:
                stack.enter_context(self.engine.paced(FixedPacing(self.k)))
            if self.acceptance is not None:
                acceptance = self.acceptance
                stack.enter_context(self.engine.judged(lambda judge: SyntheticJudge(judge, acceptance)))
            yield


@dataclass(frozen=True, slots=True)
class Workload:
    """What to run: units of prompts (one, or a batch that runs at once), and how.

    compared: whether texts of arms must be the same as the plain arm's (greedy, or with a seed where the
        rule is not "exact").
    """

    prompts: Sequence[Any]
    units: Sequence[Sequence[int]]
    settings: BenchSettings
    compared: bool


def in_turn(arms: Sequence[Arm], workload: Workload, meter: Meter, label: str = "main") -> Iterator[Trial]:
    """Every unit through every arm, `repetitions` times; a unit's trials come next to each other, and who goes first
    changes from unit to unit and repetition to repetition.

    What drafters learn from outputs is kept apart by arm and repetition (`Sampling.cache_salt`): a drafter that
    remembers texts would else be shown the answer, and repetitions would measure its memory.
    """
    for repetition in range(workload.settings.repetitions):
        for number, unit in enumerate(workload.units):
            done = []
            for arm in rotated(arms, number + repetition):
                sampling = replace(workload.settings.sampling, cache_salt=f"bench {label} {arm.name} {repetition}")
                done.append(run_trial(arm, workload, number, unit, sampling, meter))
            texts = {each.arm: outputs for each, outputs in done}
            for each, outputs in done:
                each = replace(each, repetition=repetition)
                yield _with_differences(each, outputs, texts[PLAIN]) if workload.compared and PLAIN in texts else each


def warm_up(arms: Sequence[Arm], workload: Workload, trials: int, on_trial: Callable[[], None]) -> None:
    """Rounds that do not count: the first calls pay for allocations, and pacing learns the machine."""
    for number in range(trials):
        unit = workload.units[number % len(workload.units)]
        for arm in arms:
            sampling = replace(workload.settings.sampling, cache_salt=f"bench warm-up {number}")
            run_trial(arm, workload, number, unit, sampling, Meter())
            on_trial()


def run_trial(
    arm: Arm, workload: Workload, number: int, unit: Sequence[int], sampling: Sampling, meter: Meter
) -> tuple[Trial, list[Output]]:
    """One unit through one arm, at full speed; all that is added is a clock reading and some sums per step.

    Raises as `headstart.engine.in_turn.timed`.
    """
    watches = defaultdict[int, _Watch](_Watch)
    with arm.set_up():
        before = meter.read()
        prompts = [workload.prompts[index] for index in unit]
        outputs, seconds = timed(arm.engine, prompts, sampling, lambda at, step: watches[step.request].see(at, step))
        joules = meter.since(before)
    runs = tuple(
        watches[request].record(index, output, keep_text=workload.settings.keep_texts)
        for index, request, output in zip(unit, sorted(watches), outputs, strict=True)  # in the order of submission
    )
    return Trial(arm.name, number, 0, seconds, runs, joules), outputs


@dataclass
class _Watch:
    """One request's events, added up as they come."""

    rounds: list[Round] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    last: float = 0.0

    def see(self, at: float, step: Step) -> None:
        self.last = at
        if step.tokens:
            self.arrivals.append(at)
            self.rounds.append(Round.of(step))
        for part in PARTS:  # a step's seconds are those of all its requests
            self.parts[part] += getattr(step.seconds, part) / max(1, step.batch)

    def record(self, prompt: int, output: Output, *, keep_text: bool) -> RunRecord:
        stats, state = output.stats, output.stats.speculation
        return RunRecord(
            prompt=prompt,
            seconds=round(self.last, _DIGITS),
            arrivals=tuple(round(at, _DIGITS) for at in self.arrivals),
            counts=tuple(one.tokens for one in self.rounds),
            forwards=stats.target_forwards,
            prefills=stats.prefill_forwards,
            drafted=stats.drafted,
            accepted=stats.accepted,
            tested=stats.drafted_per_position,
            kept=stats.accepted_per_position,
            parts={name: round(seconds, _DIGITS) for name, seconds in self.parts.items()},
            sources=_by_source(self.rounds),
            chains=all(one.chain for one in self.rounds),
            finish_reason=output.finish_reason,
            on=state.on,
            drafter=state.drafter,
            reason=state.reason,
            text=output.text if keep_text else None,
        )


def _by_source(rounds: Sequence[Round]) -> dict[str, SourceRecord]:
    """What each source did in a run."""
    return added(
        # A stop may have cut the accepted path short
        (one.source, SourceRecord(1, one.nodes, one.depth, min(one.accepted, one.tokens)))
        for one in rounds
        if one.nodes
    )


def _with_differences(each: Trial, outputs: Sequence[Output], plain: Sequence[Output]) -> Trial:
    runs = tuple(
        replace(run, differs_at=first_difference(ours.tokens, theirs.tokens))
        for run, ours, theirs in zip(each.runs, outputs, plain, strict=True)
    )
    return replace(each, runs=runs)


SWEEP_UNITS = 2
"""Units of each category that a sweep runs: it shows a shape, and takes an arm for each K."""


@dataclass(slots=True)
class Session:
    """Runs a bench step by step; `result` is what there is so far, also after an interrupt.

    engine: with its drafter; the plain arm runs on the same weights. asked: the options of the loader, to be
    written down. on_trial: called after each trial, with what it was.
    """

    engine: Engine
    items: Sequence[PromptItem]
    settings: BenchSettings
    asked: dict[str, Any] = field(default_factory=dict)
    on_trial: Callable[[str], None] = field(default=lambda _: None)
    meter: Meter = field(default_factory=Meter.of_this_machine)
    _result: BenchResult = field(init=False)
    _workload: Workload = field(init=False)

    def __post_init__(self) -> None:
        """Checks every prompt before anything runs: raises `InvalidPrompt`, naming the one that is wrong."""
        items = [item for group in by_category(self.items).values() for item in group[: self.settings.limit]]
        if not items:
            raise InvalidOption("there is no prompt to measure with", hint="give --prompts FILE")
        several = any(item.chat is not None and item.chat.later for item in items)
        chosen = every_turn(self.engine.plain() if several else self.engine, items, self.settings.sampling)
        prompts = tuple(self._prompt(item) for item in chosen)
        units = tuple(_units(prompts, self.settings.batch_size))
        sampling = self.settings.sampling
        same = sampling.greedy or (self.engine.rule != "exact" and sampling.seed is not None)
        compared = same and self.settings.synthetic_acceptance is None
        self._workload = Workload([item.prompt for item in chosen], units, self.settings, compared)
        self._result = BenchResult(
            provenance=Provenance.now().record(),
            engine=json.loads(json.dumps(self.engine.describe(), default=str)),
            settings={**self.asked, **self.settings.record()},
            prompts=prompts,
            units=units,
            trials=(),
            compared=compared,
            no_energy=self.meter.reason,
            complete=False,
        )

    @property
    def result(self) -> BenchResult:
        """What has been finished, and the memory that it has taken so far."""
        return replace(self._result, memory=memory_of(self.engine))

    @property
    def trials(self) -> int:
        """How many trials there are in all, warm-ups included."""
        main = 2 * len(self._workload.units) * self.settings.repetitions
        sweep = (1 + len(self.settings.ks)) * len(self._swept) * self.settings.repetitions if self.settings.ks else 0
        return 2 * self.settings.warm_up + main + sweep

    def run(self) -> BenchResult:
        """Measure. An interrupt passes through; `result` then holds the trials that were finished."""
        acceptance = self.settings.synthetic_acceptance
        plain, fast = Arm(PLAIN, self.engine.plain()), Arm(FAST, self.engine, acceptance=acceptance)
        costs = measure_costs(self.engine)
        self._result = replace(self._result, costs=costs)
        warm_up((plain, fast), self._workload, self.settings.warm_up, lambda: self.on_trial("warming up"))
        for each in in_turn((plain, fast), self._workload, self.meter):
            self._result = replace(self._result, trials=(*self._result.trials, each))
            self.on_trial(f"repetition {each.repetition + 1} of {self.settings.repetitions}")
        self._result = replace(self._result, costs=least(costs, measure_costs(self.engine)))
        if self.settings.ks:
            self._sweep(plain)
        self._result = replace(self._result, complete=True)
        return self.result

    @property
    def _swept(self) -> list[int]:
        """The first units of each category."""
        groups = _grouped(map(self._result.category, range(len(self._workload.units))))
        return [number for group in groups for number in group[:SWEEP_UNITS]]

    def _sweep(self, plain: Arm) -> None:
        acceptance = self.settings.synthetic_acceptance
        arms = [plain, *(Arm(arm_of(k), self.engine, k, acceptance) for k in self.settings.ks)]
        swept = self._swept
        workload = replace(self._workload, units=[self._workload.units[number] for number in swept])
        for each in in_turn(arms, workload, self.meter, label="sweep"):
            self._result = replace(self._result, sweep=(*self._result.sweep, replace(each, unit=swept[each.unit])))
            self.on_trial("sweep of K")

    def _prompt(self, item: PromptItem) -> PromptRecord:
        try:
            tokens = self.engine.encode(item.prompt)
        except HeadstartError as error:
            error.message = f"prompt {item.name or item.category}: {error.message}"
            raise
        written = item.prompt if isinstance(item.prompt, str) else json.dumps(item.prompt)
        return PromptRecord(
            name=item.name,
            category=item.category,
            tokens=len(tokens),
            digest=hashlib.sha256(written.encode()).hexdigest()[:16],
            text=item.prompt if self.settings.keep_texts else None,
            form=item.form,
        )


def _units(prompts: Sequence[PromptRecord], size: int) -> list[tuple[int, ...]]:
    """Prompts that run together, in order: up to `size` of one category."""
    groups = _grouped(prompt.category for prompt in prompts)
    return [tuple(group[i : i + size]) for group in groups for i in range(0, len(group), size)]


def _grouped(categories: Iterable[str]) -> Iterable[list[int]]:
    """The indices of each category."""
    groups: dict[str, list[int]] = {}
    for index, category in enumerate(categories):
        groups.setdefault(category, []).append(index)
    return groups.values()
