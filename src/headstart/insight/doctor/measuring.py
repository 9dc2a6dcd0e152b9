"""Candidates measured on the user's prompts: costs first, then rounds, plain decoding beside them, within a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from statistics import median

from headstart.drafters import Drafter
from headstart.engine.engine import Engine
from headstart.errors import HeadstartError
from headstart.insight.doctor.candidates import Candidate, Compatibility
from headstart.insight.doctor.memory import Memory
from headstart.insight.measure import Round, Run, in_turn, run_once
from headstart.pacing import FixedPacing
from headstart.pacing.measuring import measure, measured_batch
from headstart.prompt_sets import PromptItem, by_category
from headstart.theory import StepCosts
from headstart.types import Sampling, Step

LONGEST = 8
"""Tokens of the chains that drafters with weights are measured with; shorter ones follow from these."""
LONGEST_COPY = 16
"""The same of drafters that copy text."""
TREES = (6, 16, 32)
"""About how many nodes the trees have that are measured."""
SHORT = 32
"""New tokens per prompt that are generated where there is no time for as many as asked."""
_WARM = 8
_QUICK = 0.001
_COSTS = 0.3, 0.8  # of a candidate's time, and seconds at most
_PROMPTS = 4
_PASSES = 4
_APART = "doctor's warm-up"


@dataclass(frozen=True, slots=True)
class Setting:
    """What was drafted at a time: k nodes; rounds by prompt. tree: shorter drafts do not follow from it."""

    k: int
    tree: bool
    rounds: tuple[tuple[Round, ...], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of a candidate. plain: rounds of plain decoding between its own, by prompt."""

    candidate: Candidate
    costs: StepCosts
    plain: tuple[tuple[Round, ...], ...]
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """All that is known of a candidate; memory: None for one without weights. result: None if time ran out first."""

    candidate: Candidate
    compatibility: Compatibility | None
    memory: Memory | None
    result: Sample | HeadstartError | None


def spread(items: Sequence[PromptItem]) -> list[PromptItem]:
    """The prompts, one of each category in turn, so that the first few are of many kinds."""
    turns = zip_longest(*by_category(items).values())
    return [item for item in chain.from_iterable(turns) if item is not None]


def affordable(seconds: float, token: float, asked: int) -> int:
    """New tokens per prompt, if a few prompts are to be completed twice in the time. token: seconds of a plain step."""
    return min(asked, max(SHORT, int(seconds / (2 * _PROMPTS * token))))


def seconds_of_token(plain: Engine, item: PromptItem, sampling: Sampling) -> float:
    """Of a plain step, after a first run that warms everything up."""
    short = replace(sampling, max_tokens=_WARM, min_tokens=0)
    run_once("plain", plain, item.prompt, short)
    rounds = run_once("plain", plain, item.prompt, short).rounds
    return median(one.seconds for one in rounds) if rounds else _QUICK


def measure_candidate(
    candidate: Candidate,
    engine: Engine,
    plain: Engine,
    items: Sequence[PromptItem],
    sampling: Sampling,
    seconds: float,
    *,
    budget: int | None = None,
) -> Sample:
    """Costs and rounds of a candidate, in about this time; at least one prompt for each setting.

    engine: with its drafters. plain: the target alone. budget: of each member of a list.

    Raises:
        HeadstartError: it gave up.
    """
    begin = time.monotonic()
    drafter = engine.drafter
    share, most = _COSTS
    batch = measured_batch(len(engine.cache.lengths))
    costs = measure(engine.target, engine.cache, drafter.parts, batch=batch, seconds=min(most, share * seconds)).costs
    warm_up(engine, items[0], sampling)
    wanted = _settings(drafter, budget)
    settings: list[Setting] = []
    between: list[tuple[Round, ...]] = []
    for number, (k, tree) in enumerate(wanted, start=1):
        if settings and time.monotonic() > begin + seconds:
            break
        engines = {"plain": plain, "drafted": engine}
        with engine.paced(FixedPacing(k)):
            found = by_prompt(engines, items, sampling, begin + seconds * number / len(wanted))
        between += found["plain"]
        settings.append(Setting(k, tree, tuple(found["drafted"])))
    return Sample(candidate, costs, tuple(between), tuple(settings))


def warm_up(engine: Engine, item: PromptItem, sampling: Sampling) -> None:
    """A few tokens nobody counts, and that no later request may copy from."""
    run_once("warm-up", engine, item.prompt, replace(sampling, max_tokens=_WARM, min_tokens=0, cache_salt=_APART))


def raise_failure(run: Run) -> None:
    """Raise the drafter's failure, if it had one: what ran on without it is no measurement of it."""
    state = run.output.stats.speculation
    if not state.on and state.error is not None:
        raise state.error


def by_prompt(
    engines: Mapping[str, Engine], items: Sequence[PromptItem], sampling: Sampling, until: float
) -> dict[str, list[tuple[Round, ...]]]:
    """Rounds of each engine by prompt, every prompt on all of them in turn; again and again while there is time, where
    no pass can copy from the one before. At least one prompt is run. until: of `time.monotonic`.

    Raises:
        HeadstartError: a drafter gave up.
    """
    found: dict[str, list[tuple[Round, ...]]] = {name: [] for name in engines}
    for number in range(_PASSES):
        apart = replace(sampling, cache_salt=f"{sampling.cache_salt}doctor's pass {number}")
        for index, item in enumerate(items):
            for run in in_turn(engines, item.prompt, apart, turn=number + index):
                raise_failure(run)
                mine = found[run.name]
                mine[index : index + 1] = [(*(mine[index] if index < len(mine) else ()), *run.rounds)]
            if time.monotonic() > until:
                return found
    return found


def both_ways(
    engines: Mapping[str, Engine], items: Sequence[PromptItem], sampling: Sampling, until: float
) -> tuple[dict[str, list[tuple[Round, ...]]], dict[str, list[Step]]]:
    """As `by_prompt`, one pass at most; and the steps with a draft, by engine.

    Raises:
        HeadstartError: a drafter gave up.
    """
    rounds: dict[str, list[tuple[Round, ...]]] = {name: [] for name in engines}
    steps: dict[str, list[Step]] = {name: [] for name in engines}
    for index, item in enumerate(items):
        for run in in_turn(engines, item.prompt, sampling, turn=index):
            raise_failure(run)
            rounds[run.name].append(run.rounds)
            steps[run.name] += [step for _, step in run.arrivals[1:] if len(step.draft)]
        if time.monotonic() > until:
            break
    return rounds, steps


def _settings(drafter: Drafter, budget: int | None) -> list[tuple[int, bool]]:
    """(nodes, whether they are trees) to be measured. Of chains the longest that may pay: shorter ones follow."""
    if budget is not None:
        return [(budget, any(part.sizes for part in drafter.parts))]
    if drafter.sizes:
        sizes = [nodes for nodes, _ in drafter.sizes]
        return [(k, True) for k in sorted({min(sizes, key=lambda nodes: abs(nodes - near)) for near in TREES})]
    return [(max(1, min(LONGEST_COPY if drafter.copies else LONGEST, drafter.limit)), False)]
