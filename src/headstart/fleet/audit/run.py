"""Audits of servers: one against reference weights, or one against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.engine.engine import Engine
from headstart.fleet.audit.compare import compare_subjects
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.greedy_text import audit_greedy_text
from headstart.measure.audit.behaviour import audit_behaviour
from headstart.measure.audit.certificate import Certificate, Part
from headstart.measure.audit.greedy import audit_greedy
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.rounding import Logits
from headstart.measure.audit.run import GroundTruth
from headstart.measure.audit.sampled import audit_sampling
from headstart.measure.audit.subject import Progress, no_progress
from headstart.measure.provenance import Provenance


def audit_endpoint(
    subject: EndpointSubject,
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    progress: Progress = no_progress,
    *,
    other: Logits | None = None,
) -> Certificate:
    """A server against the exact distribution of reference weights.

    engine: holds the weights, without a drafter
    other: the same weights in another implementation, to measure rounding with

    Raises:
        EndpointFailed, IncompatibleTokenizer: as `EndpointSubject.sample`.
        As `audit_engine`.
    """
    provenance = Provenance.now("httpx2")
    progress("endpoint", 0, 1, "trying how the server takes requests")
    subject.probe(prompts[0])
    truth = GroundTruth.of(engine, prompts, plan, progress, other)
    reference = subject.tokens.merge(truth.reference)
    greedy = plan.greedy_sampling()
    parts: dict[str, Part] = {}
    if plan.sampled and subject.gives_tokens:
        # the mean distance: rounding has no direction that a bet could follow from row to row
        tolerance = truth.rounding.variation
        parts["sampling"] = audit_sampling(subject, reference, plan.asks(prompts), plan, progress, tolerance=tolerance)
    elif plan.sampled:
        alone = replace(plan, greedy=False)  # greedy text is looked up
        parts["comparison"] = compare_subjects(truth.plain, subject, prompts, alone, progress, by_text=True)
    if plan.greedy and subject.gives_tokens:
        parts["greedy"] = audit_greedy(
            subject, truth.reference, prompts, greedy, truth.rounding, progress,
            spell=truth.spell, token_class=subject.tokens.token_class,
        )  # fmt: skip
    elif plan.greedy:
        parts["greedy"] = audit_greedy_text(subject, truth, prompts, greedy, subject.tokens)
    if plan.behaviour:
        parts["behaviour"] = audit_behaviour(
            subject, reference, prompts, truth.rounding, progress,
            k=plan.k, gives_tokens=subject.gives_tokens, may_ignore=True, seeded=subject.seeded,
        )  # fmt: skip
    settings, notes = plan.record(len(prompts)), tuple(subject.notes)
    return Certificate(subject.describe(), truth.reference.describe(), parts, settings, provenance, notes)


def audit_against(
    a: EndpointSubject,
    b: EndpointSubject,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    progress: Progress = no_progress,
) -> Certificate:
    """Server `a`, with speculation, against `b`, without; there are no reference weights.

    prompts: code points of text

    Raises: as `audit_endpoint`.
    """
    provenance = Provenance.now("httpx2")
    for server in (a, b):
        progress("endpoint", 0, 1, f"trying how {server.name} takes requests")
        server.probe(prompts[0])
    by_text = not (a.gives_tokens and b.gives_tokens)
    parts: dict[str, Part] = {"comparison": compare_subjects(a, b, prompts, plan, progress, by_text=by_text)}
    if plan.behaviour:
        parts["behaviour"] = audit_behaviour(
            a, None, prompts, None, progress,
            k=plan.k, gives_tokens=a.gives_tokens, may_ignore=True, seeded=a.seeded,
        )  # fmt: skip
    notes = [f"{server.name}: {note}" for server in (a, b) for note in server.notes]
    if by_text:
        notes.append("texts were compared character by character, since not both servers tell their tokens")
    return Certificate(a.describe(), b.describe(), parts, plan.record(len(prompts)), provenance, tuple(notes))
