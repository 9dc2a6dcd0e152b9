"""The whole examination of a target: candidates, compatibility, memory, costs, acceptance, prediction, check, verdict.

A candidate that cannot be used is reported with its typed reason and the others go on; a target that cannot be loaded
raises.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median

from headstart.base.errors import InvalidPrompt
from headstart.base.prompt_sets import PromptItem, words_of_forms
from headstart.engine.engine import Engine
from headstart.engine.prompts import templated
from headstart.loading import advice
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import NOTE
from headstart.loading.load import Target
from headstart.measure.conversations import every_turn
from headstart.measure.doctor.ahead import Outlook, try_ahead
from headstart.measure.doctor.candidates import candidates, scan
from headstart.measure.doctor.costs import Timing, bytes_read, plain_reading
from headstart.measure.doctor.measuring import Inspected, Sample, affordable, seconds_of_token, spread
from headstart.measure.doctor.memory import Memory
from headstart.measure.doctor.question import Clock, Progress, Question, described, may_copy
from headstart.measure.doctor.trials import LISTS, Trials
from headstart.measure.doctor.verdict import Ranked, Recommendation, decide, finalists, preferred
from headstart.measure.provenance import Provenance
from headstart.model.kept.config import real
from headstart.model.loading import BUNDLED
from headstart.model.quantised.checkpoint import plain as without_codes
from headstart.pacing.measuring import measure, measured_batch
from headstart.pacing.mixtures import Mixture, mixture_of, routing_of
from headstart.theory import StepCosts
from headstart.theory.statistics import quantile
from headstart.types import Sampling

_COSTS = 1.5
"""Most seconds in which the target's own costs are measured."""
_TURNS = 0.1
"""The share of the time in which first turns are answered, so that later ones can be measured."""


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
    """Bytes of weights that a forward of one row reads; None where that is not known."""
    read_bandwidth: float | None
    """Bytes per second at which as many threads read as much memory and do nothing else; None where `read` is not
    known, or the target runs elsewhere than on a processor."""
    tokens: int
    inspected: tuple[Inspected, ...]
    ranked: tuple[Ranked, ...]
    verdict: Recommendation
    seconds: float
    passed_over: dict[str, str] = field(default_factory=dict)
    ahead: Outlook | None = None
    """What drafting ahead would give for the fastest drafter that could; None where there is none, or no time."""
    advice: Path | None = None
    forms: str = ""
    """How the prompts were sent, in words."""
    mixture: Mixture | None = None
    """The target's experts, on paper; None where it has none."""

    @property
    def unsteady(self) -> float | None:
        """How many times as long the slow plain steps took as the quick ones (90th and 10th percentile)."""
        samples = [one.result for one in self.inspected if isinstance(one.result, Sample)]
        seconds = [one.seconds for sample in samples for text in sample.plain.values() for one in text.rounds]
        return quantile(seconds, 0.9) / quantile(seconds, 0.1) if seconds else None


def examine(question: Question, progress: Progress) -> Examination:
    """Answer the question, in about its time; the best candidates are measured in about as much again.

    Raises:
        HeadstartError: the target cannot be loaded, or a prompt cannot be run.
    """
    clock, provenance = Clock(question, progress), Provenance.now()
    candidates(question.setup.target, question.given)  # what is no drafter is refused before anything is read
    clock.report(f"loading {question.setup.target}")
    target, memory = question.setup.open()
    found, passed_over = ((), {}) if question.scan is None else scan(question.scan, target)
    usual = target.usual_drafters
    wanted = candidates(question.setup.target, question.given, found, own_copy=may_copy(target), usual=usual)
    plain = question.setup.engine(target)
    items = [templated(target.tokenizer, item) for item in spread(question.items)]
    _refuse_bad_prompts(plain, items)
    costs = _target_costs(question, clock, plain)
    sampling = _sampling(question, clock, plain, items[0])
    items += _later_turns(question, clock, plain, items, sampling)
    trials = Trials(question, clock, target, memory, plain, items, sampling)
    trials.measure_all(wanted)
    ahead = try_ahead(trials)
    if question.measure and trials.ranked:
        trials.measure(trials.ranked if question.measure_all else finalists(trials.ranked, usual))
    verdict, ours = decide(trials.ranked, usual), target.checkpoint
    mixture, read = _reading(ours, question.setup.target_options.quantize)
    if ahead is not None:
        verdict = replace(verdict, reasons=(*verdict.reasons, ahead.sentence))
    return Examination(
        question=question,
        provenance=provenance,
        described=described(plain, memory),
        memory=memory,
        costs=_with_overhead(costs, list(trials.timings.values())),
        read=read,
        read_bandwidth=plain_reading(read) if read and target.device.type == "cpu" else None,
        tokens=sampling.max_tokens,
        inspected=tuple(trials.inspected),
        ranked=tuple(trials.ranked),
        verdict=verdict,
        seconds=clock.spent,
        passed_over=passed_over,
        ahead=ahead,
        advice=_keep(question, target, verdict, preferred(trials.ranked, usual)) if question.keep else None,
        forms=words_of_forms(item.form for item in items),
        mixture=mixture,
    )


