"""The audit of headstart's own engine, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headstart.engine.engine import Engine
from headstart.insight.audit.behaviour import audit_behaviour
from headstart.insight.audit.certificate import Certificate, Part
from headstart.insight.audit.engines import EngineSubject
from headstart.insight.audit.greedy import audit_greedy
from headstart.insight.audit.ground_truth import GroundTruth
from headstart.insight.audit.plan import AuditPlan
from headstart.insight.audit.sampled import audit_sampling
from headstart.insight.audit.subject import Progress, no_progress
from headstart.insight.provenance import Provenance


def audit_engine(
    engine: Engine, prompts: Sequence[Sequence[int]], plan: AuditPlan, progress: Progress = no_progress
) -> Certificate:
    """headstart's own engine against the plain law of its own target. prompts: token ids.

    Raises:
        InvalidPrompt: there is no prompt, or one is empty.
        InvalidOption: rounding alone is as large as the effect that is asked for.
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
    settings = {**asdict(plan), "prompts": len(prompts)}
    return Certificate(subject.describe(), truth.reference.describe(), parts, settings, provenance)
