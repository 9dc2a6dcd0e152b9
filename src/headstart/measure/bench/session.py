"""A bench from beginning to end: check the prompts, measure costs, warm up, run the arms, keep what was finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.base.prompt_sets import PromptItem, by_category
from headstart.measure.bench.arms import Arm, Workload, in_turn, warm_up
from headstart.measure.bench.machine import Meter, least, measure_costs, memory_of
from headstart.measure.bench.options import BenchSettings
from headstart.measure.bench.result import FAST, PLAIN, BenchResult, PromptRecord
from headstart.measure.bench.sweep import arm_of
from headstart.measure.conversations import every_turn
from headstart.measure.provenance import Provenance

if TYPE_CHECKING:
    from headstart.engine.engine import Engine

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
        compared = sampling.greedy or (self.engine.rule == "coupled" and sampling.seed is not None)
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
        plain, fast = Arm(PLAIN, self.engine.plain()), Arm(FAST, self.engine)
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
        arms = [plain, *(Arm(arm_of(k), self.engine, k) for k in self.settings.ks)]
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
