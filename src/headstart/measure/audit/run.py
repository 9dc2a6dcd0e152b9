"""The audit of headstart's own engine, part by part, and the ground truth that any subject is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headstart.engine.engine import Engine
from headstart.measure.audit.behaviour import audit_behaviour
from headstart.measure.audit.certificate import Certificate, Part
from headstart.measure.audit.engines import EngineReference, EngineSubject, Logits, Rounding, measure_rounding
from headstart.measure.audit.greedy import audit_greedy
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.sampled import audit_sampling
from headstart.measure.audit.subject import Ask, Progress, Reference, Subject, no_progress
from headstart.measure.provenance import Provenance

ROUNDING_TEXTS = 4
"""Prompts after which rounding is measured."""


@dataclass(frozen=True)
class GroundTruth:
    """The exact distributions of the weights, and what goes with them.

    reference: the distributions
    draft: the distribution of draft tokens, where the engine has a draft model
    plain: the engine without speculation
    spell: a token as text
    rounding: how far the same weights differ from themselves
    """

    reference: Reference
    draft: Reference | None
    plain: Subject
    spell: Callable[[int], str]
    rounding: Rounding

    @classmethod
    def of(
        cls,
        engine: Engine,
        prompts: Sequence[Sequence[int]],
        plan: AuditPlan,
        progress: Progress,
        other: Logits | None = None,
    ) -> GroundTruth:
        """other: the same weights in another implementation, to measure rounding with."""
        reference, tokenizer = EngineReference.of(engine), engine.tokenizer
        plain = EngineSubject(engine.plain(), name=f"plain decoding of {engine.target_name}", seed=plan.seed)
        progress("rounding", 0, 1, "computing rows again, to see how far rounding moves them")
        greedy = plan.greedy_sampling()
        asks = [Ask(tuple(prompt), greedy) for prompt in prompts[:ROUNDING_TEXTS]]
        texts = [(ask.prompt, text.tokens) for ask, text in zip(asks, plain.sample(asks), strict=True)]
        name = f"transformers' own modules in {str(engine.target.dtype).removeprefix('torch.')}"
        rounding = measure_rounding(reference, texts, plan.sampling, other=other, other_name=name)
        if plan.near_tie is not None:
            how = f"given: near-tied are tokens up to {plan.near_tie:g} apart"
            rounding = replace(rounding, margin=plan.near_tie, how=how)
        return cls(
            reference=reference,
            draft=EngineReference.of_draft(engine),
            plain=plain,
            spell=str if tokenizer is None else lambda token: str(tokenizer.decode([token])),
            rounding=rounding,
        )


def audit_engine(
    engine: Engine, prompts: Sequence[Sequence[int]], plan: AuditPlan, progress: Progress = no_progress
) -> Certificate:
    """headstart's own engine against the plain distribution of its own target. prompts: token ids.

    Raises:
        InvalidPrompt: there is no prompt, or one is empty.
        InvalidOption: rounding alone is as large as the effect of the plan.
        As `Engine.generate`.
    """
    provenance = Provenance.now()
    subject = EngineSubject(engine, seed=plan.seed)
    truth = GroundTruth.of(engine, prompts, plan, progress)
    parts: dict[str, Part] = {}
    if plan.sampled:
        parts["sampling"] = audit_sampling(
            subject, truth.reference, plan.asks(prompts), plan, progress,
            tolerance=truth.rounding.variation, draft=truth.draft,
        )  # fmt: skip
    if plan.greedy:
        parts["greedy"] = audit_greedy(
            subject, truth.reference, prompts, plan.greedy_sampling(), truth.rounding, progress,
            spell=truth.spell, plain=truth.plain,
        )  # fmt: skip
    if plan.behaviour:
        parts["behaviour"] = audit_behaviour(
            subject, truth.reference, prompts, truth.rounding, progress, k=plan.k, seeded=subject.seeded
        )
    described = subject.describe(), truth.reference.describe()
    return Certificate(*described, parts, plan.record(len(prompts)), provenance)
