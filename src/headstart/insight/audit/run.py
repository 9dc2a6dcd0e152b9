"""Whole audits: headstart's own engine, a server against reference weights, a server against another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from headstart.engine.engine import Engine
from headstart.errors import InvalidOption
from headstart.insight.audit.behaviour import audit_behaviour
from headstart.insight.audit.certificate import Certificate, Part
from headstart.insight.audit.engines import EngineReference, EngineSubject
from headstart.insight.audit.greedy import audit_greedy
from headstart.insight.audit.rounding import Logits, Rounding, measure_rounding
from headstart.insight.audit.sampled import SampledResult, SampledSettings, Verdict, audit_sampling
from headstart.insight.audit.servers.compare import PairSettings, compare_endpoints
from headstart.insight.audit.servers.endpoint import EndpointSubject
from headstart.insight.audit.servers.greedy_text import audit_greedy_text
from headstart.insight.audit.subject import Reference, Subject
from headstart.insight.provenance import Provenance
from headstart.options import check_number, strict
from headstart.types import Sampling

BEHAVIOUR_PROMPTS = 3
ROUNDING_TEXTS = 4


class Told(Protocol):
    """Hears how far an audit is: part by part, (part, done, of how many, a word on it)."""

    def __call__(self, part: str, done: int, most: int, words: str = "") -> None: ...


def _untold(part: str, done: int, most: int, words: str = "") -> None:
    """Nobody wants to know."""


@strict
@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What to do, and how sure to be.

    sampling: how text is sampled in the audit; its penalties and bias hold for greedy text too. greedy, sampled,
    behaviour: which parts. level, effect, power, max_samples, batch: see `SampledSettings`. sample_tokens,
    greedy_tokens: of a completion. near_tie: logits by which greedy tokens may differ; None measures it. k: the longest
    draft, as far as known.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    greedy: bool = True
    sampled: bool = True
    behaviour: bool = True
    level: float = 0.01
    effect: float = 0.05
    power: float = 0.9
    max_samples: int = 4000
    batch: int = 64
    sample_tokens: int = 12
    greedy_tokens: int = 64
    near_tie: float | None = None
    k: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("greedy_tokens", self.greedy_tokens, low=1, integer=True)
        check_number("k", self.k, low=0, integer=True)
        if self.near_tie is not None:
            check_number("near_tie", self.near_tie, low=0)
        if self.sampled and self.sampling.greedy:
            raise InvalidOption(
                "temperature 0 leaves nothing to sample", hint="give a temperature above 0, or ask for greedy text only"
            )
        if not (self.greedy or self.sampled):
            raise InvalidOption("nothing is left to audit", hint="leave out one of --greedy-only and --sampling-only")

    @property
    def cold(self) -> Sampling:
        return replace(self.sampling, temperature=0.0, max_tokens=self.greedy_tokens)

    def sampled_settings(self, tolerance: float) -> SampledSettings:
        return SampledSettings(
            level=self.level,
            effect=self.effect,
            power=self.power,
            max_samples=self.max_samples,
            batch=self.batch,
            max_tokens=self.sample_tokens,
            tolerance=tolerance,
            seed=self.seed,
            samplings=(self.sampling,),
        )

    def pair_settings(self) -> PairSettings:
        return PairSettings(
            level=self.level,
            effect=self.effect,
            power=self.power,
            max_samples=self.max_samples,
            batch=self.batch,
            max_tokens=self.sample_tokens,
            seed=self.seed,
            sampling=self.sampling,
        )


Prompts = Sequence[Sequence[int]]


def audit_engine(engine: Engine, prompts: Prompts, plan: AuditPlan, told: Told = _untold) -> Certificate:
    """headstart's own engine against the plain law of its own target. prompts: token ids.

    Raises: as `Engine.generate`; InvalidOption if what is asked for contradicts itself.
    """
    provenance = Provenance.now()
    subject, plain = EngineSubject(engine, seed=plan.seed), EngineSubject(engine.plain(), name="plain decoding")
    reference = EngineReference.of(engine)
    rounding = _rounding(engine, plain, prompts, plan, told)
    parts: dict[str, Part] = {}
    if plan.sampled:
        settings = plan.sampled_settings(rounding.variation)
        suspect = EngineReference.of_draft(engine)
        parts["sampling"] = _sampled(subject, reference, prompts, settings, told, suspect)
    if plan.greedy:
        parts["greedy"] = audit_greedy(
            subject, reference, prompts, plan.cold, rounding,
            spell=_speller(engine), plain=plain, on_progress=_greedily(told),
        )  # fmt: skip
    if plan.behaviour:
        told("behaviour", 0, 1)
        parts["behaviour"] = audit_behaviour(
            subject, reference, prompts[:BEHAVIOUR_PROMPTS], rounding, k=plan.k, seeded=_Seeded(engine)
        )
    return Certificate(subject.describe(), reference.describe(), parts, _settings(plan, prompts), provenance)


def audit_endpoint(
    subject: EndpointSubject,
    engine: Engine,
    prompts: Prompts,
    plan: AuditPlan,
    *,
    other: Logits | None = None,
    told: Told = _untold,
) -> Certificate:
    """A server against the exact law of reference weights. engine: holds them, without a drafter. other: the same
    weights in another implementation, to measure rounding with.

    Raises: EndpointFailed, IncompatibleTokenizer; as `audit_engine`.
    """
    provenance = Provenance.now("httpx2")
    told("endpoint", 0, 1, "asking how it likes to be asked")
    subject.meet(prompts[0])
    exact = EngineReference.of(engine)
    reference = subject.seen_by(exact)
    plain = EngineSubject(engine, name=f"plain decoding of {engine.target_name}", seed=plan.seed)
    rounding = _rounding(engine, plain, prompts, plan, told, other)
    parts: dict[str, Part] = {}
    if plan.sampled and subject.tells_tokens:
        # what laws differ by on average: rounding has no direction that a bet could follow from row to row
        settings = plan.sampled_settings(rounding.variation)
        parts["sampling"] = _sampled(subject, reference, prompts, settings, told, None)
    elif plan.sampled:
        parts["comparison"] = compare_endpoints(
            plain, subject, prompts, plan.pair_settings(), greedy=False, by_text=True, on_progress=_pairwise(told)
        )
    if plan.greedy and subject.tells_tokens:
        parts["greedy"] = audit_greedy(
            subject, exact, prompts, plan.cold, rounding,
            spell=_speller(engine), standing=subject.standing, on_progress=_greedily(told),
        )  # fmt: skip
    elif plan.greedy:
        parts["greedy"] = audit_greedy_text(
            subject, plain, exact, prompts, plan.cold, rounding, write=subject.text_of, words=subject.words
        )
    if plan.behaviour:
        told("behaviour", 0, 1)
        parts["behaviour"] = audit_behaviour(
            subject, reference, prompts[:BEHAVIOUR_PROMPTS], rounding,
            k=plan.k, tells_tokens=subject.tells_tokens, may_ignore=True, seeded=subject.seeded,
        )  # fmt: skip
    described = subject.describe()
    return Certificate(
        described, exact.describe(), parts, _settings(plan, prompts), provenance, tuple(described["notes"])
    )


def audit_against(
    a: EndpointSubject, b: EndpointSubject, prompts: Prompts, plan: AuditPlan, told: Told = _untold
) -> Certificate:
    """Server `a`, with speculation, against `b`, without; no reference weights. prompts: as the servers take them."""
    provenance = Provenance.now("httpx2")
    for server in (a, b):
        told("endpoint", 0, 1, f"asking {server.name}")
        server.meet(prompts[0])
    by_text = not (a.tells_tokens and b.tells_tokens)
    parts: dict[str, Part] = {
        "comparison": compare_endpoints(
            a, b, prompts, plan.pair_settings(),
            greedy=plan.greedy, sampled=plan.sampled, by_text=by_text, on_progress=_pairwise(told),
        )
    }  # fmt: skip
    if plan.behaviour:
        told("behaviour", 0, 1)
        parts["behaviour"] = audit_behaviour(
            a, None, prompts[:BEHAVIOUR_PROMPTS], None,
            k=plan.k, tells_tokens=a.tells_tokens, may_ignore=True, seeded=a.seeded,
        )  # fmt: skip
    notes = [f"{server.name}: {note}" for server in (a, b) for note in server.notes]
    if by_text:
        notes.append("texts were compared character by character, since not both servers tell their tokens")
    return Certificate(a.describe(), b.describe(), parts, _settings(plan, prompts), provenance, tuple(notes))


@dataclass(frozen=True)
class SampledPart:
    """The sampled audit, and its capital after each batch: (completions, capital, least power)."""

    result: SampledResult
    curve: tuple[tuple[int, float, float], ...]

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict

    @property
    def reasons(self) -> list[str]:
        return self.result.reasons

    def record(self) -> dict[str, Any]:
        curve = [[n, float(f"{evidence:.4g}"), round(power, 3)] for n, evidence, power in self.curve]
        return {**self.result.record(), "e_value_by_completions": curve}


class _Seeded:
    """One completion of an engine with the seed that its Sampling names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, prompt: Sequence[int], sampling: Sampling) -> Any:
        return self._engine.generate(list(prompt), sampling)


