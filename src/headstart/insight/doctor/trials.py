"""Candidates tried one after the other on the same target and prompts, each in its share of the time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from headstart.engine.engine import Engine
from headstart.errors import HeadstartError, NotEnoughMemory
from headstart.insight.doctor.candidates import Candidate
from headstart.insight.doctor.checking import ratio
from headstart.insight.doctor.clock import Clock
from headstart.insight.doctor.measuring import LONGEST, Inspected, Sample, by_prompt, measure_candidate, warm_up
from headstart.insight.doctor.memory import Memory
from headstart.insight.doctor.prediction import Timing, fit, predict
from headstart.insight.doctor.question import Question
from headstart.insight.doctor.setup import inspect
from headstart.insight.doctor.verdict import Checked, Ranked, preferred, promising
from headstart.loading.load import Target
from headstart.pacing import FixedPacing, Pacing
from headstart.prompt_sets import PromptItem
from headstart.types import Sampling

LISTS = 2
"""Lists of a copier and a promising drafter that are tried beside the candidates."""
AHEAD = 0.08
"""The share of the time in which drafting ahead is tried against drafting in turn."""
LEAST = 0.5
"""Seconds that a trial has at least."""


class Trials:
    """What was tried so far.

    inspected: every candidate, in order. ranked: those that drafted, with what is predicted for them. timings: their
    steps' costs. models: of a candidate with a draft model, the place of that drafter in its list and its name.
    """

    def __init__(
        self,
        question: Question,
        clock: Clock,
        target: Target,
        memory: Memory,
        plain: Engine,
        items: Sequence[PromptItem],
        sampling: Sampling,
    ) -> None:
        self.question, self.clock = question, clock
        self.plain, self.items, self.sampling = plain, items, sampling
        self._target, self._memory = target, memory
        self.inspected: list[Inspected] = []
        self.ranked: list[Ranked] = []
        self.timings: dict[Candidate, Timing] = {}
        self.models: dict[Candidate, tuple[int, str]] = {}

    def engine(
        self,
        candidate: Candidate,
        pacing: str | Pacing = "fixed",
        *,
        budget: int | None = None,
        always_ahead: bool = False,
    ) -> Engine:
        """A fresh engine with these drafters; see `Setup.engine`."""
        return self.question.setup.engine(self._target, candidate, pacing, budget=budget, always_ahead=always_ahead)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def measure_all(self, wanted: Sequence[Candidate]) -> None:
        """All of these, then lists of a copier and the most promising of them."""
        looks = [self._look(candidate) for candidate in wanted]
        usable = sum(one.result is None for one in looks)
        for one in looks:
            usable -= one.result is None
            self.inspected.append(self._measured(one, later=usable + LISTS))
        for left, (candidate, budget) in zip((1, 0), promising(self.ranked)[:LISTS], strict=False):
            if all(candidate.drafters != one.candidate.drafters for one in self.inspected):
                self.inspected.append(self._measured(self._look(candidate), later=left, budget=budget))

    def _look(self, candidate: Candidate) -> Inspected:
        try:
            return Inspected(candidate, *inspect(self._target, self._memory, candidate), None)
        except HeadstartError as error:
            return Inspected(candidate, None, None, error)

    def _measured(self, one: Inspected, *, later: int, budget: int | None = None) -> Inspected:
        """With what its share of the time showed; as it is, if time ran out before and another was measured.

        later: candidates that are still to be measured.
        """
        left = self.clock.left - AHEAD * self.question.seconds
        # An answer about one is better than none about all
        if one.result is not None or (left <= 0 and self.ranked):
            return one
        self.clock.report(f"trying {one.candidate.name}")
        # With a check, each candidate's follows at once, as long as the machine is what it was; and one at the end
        share = max(LEAST, left / (later + self.clock.passes)) / self.clock.passes
        try:
            sample = self._sample(one.candidate, share, budget)
        except HeadstartError as error:
            return replace(one, result=error)
        except torch.OutOfMemoryError as error:
            hint = "lower --max-length or --max-batch-size"
            return replace(one, result=NotEnoughMemory(str(error).splitlines()[0], hint=hint))
        return replace(one, result=sample)

    def _sample(self, candidate: Candidate, share: float, budget: int | None) -> Sample:
        """The measurement of a candidate in so many seconds; it is ranked, and checked where that was asked for."""
        begin = time.monotonic()
        if budget is None and len(candidate.drafters) > 1:
            budget = LONGEST  # a list that the user named has no measured members to take a length from
        engine = self.engine(candidate, budget=budget)
        rest = max(LEAST, share - (time.monotonic() - begin))
        items = self.items[0::2] if self._splits else self.items
        sample = measure_candidate(candidate, engine, self.plain, items, self.sampling, rest, budget=budget)
        ranked = self._rank(sample)
        models = [(place, part.name) for place, part in enumerate(engine.drafter.parts) if part.can_foresee]
        if models:
            self.models[candidate] = models[0]
        if ranked is not None:
            self.ranked.append(self._checked(ranked, share) if self.question.check else ranked)
        return sample

    def _rank(self, sample: Sample) -> Ranked | None:
        """What is predicted for a candidate; None where it never drafted."""
        flat = [one for setting in sample.settings for prompt in setting.rounds for one in prompt]
        plain = [one for prompt in sample.plain for one in prompt]
        if not flat or not plain:
            return None
        timing = self.timings[sample.candidate] = fit(sample.costs, plain, flat)
        predictions = [
            predict(timing, setting.rounds, k, tree=setting.tree)
            for setting in sample.settings
            for k in ([setting.k] if setting.tree else range(1, setting.k + 1))
        ]
        return Ranked(sample.candidate, sample.settings[0].tree, tuple(predictions))

    # -- checking -----------------------------------------------------------------------------------------------------

    @property
    def _splits(self) -> bool:
        """Whether the check has prompts of its own: every other one."""
        return self.question.check and len(self.items) > 1

    def check_default_pacing(self) -> None:
        """What the recommended drafter brings as `load` runs it. Its check with fixed drafts stands."""
        first = preferred(self.ranked)
        if first is None or first.checked is None:
            return
        again = self._checked(first, max(LEAST, self.clock.left), adaptive=True).checked
        if again is not None:
            found = replace(first, checked=replace(first.checked, adaptive=again.adaptive))
            self.ranked[self.ranked.index(first)] = found

    def _checked(self, one: Ranked, seconds: float, *, adaptive: bool = False) -> Ranked:
        """With its speedup over plain decoding as measured, at the predicted length; all engines but the plain one are
        fresh. adaptive: measure it with the default pacing too."""
        self.clock.report(f"checking {one.candidate.name}")
        items = self.items[1::2] if self._splits else self.items
        k = one.best.k
        budget = k if len(one.candidate.drafters) > 1 else None
        engines = {"plain": self.plain, "fixed": self.engine(one.candidate, FixedPacing(k), budget=budget)}
        if adaptive:
            engines["adaptive"] = self.engine(one.candidate, "adaptive")
        until = time.monotonic() + seconds
        for name, engine in engines.items():
            if name != "plain":
                warm_up(engine, items[0], self.sampling)
        rounds = by_prompt(engines, items, self.sampling, until)
        checked = Checked(
            speedup=ratio(rounds["plain"], rounds["fixed"]),
            given=predict(self.timings[one.candidate], rounds["fixed"], k, tree=one.tree).speedup.value,
            adaptive=ratio(rounds["plain"], rounds["adaptive"]) if adaptive else None,
            prompts=len(rounds["plain"]),
            same=not self._splits,
        )
        return replace(one, checked=checked)
