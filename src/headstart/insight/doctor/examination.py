"""The whole examination of a target: candidates, compatibility, memory, costs, acceptance, prediction, check, verdict.

A candidate that cannot be used is reported with its typed reason and the others go on; a target that cannot be loaded
raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median

import torch

from headstart.engine.engine import Engine
from headstart.engine.prompts import templated
from headstart.errors import HeadstartError, InvalidPrompt, NotEnoughMemory
from headstart.insight.conversations import every_turn
from headstart.insight.doctor.ahead import Outlook, hopeless, outlook, put_ahead, ranked_ahead
from headstart.insight.doctor.candidates import Candidate, candidates, scan
from headstart.insight.doctor.checking import ratio
from headstart.insight.doctor.costs import bytes_read
from headstart.insight.doctor.measuring import (
    LONGEST,
    Inspected,
    Sample,
    affordable,
    both_ways,
    by_prompt,
    measure_candidate,
    seconds_of_token,
    spread,
    warm_up,
)
from headstart.insight.doctor.memory import Memory
from headstart.insight.doctor.prediction import Timing, fit, predict
from headstart.insight.doctor.setup import Setup, described, inspect, may_copy
from headstart.insight.doctor.verdict import HOPELESS, Checked, Ranked, Recommendation, decide, preferred, promising
from headstart.insight.provenance import Provenance
from headstart.insight.statistics import quantile
from headstart.loading import advice
from headstart.loading.choice import NOTE
from headstart.model.loading import BUNDLED
from headstart.pacing import FixedPacing, Pacing
from headstart.pacing.measuring import measure, measured_batch
from headstart.prompt_sets import PromptItem, words_of_forms
from headstart.theory import StepCosts
from headstart.types import Sampling

_LISTS = 2
_COSTS = 1.5
_TURNS = 0.1
"""The share of the time in which first turns are answered, so that later ones can be measured."""
_AHEAD = 0.08
"""The share of the time in which drafting ahead is tried against drafting in turn."""
_LEAST = 0.5

Progress = Callable[[str, float], None]
"""Told what is being done, and which share of the work is done."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    setup: Setup
    items: tuple[PromptItem, ...]
    sampling: Sampling
    given: tuple[str, ...] = ()
    """Drafters to look at."""
    scan: Path | None = None
    """A directory with more of them."""
    seconds: float = 60.0
    """The time for everything; with `check` as much again."""
    check: bool = False
    keep: bool = True
    """Whether the answer is kept for `load`."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The answer. tokens: new ones per prompt that were generated. advice: the file that `load` reads, or None."""

    question: Question
    provenance: Provenance
    described: dict[str, object]
    memory: Memory
    costs: StepCosts
    """Of the target: forwards as measured alone, and the rest of a step as its rounds showed it."""
    read: int | None
    """Bytes of weights that a forward reads; None where that depends on the text (mixtures of experts)."""
    tokens: int
    inspected: tuple[Inspected, ...]
    ranked: tuple[Ranked, ...]
    verdict: Recommendation
    seconds: float
    passed_over: dict[str, str] = field(default_factory=dict)
    ahead: Outlook | None = None
    """What drafting ahead would bring for the fastest drafter that could; None where there is none, or no time."""
    advice: Path | None = None
    forms: str = ""
    """How the prompts were sent, in words."""

    @property
    def unsteady(self) -> float | None:
        """How many times as long the slow plain steps took as the quick ones (90th and 10th percentile)."""
        samples = [one.result for one in self.inspected if isinstance(one.result, Sample)]
        seconds = [one.seconds for sample in samples for prompt in sample.plain for one in prompt]
        return quantile(seconds, 0.9) / quantile(seconds, 0.1) if seconds else None


def examine(question: Question, progress: Progress) -> Examination:
    """Answer the question, in about its time.

    Raises:
        HeadstartError: the target cannot be loaded, or a prompt cannot be run.
    """
    return _Examiner(question, progress).run()