def _sampled(
    subject: Subject,
    reference: Reference,
    prompts: Prompts,
    settings: SampledSettings,
    told: Told,
    suspect: Reference | None,
) -> SampledPart:
    curve: list[tuple[int, float, float]] = []

    def heard(progress: Any) -> None:
        curve.append((progress.completions, progress.evidence, progress.least))
        words = f"e-value {progress.evidence:.3g}, power {progress.least:.0%}"
        told("sampling", progress.completions, progress.most, words)

    result = audit_sampling(subject, reference, prompts, settings, heard, suspect=suspect)
    return SampledPart(result, tuple(curve))


def _rounding(
    engine: Engine, plain: Subject, prompts: Prompts, plan: AuditPlan, told: Told, other: Logits | None = None
) -> Rounding:
    told("rounding", 0, 1, "computing rows again, to see how far rounding moves them")
    some = prompts[:ROUNDING_TEXTS]
    texts = [(prompt, plain.sample(prompt, plan.cold, 1)[0].tokens) for prompt in some]
    name = f"transformers' own modules in {str(engine.target.dtype).removeprefix('torch.')}"
    found = measure_rounding(engine.target, texts, plan.sampling, other=other, other_name=name)
    if plan.near_tie is None:
        return found
    return replace(found, margin=plan.near_tie, how=f"given: near-tied are tokens up to {plan.near_tie:g} apart")


def _speller(engine: Engine) -> Callable[[int], str]:
    tokenizer = engine.tokenizer
    return str if tokenizer is None else lambda token: str(tokenizer.decode([token]))


def _greedily(told: Told) -> Callable[[int, int], None]:
    return lambda done, most: told("greedy", done, most)


def _pairwise(told: Told) -> Callable[[int, int, float], None]:
    return lambda done, most, capital: told("comparison", done, most, f"e-value {capital:.3g}")


def _settings(plan: AuditPlan, prompts: Prompts) -> dict[str, Any]:
    return {**asdict(plan), "prompts": len(prompts)}
