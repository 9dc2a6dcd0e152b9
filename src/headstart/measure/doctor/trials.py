"""Candidates tried one after the other on the same target and prompts, each in its share of the time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import torch

from headstart.base.errors import HeadstartError, NotEnoughMemory
from headstart.base.prompt_sets import PromptItem
from headstart.drafters import Foresees, capabilities
from headstart.engine.engine import Engine
from headstart.engine.in_turn import Text
from headstart.loading.load import Target
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.costs import Timing, fit
from headstart.measure.doctor.measuring import Inspected, Sample, affordable, by_prompt, measure_candidate, warm_up
from headstart.measure.doctor.memory import Memory, inspect
from headstart.measure.doctor.prediction import predict, ratio
from headstart.measure.doctor.question import Clock, Question
from headstart.measure.doctor.verdict import FINALISTS, Measured, Ranked, promising
from headstart.types import Sampling

LISTS = 2
"""Lists of a copier and a promising drafter that are tried beside the candidates."""
AHEAD = 0.08
"""The share of the time in which drafting ahead is tried against drafting in turn."""
LEAST = 0.5
"""Seconds that a trial has at least."""


@dataclass
class Trials:
    """What was tried so far.

    memory: the target's. plain: the target alone. inspected: every candidate, in order. ranked: those that drafted,
    with what is predicted for them. timings: their steps' costs. models: of a candidate with a draft model, the place
    of that drafter in its list and its name.
    """

    question: Question
    clock: Clock
    target: Target
    memory: Memory
    plain: Engine
    items: Sequence[PromptItem]
    sampling: Sampling
    inspected: list[Inspected] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)
    timings: dict[Candidate, Timing] = field(default_factory=dict)
    models: dict[Candidate, tuple[int, str]] = field(default_factory=dict)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def measure_all(self, wanted: Sequence[Candidate]) -> None:
        """All of these, then lists of a copier and the most promising of them."""
        looks = [self._look(candidate) for candidate in wanted]
        usable = sum(one.result is None for one in looks)
        for one in looks:
            usable -= one.result is None
            self.inspected.append(self._tried(one, later=usable + LISTS))
        for left, candidate in zip((1, 0), promising(self.ranked)[:LISTS], strict=False):
            if all(candidate.drafters != one.candidate.drafters for one in self.inspected):
                self.inspected.append(self._tried(self._look(candidate), later=left))

    def _look(self, candidate: Candidate) -> Inspected:
        try:
            return Inspected(candidate, *inspect(self.target, self.memory, candidate), None)
        except HeadstartError as error:
            return Inspected(candidate, None, None, error)

    def _tried(self, one: Inspected, *, later: int) -> Inspected:
        """With what its share of the time showed; as it is, if time ran out before and another was tried.

        later: candidates that are still to be tried.
        """
        left = self.clock.left - AHEAD * self.question.seconds
        # An answer about one is better than none about all
        if one.result is not None or (left <= 0 and self.ranked):
            return one
        self.clock.report(f"trying {one.candidate.name}")
        try:
            sample = self._sample(one.candidate, max(LEAST, left / (later + 1)))
        except HeadstartError as error:
            return replace(one, result=error)
        except torch.OutOfMemoryError as error:
            hint = "lower --max-model-len or --max-batch-size"
            return replace(one, result=NotEnoughMemory(str(error).splitlines()[0], hint=hint))
        return replace(one, result=sample)

    def _sample(self, candidate: Candidate, share: float) -> Sample:
        """The measurement of a candidate in so many seconds; it is ranked."""
        begin = time.monotonic()
        engine = self.question.setup.engine(self.target, candidate)
        rest = max(LEAST, share - (time.monotonic() - begin))
        asked = self.question.sampling.max_tokens
        sample = measure_candidate(candidate, engine, self.plain, self.items, self.sampling, rest, asked=asked)
        ranked = self._rank(sample)
        parts = capabilities.parts(engine.drafter)
        models = [(place, part.name) for place, part in enumerate(parts) if isinstance(part, Foresees)]
        if models:
            self.models[candidate] = models[0]
        if ranked is not None:
            self.ranked.append(ranked)
        return sample

    def _rank(self, sample: Sample) -> Ranked | None:
        """What is predicted for a candidate; None where it never drafted."""
        plain = [one for text in sample.plain.values() for one in text.rounds]
        drafted = list(sample.drafted)
        if not plain or not drafted:
            return None
        timing = self.timings[sample.candidate] = fit(sample.costs, plain, drafted)
        default, *fixed = sample.settings
        predictions = [
            predict(timing, setting.texts, sample.plain, k, tree=setting.tree)
            for setting in fixed
            if setting.k is not None
            for k in ([setting.k] if setting.tree else range(1, setting.k + 1))
        ]
        expected = predict(timing, default.texts, sample.plain, None)
        return Ranked(sample.candidate, any(setting.tree for setting in fixed), expected, tuple(predictions))

    # -- measuring end to end -----------------------------------------------------------------------------------------

    def measure(self, chosen: Sequence[Ranked]) -> None:
        """Whole answers of these candidates as `load` runs them, in turn with each other and the target alone, on as
        many of the prompts as there is time for; what they make of them is written to `ranked`. One that fails stays as
        it was predicted."""
        seconds = self.question.seconds * max(1.0, len(chosen) / FINALISTS)
        self.clock.extend(seconds)
        names = ", ".join(one.candidate.name for one in chosen)
        self.clock.report(f"measuring {names} end to end (about {seconds:.0f} s more)")
        engines, mine = {"": self.plain}, {}
        for place, one in enumerate(chosen, start=1):  # by place: two directories may end in the same name
            try:
                engine = self.question.setup.engine(self.target, one.candidate, "adaptive")
                warm_up(engine, self.items[0], self.sampling)
            except (HeadstartError, torch.OutOfMemoryError):
                continue
            engines[str(place)], mine[str(place)] = engine, one
        if not mine:
            return
        step = min(timing.plain.plain for timing in self.timings.values())
        asked = self.question.sampling.max_tokens
        tokens = affordable(self.clock.left / len(engines), step, asked)
        sampling = replace(self.sampling, max_tokens=tokens, min_tokens=min(self.sampling.min_tokens, tokens))
        until = time.monotonic() + self.clock.left
        found, failed = by_prompt(engines, self.items, sampling, until, asked=asked)
        for name, one in mine.items():
            if name not in failed:
                measured = replace(one, measured=_measured(list(found[""].values()), list(found[name].values())))
                self.ranked[self.ranked.index(one)] = measured


def _measured(plain: Sequence[Text], drafted: Sequence[Text]) -> Measured:
    rounds = [one for text in drafted for one in text.rounds]
    return Measured(
        speedup=ratio(plain, drafted),
        first_token=median(text.reading for text in drafted),
        first_token_alone=median(text.reading for text in plain),
        tokens_per_forward=fmean(one.tokens for one in rounds) if rounds else 1.0,
        prompts=len(drafted),
    )
