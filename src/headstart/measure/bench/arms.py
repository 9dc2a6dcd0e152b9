"""Arms: the same prompts through several ways of decoding, in turn, so that a changing machine is fair to all.

A step's event is counted and let go at once: kept to the end of a run, as `engine.in_turn` keeps the steps, events
would be part of the memory that is measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headstart.engine.in_turn import Round, first_difference, rotated, timed
from headstart.measure.bench.machine import Meter
from headstart.measure.bench.options import BenchSettings
from headstart.measure.bench.result import PLAIN, RunRecord, SourceRecord, Trial, added
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

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Meanwhile the engine drafts K."""
        if self.k is None:
            yield
            return
        from headstart.pacing import FixedPacing

        with self.engine.paced(FixedPacing(self.k)):
            yield


@dataclass(frozen=True, slots=True)
class Workload:
    """What to run: units of prompts (one, or a batch that runs at once), and how.

    compared: whether texts of arms must be the same as the plain arm's (greedy, or rule "coupled" with a seed).
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
    with arm.paced():
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
