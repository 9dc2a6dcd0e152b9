"""Candidates measured on the user's prompts: costs first, then rounds, plain decoding beside them, within a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from secrets import token_hex
from statistics import median

from headstart.base.errors import HeadstartError
from headstart.base.prompt_sets import PromptItem, by_category
from headstart.drafters import Drafter, capabilities
from headstart.engine.engine import Engine
from headstart.engine.in_turn import Round, Run, Text, in_turn, run_once
from headstart.loading.pacing import adaptive
from headstart.measure.doctor.candidates import Candidate, Compatibility
from headstart.measure.doctor.memory import Memory
from headstart.pacing import FixedPacing
from headstart.pacing.measuring import measure, measured_batch
from headstart.theory import StepCosts
from headstart.types import Sampling, Step

LONGEST = 8
"""Tokens of the chains that drafters with weights are measured with; shorter ones follow from these."""
LONGEST_COPY = 16
"""The same of drafters that copy text."""
TREES = (6, 16, 32)
"""About how many nodes the trees have that are measured."""
SHORT = 32
"""New tokens per prompt that are generated where there is no time for as many as the user named."""
_WARM = 8
_QUICK = 0.001
_COSTS = 0.3, 0.8  # of a candidate's time, and seconds at most
_PROMPTS = 4
_PASSES = 4
_APART = "doctor's warm-up"
_DEFAULT = 0.75
"""The share of a candidate's time that goes to the default pacing, by which it is judged."""
_SELDOM = 3
"""One of so many prompts is answered by the target alone, too: often enough to know what its steps take meanwhile. What
a drafter makes of a prompt differs from prompt to prompt by much more, so that its time goes to many of them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What was drafted at a time, and what that made of each prompt, by the prompt's place.

    k: nodes of every draft; None for the default pacing, which chooses for each step. tree: shorter drafts do not
    follow from these.
    """

    k: int | None
    tree: bool
    texts: Mapping[int, Text]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of a candidate. settings: the default pacing first; there is always that. plain: the texts of
    the target alone between those of the default pacing, to some of the prompts."""

    candidate: Candidate
    costs: StepCosts
    settings: tuple[Setting, ...]
    plain: Mapping[int, Text]

    @property
    def drafted(self) -> Iterator[Round]:
        """The rounds of all settings."""
        return (one for setting in self.settings for text in setting.texts.values() for one in text.rounds)


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
    """New tokens per prompt, if a few prompts are to be completed in the time. Long answers are worth more than many:
    drafters that copy find more towards their ends. token: seconds of a step without a draft."""
    return min(asked, max(SHORT, int(seconds / (_PROMPTS * token))))


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
    asked: int | None = None,
) -> Sample:
    """Costs and rounds of a candidate, in about this time; at least one prompt for each setting.

    engine: with its drafters. plain: the target alone. asked: see `by_prompt`.

    Raises:
        HeadstartError: it gave up.
    """
    begin = time.monotonic()
    drafter = engine.drafter
    share, most = _COSTS
    batch = measured_batch(len(engine.cache.lengths))
    costs = measure(
        engine.target, engine.cache, capabilities.parts(drafter), batch=batch, seconds=min(most, share * seconds)
    ).costs
    warm_up(engine, items[0], sampling)
    fixed = _settings(drafter)
    settings: list[Setting] = []
    alone: Mapping[int, Text] = {}
    for number, (k, tree) in enumerate([(None, True), *fixed]):
        if settings and time.monotonic() > begin + seconds:
            break
        until = seconds if not fixed else _DEFAULT * seconds + (1 - _DEFAULT) * seconds * number / len(fixed)
        with engine.paced(adaptive(drafter, costs) if k is None else FixedPacing(k)):
            engines = {"drafted": engine} if settings else {"plain": plain, "drafted": engine}
            found, failed = by_prompt(engines, items, sampling, begin + until, asked=asked, seldom={"plain": _SELDOM})
        for error in failed.values():
            raise error
        alone = alone or found["plain"]
        settings.append(Setting(k, tree, found["drafted"]))
    return Sample(candidate, costs, tuple(settings), alone)


def warm_up(engine: Engine, item: PromptItem, sampling: Sampling) -> None:
    """Write a few tokens that are not counted and that no later request may copy from.

    Raises:
        HeadstartError: the drafter gave up.
    """
    short = replace(sampling, max_tokens=_WARM, min_tokens=0, cache_salt=_APART)
    if (error := failure(run_once("warm-up", engine, item.prompt, short))) is not None:
        raise error


def failure(run: Run) -> HeadstartError | None:
    """The drafter's failure, if it had one: what ran on without it is no measurement of it."""
    state = run.output.stats.speculation
    return None if state.on else state.error