def _reading(checkpoint: Checkpoint, quantize: str | None) -> tuple[Mixture | None, int | None]:
    """The target's experts on paper, and the bytes of weights that a forward of one row reads."""
    config = without_codes(real(checkpoint.config))
    mixture = mixture_of(config)
    if mixture is None and not routing_of(config).dense:
        return None, None
    met = 1.0 if mixture is None else mixture.met
    stored = checkpoint.bytes_read(quantize)
    if stored is not None:
        return mixture, stored  # which counts the chosen experts alone
    return mixture, bytes_read(checkpoint.config, checkpoint.weight_bytes, checkpoint.dtype, quantize, met)


def _refuse_bad_prompts(plain: Engine, items: Sequence[PromptItem]) -> None:
    """Before anything is measured with them."""
    for item in items:
        try:
            plain.encode(item.prompt)
        except InvalidPrompt as error:
            error.message = f"{item.name or 'a prompt'}: {error.message}"
            raise


def _target_costs(question: Question, clock: Clock, plain: Engine) -> StepCosts:
    """Of the target alone."""
    clock.report("measuring the target")
    batch = measured_batch(len(plain.cache.lengths))
    return measure(plain.target, plain.cache, (), batch=batch, seconds=min(_COSTS, question.seconds / 10)).costs


def _sampling(question: Question, clock: Clock, plain: Engine, item: PromptItem) -> Sampling:
    """The sampling that the question names, with as many new tokens as each candidate's share of the time allows."""
    asked = question.sampling
    token = seconds_of_token(plain, item, asked)
    share = clock.left / (len(question.given) + LISTS + 3)
    tokens = affordable(share, token, asked.max_tokens)
    return replace(asked, max_tokens=tokens, min_tokens=min(asked.min_tokens, tokens))


def _later_turns(
    question: Question, clock: Clock, plain: Engine, items: Sequence[PromptItem], sampling: Sampling
) -> list[PromptItem]:
    """Later turns of conversations are prompts too, as many as can be had in a small share of the time. They come
    last, so that a check finds first and later turns in both of its halves."""
    until = time.monotonic() + _TURNS * question.seconds
    later: list[PromptItem] = []
    for item in items:
        if item.chat is not None and item.chat.later and time.monotonic() < until:
            clock.report("asking first turns")
            later += every_turn(plain, [item], sampling)[1:]
    return spread(later)


def _with_overhead(costs: StepCosts, timings: Sequence[Timing]) -> StepCosts:
    """The costs with what steps took outside their forward, as the candidates' rounds showed it."""
    if not timings:
        return costs
    further = [each.row_overhead for timing in timings for each in timing.sources.values()]
    plain = median(timing.plain.overhead for timing in timings)
    return replace(costs, overhead=plain, row_overhead=median(further) if further else 0.0)


def _keep(question: Question, target: Target, verdict: Recommendation, first: Ranked | None) -> Path | None:
    """Write down what was measured, for `load`; None where nothing was, or `load` would not read it. first: the best,
    also where it does not pay."""
    best = verdict.best
    shown = best if best is not None else first
    if shown is None or shown.measured is None:
        return None
    members = sorted(shown.best.members.values(), key=lambda member: -member.share)
    found = advice.Advice(
        drafters=() if best is None else best.candidate.drafters,
        k=max(1, shown.best.k),
        tree=question.setup.engine_options.draft_tree,
        speedup=shown.gain,
        acceptance=members[0].acceptance if members else (),
        date=date.today().isoformat(),
    )
    if question.setup.target == BUNDLED or (Path(target.checkpoint.source) / NOTE).is_file():
        return None  # these have their recommendation
    return advice.write(*target.advised_by, found)