class _Examiner:
    """One examination under way."""

    def __init__(self, question: Question, progress: Progress) -> None:
        self._begin = time.monotonic()
        self._provenance = Provenance.now()
        self._question = question
        self._progress = progress
        self._items = spread(question.items)
        self._inspected: list[Inspected] = []
        self._ranked: list[Ranked] = []
        self._timings: dict[Candidate, Timing] = {}
        self._models: dict[Candidate, tuple[int, str]] = {}  # the place and name of the member that can draft ahead

    def run(self) -> Examination:
        question = self._question
        candidates(question.setup.target, question.given)  # what is no drafter is refused before anything is read
        self._tell(f"loading {question.setup.target}")
        target, self._memory = question.setup.open()
        self._target = target
        found, passed_over = ((), {}) if question.scan is None else scan(question.scan, target)
        wanted = candidates(question.setup.target, question.given, found, own_copy=may_copy(target))
        self._plain = question.setup.engine(target)
        self._items = [templated(target.tokenizer, item) for item in self._items]
        self._refuse_bad_prompts()
        self._sampling = question.sampling
        costs = self._target_costs()
        self._ask_later_turns()
        self._measure_all(wanted)
        ahead = self._look_ahead()
        if question.check:
            self._check_default_pacing()
        verdict, ours = decide(self._ranked), target.checkpoint
        quantize = question.setup.target_options.quantize
        if ahead is not None:
            verdict = replace(verdict, reasons=(*verdict.reasons, ahead.sentence))
        if verdict.best is not None:
            self._engine(verdict.best.candidate, "adaptive")  # its costs are then known to the next load
        return Examination(
            question=question,
            provenance=self._provenance,
            described=described(self._plain, self._memory),
            memory=self._memory,
            costs=self._with_overhead(costs),
            read=ours.bytes_read(quantize) or bytes_read(ours.config, ours.weight_bytes, ours.dtype, quantize),
            tokens=self._sampling.max_tokens,
            inspected=tuple(self._inspected),
            ranked=tuple(self._ranked),
            verdict=verdict,
            seconds=time.monotonic() - self._begin,
            passed_over=passed_over,
            ahead=ahead,
            advice=self._keep(verdict) if question.keep else None,
            forms=words_of_forms(item.form for item in self._items),
        )

    # -- costs and rounds ---------------------------------------------------------------------------------------------

    def _target_costs(self) -> StepCosts:
        self._tell("measuring the target")
        plain, question = self._plain, self._question
        seconds = min(_COSTS, question.seconds / 10)
        batch = measured_batch(len(plain.cache.lengths))
        costs = measure(plain.target, plain.cache, (), batch=batch, seconds=seconds).costs
        token = seconds_of_token(plain, self._items[0], question.sampling)
        share = self._left / self._passes / (len(self._question.given) + _LISTS + 3)
        tokens = affordable(share, token, question.sampling.max_tokens)
        self._sampling = replace(
            question.sampling, max_tokens=tokens, min_tokens=min(question.sampling.min_tokens, tokens)
        )
        return costs

    def _with_overhead(self, costs: StepCosts) -> StepCosts:
        """The costs with what steps took outside their forward, as the candidates' rounds showed it."""
        if not self._timings:
            return costs
        further = [each.row_overhead for timing in self._timings.values() for each in timing.sources.values()]
        plain = median(timing.plain.overhead for timing in self._timings.values())
        return replace(costs, overhead=plain, row_overhead=median(further) if further else 0.0)

    def _ask_later_turns(self) -> None:
        """Later turns of conversations are prompts too, as many as can be had in a small share of the time. They come
        last, so that a check finds first and later turns in both of its halves."""
        until = time.monotonic() + _TURNS * self._question.seconds
        later: list[PromptItem] = []
        for item in self._items:
            if item.chat is not None and item.chat.later and time.monotonic() < until:
                self._tell("asking first turns")
                later += every_turn(self._plain, [item], self._sampling)[1:]
        self._items += spread(later)

    def _measure_all(self, wanted: Sequence[Candidate]) -> None:
        looks = [self._look(candidate) for candidate in wanted]
        usable = sum(one.result is None for one in looks)
        for one in looks:
            usable -= one.result is None
            self._inspected.append(self._measured(one, later=usable + _LISTS))
        for left, (candidate, budget) in zip((1, 0), promising(self._ranked)[:_LISTS], strict=False):
            if all(candidate.drafters != one.candidate.drafters for one in self._inspected):
                self._inspected.append(self._measured(self._look(candidate), later=left, budget=budget))

    def _look(self, candidate: Candidate) -> Inspected:
        try:
            return Inspected(candidate, *inspect(self._target, self._memory, candidate), None)
        except HeadstartError as error:
            return Inspected(candidate, None, None, error)

    def _measured(self, one: Inspected, *, later: int, budget: int | None = None) -> Inspected:
        """With what its share of the time showed; as it is, if time ran out before and another was measured."""
        left = self._left - _AHEAD * self._question.seconds
        # An answer about one is better than none about all
        if one.result is not None or (left <= 0 and self._ranked):
            return one
        self._tell(f"trying {one.candidate.name}")
        items = self._items[0::2] if self._splits else self._items
        # With a check, each candidate's follows at once, as long as the machine is what it was; and one at the end
        share = max(_LEAST, left / (later + self._passes)) / self._passes
        try:
            begin = time.monotonic()
            if budget is None and len(one.candidate.drafters) > 1:
                budget = LONGEST  # a list that the user named has no measured members to take a length from
            engine = self._engine(one.candidate, budget=budget)
            rest = max(_LEAST, share - (time.monotonic() - begin))
            sample = measure_candidate(one.candidate, engine, self._plain, items, self._sampling, rest, budget=budget)
            ranked = self._rank(sample)
            models = [(place, part.name) for place, part in enumerate(engine.drafter.parts) if part.can_foresee]
            if models:
                self._models[one.candidate] = models[0]
            if ranked is not None:
                self._ranked.append(self._checked(ranked, share) if self._question.check else ranked)
        except HeadstartError as error:
            return replace(one, result=error)
        except torch.OutOfMemoryError as error:
            hint = "lower --max-length or --max-batch-size"
            return replace(one, result=NotEnoughMemory(str(error).splitlines()[0], hint=hint))
        return replace(one, result=sample)

    def _rank(self, sample: Sample) -> Ranked | None:
        flat = [one for setting in sample.settings for prompt in setting.rounds for one in prompt]
        plain = [one for prompt in sample.plain for one in prompt]
        if not flat or not plain:
            return None
        timing = self._timings[sample.candidate] = fit(sample.costs, plain, flat)
        predictions = [
            predict(timing, setting.rounds, k, tree=setting.tree)
            for setting in sample.settings
            for k in ([setting.k] if setting.tree else range(1, setting.k + 1))
        ]
        return Ranked(sample.candidate, sample.settings[0].tree, tuple(predictions))

    # -- ahead of the target ------------------------------------------------------------------------------------------

    def _look_ahead(self) -> Outlook | None:
        """What drafting ahead would bring for the fastest candidate with a draft model; where it pays, the candidate
        that does so is ranked, too."""
        able = [one for one in self._ranked if one.gain >= HOPELESS and one.candidate in self._models]
        if not able:
            return None
        base = max(able, key=lambda one: one.gain)
        place, source = self._models[base.candidate]
        candidate, k = put_ahead(base.candidate, base.candidate.drafters[place]), base.best.k
        timing = self._timings[base.candidate].of(source)
        found = hopeless(candidate, k, timing.draft(source, base.best.depth) / timing.forward(1 + k))
        if found is not None:
            return found
        self._tell(f"trying {candidate.name}")
        budget = k if len(candidate.drafters) > 1 else None
        try:
            engines = {
                "turn": self._engine(base.candidate, FixedPacing(k), budget=budget),
                "ahead": self._question.setup.engine(
                    self._target, candidate, FixedPacing(k), budget=budget, always_ahead=True
                ),
            }
            for engine in engines.values():
                warm_up(engine, self._items[0], self._sampling)
            until = time.monotonic() + max(_LEAST, _AHEAD * self._question.seconds)
            rounds, steps = both_ways(engines, self._items, self._sampling, until)
        except (HeadstartError, torch.OutOfMemoryError):
            return None  # the candidate itself was measured
        turn = [step for step in steps["turn"] if step.draft.source == source]
        ahead = [step for step in steps["ahead"] if step.draft.prepared is not None]
        found = outlook(candidate, k, ratio(rounds["turn"], rounds["ahead"]), turn, ahead)
        if found.pays:
            self._timings[candidate] = self._timings[base.candidate]
            self._ranked.append(ranked_ahead(base, found))
        return found

    # -- check, advice ------------------------------------------------------------------------------------------------

    @property
    def _splits(self) -> bool:
        """Whether the check has prompts of its own: every other one."""
        return self._question.check and len(self._items) > 1

    def _checked(self, one: Ranked, seconds: float, *, adaptive: bool = False) -> Ranked:
        """With its speedup over plain decoding as measured, at the predicted length; all engines but the plain one are
        fresh. adaptive: measure it with the default pacing too."""
        self._tell(f"checking {one.candidate.name}")
        items = self._items[1::2] if self._splits else self._items
        k = one.best.k
        budget = k if len(one.candidate.drafters) > 1 else None
        engines = {"plain": self._plain, "fixed": self._engine(one.candidate, FixedPacing(k), budget=budget)}
        if adaptive:
            engines["adaptive"] = self._engine(one.candidate, "adaptive")
        until = time.monotonic() + seconds
        for name, engine in engines.items():
            if name != "plain":
                warm_up(engine, items[0], self._sampling)
        rounds = by_prompt(engines, items, self._sampling, until)
        checked = Checked(
            speedup=ratio(rounds["plain"], rounds["fixed"]),
            given=predict(self._timings[one.candidate], rounds["fixed"], k, tree=one.tree).speedup.value,
            adaptive=ratio(rounds["plain"], rounds["adaptive"]) if adaptive else None,
            prompts=len(rounds["plain"]),
            same=not self._splits,
        )
        return replace(one, checked=checked)

    def _check_default_pacing(self) -> None:
        """What the recommended drafter brings as `load` runs it. Its check with fixed drafts stands."""
        first = preferred(self._ranked)
        if first is None or first.checked is None:
            return
        again = self._checked(first, max(_LEAST, self._left), adaptive=True).checked
        if again is not None:
            found = replace(first, checked=replace(first.checked, adaptive=again.adaptive))
            self._ranked[self._ranked.index(first)] = found

    def _keep(self, verdict: Recommendation) -> Path | None:
        best = verdict.best
        shown = best if best is not None else preferred(self._ranked)
        if shown is None:
            return None
        members = sorted(shown.best.members.values(), key=lambda member: -member.share)
        found = advice.Advice(
            drafters=() if best is None else best.candidate.drafters,
            k=shown.best.k,
            tree=self._question.setup.engine_options.draft_tree,
            speedup=shown.gain,
            measured=shown.checked is not None,
            acceptance=members[0].acceptance if members else (),
            date=date.today().isoformat(),
        )
        if self._question.setup.target == BUNDLED or (Path(self._target.checkpoint.source) / NOTE).is_file():
            return None  # these have their recommendation
        return advice.write(*self._target.advised_by, found)

    def _engine(self, candidate: Candidate, pacing: str | Pacing = "fixed", *, budget: int | None = None) -> Engine:
        return self._question.setup.engine(self._target, candidate, pacing, budget=budget)

    # -- around -------------------------------------------------------------------------------------------------------

    @property
    def _left(self) -> float:
        return self._passes * self._question.seconds - (time.monotonic() - self._begin)

    @property
    def _passes(self) -> int:
        return 2 if self._question.check else 1

    def _tell(self, what: str) -> None:
        self._progress(what, 1 - max(0.0, self._left) / (self._passes * self._question.seconds))

    def _refuse_bad_prompts(self) -> None:
        """Before anything is measured with them."""
        for item in self._items:
            try:
                self._plain.encode(item.prompt)
            except InvalidPrompt as error:
                error.message = f"{item.name or 'a prompt'}: {error.message}"
                raise