def by_prompt(
    engines: Mapping[str, Engine],
    items: Sequence[PromptItem],
    sampling: Sampling,
    until: float,
    *,
    asked: int | None = None,
    seldom: Mapping[str, int] | None = None,
) -> tuple[dict[str, dict[int, Text]], dict[str, HeadstartError]]:
    """What each engine makes of each prompt, every prompt on all of them in turn; again and again while there is time.
    No run finds anything in a cache that an earlier one has read or written. At least one prompt is run.

    until: of `time.monotonic`. seldom: engines that run on the first of so many prompts only. asked: new tokens of an
    answer, where `sampling` has fewer to save time. The seconds to the first token of an answer that was cut short then
    count by the share that was written, as they would beside the whole answer.

    Returns: texts by engine and the prompt's place; and the failures of those whose drafter gave up and which therefore
    ran no further.
    """
    running = dict(engines)
    found: dict[str, dict[int, Text]] = {name: {} for name in engines}
    failed: dict[str, HeadstartError] = {}
    for number in range(_PASSES):
        apart = replace(sampling, cache_salt=f"{sampling.cache_salt}doctor's pass {token_hex(8)}")
        for index, item in enumerate(items):
            due = {name: engine for name, engine in running.items() if index % (seldom or {}).get(name, 1) == 0}
            for run in in_turn(due, item.prompt, apart, turn=number + index):
                if (error := failure(run)) is not None:
                    failed[run.name] = error
                    continue
                mine = found[run.name]
                text = Text(run.reading * _written(run, sampling, asked), run.rounds)
                mine[index] = mine.get(index, Text()) + text
            running = {name: engine for name, engine in running.items() if name not in failed}
            if time.monotonic() > until:
                return found, failed
    return found, failed


def _written(run: Run, sampling: Sampling, asked: int | None) -> float:
    """The share of an answer that a run wrote: less than all where the limit on tokens was there to save time."""
    cut = asked is not None and asked > sampling.max_tokens and run.output.finish_reason == "length"
    return len(run.output.tokens) / asked if cut and asked else 1.0


def both_ways(
    engines: Mapping[str, Engine], items: Sequence[PromptItem], sampling: Sampling, until: float
) -> tuple[dict[str, list[Text]], dict[str, list[Step]]]:
    """The rounds by engine and prompt, one pass at most and without the time to the first token; and the steps with a
    draft, by engine.

    Raises:
        HeadstartError: a drafter gave up.
    """
    texts: dict[str, list[Text]] = {name: [] for name in engines}
    steps: dict[str, list[Step]] = {name: [] for name in engines}
    for index, item in enumerate(items):
        for run in in_turn(engines, item.prompt, sampling, turn=index):
            if (error := failure(run)) is not None:
                raise error
            texts[run.name].append(Text(rounds=run.rounds))
            steps[run.name] += [step for _, step in run.arrivals[1:] if len(step.draft)]
        if time.monotonic() > until:
            break
    return texts, steps


def _settings(drafter: Drafter) -> list[tuple[int, bool]]:
    """(nodes, whether they are trees) that are measured beside the default pacing: none for a list, in which each
    drafter has lengths of its own. Of chains the longest that may pay, since shorter ones follow."""
    if len(capabilities.parts(drafter)) > 1:
        return []
    if sizes := [nodes for nodes, _ in capabilities.sizes(drafter)]:
        return [(k, True) for k in sorted({min(sizes, key=lambda nodes: abs(nodes - near)) for near in TREES})]
    return [
        (max(1, min(LONGEST_COPY if capabilities.copies(drafter) else LONGEST, capabilities.limit(drafter))), False)
    ]
