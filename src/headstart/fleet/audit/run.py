"""Audits of servers: one against reference weights, or one against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headstart.engine.engine import Engine
from headstart.fleet.audit.compare import compare_subjects
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.tokens import ServerTokens
from headstart.measure.audit.behaviour import audit_behaviour
from headstart.measure.audit.certificate import Certificate, Part
from headstart.measure.audit.engines import Logits
from headstart.measure.audit.greedy import Divergence, GreedyResult, audit_greedy, divergence, processed_logits
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.run import GroundTruth
from headstart.measure.audit.sampled import audit_sampling
from headstart.measure.audit.subject import Ask, Completion, Progress, Subject, no_progress
from headstart.measure.provenance import Provenance
from headstart.types import Sampling


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


def audit_greedy_text(
    subject: Subject, truth: GroundTruth, prompts: Sequence[Sequence[int]], sampling: Sampling, tokens: ServerTokens
) -> GreedyResult:
    """As `audit_greedy`, by text. tokens: what the reference's tokens write."""
    cold = replace(sampling, temperature=0.0, logprobs=None, seed=None)
    asks = [Ask(tuple(prompt), cold) for prompt in prompts]
    positions = 0
    found: list[Divergence] = []
    pairs = zip(asks, subject.sample(asks), truth.plain.sample(asks), strict=True)
    for number, (ask, theirs, ours) in enumerate(pairs):
        shared = _shared(ask.prompt, ours, theirs.text, tokens)
        positions += min(shared + 1, len(ours.tokens))
        ended = theirs.text == tokens.text_of(ask.prompt, ours.tokens[:shared]) and theirs.finish_reason == "length"
        if theirs.text != ours.text and not ended:
            found.append(_first_difference(number, ask, ours.tokens[:shared], theirs.text, truth, tokens))
    note = "texts are compared, since the server tells no tokens; nothing is judged after a first difference"
    return GreedyResult(len(asks), positions, tuple(found), 0, truth.rounding, notes=(note,))


def _shared(prompt: Sequence[int], ours: Completion, text: str, tokens: ServerTokens) -> int:
    """How many of our tokens write a beginning of `text`."""
    shared = 0
    for count in range(1, len(ours.tokens) + 1):
        written = tokens.text_of(prompt, ours.tokens[:count])
        if not text.startswith(written.rstrip("\ufffd") if written.endswith("\ufffd") else written):
            break
        shared = shared if written.endswith("\ufffd") else count
    return shared


def _first_difference(
    number: int, ask: Ask, before: Sequence[int], text: str, truth: GroundTruth, tokens: ServerTokens
) -> Divergence:
    """text: the server's, which begins as the tokens `before` write and then differs."""
    logits = processed_logits(truth.reference, ask, before)
    unclear = False
    token, value = -1, -np.inf
    for position, row in enumerate(logits):
        rest = text[len(tokens.text_of(ask.prompt, before[:position])) :]
        fitting = [i for i, word in enumerate(tokens.texts) if word and rest.startswith(word)]
        if not rest:
            fitting = sorted(truth.reference.stop_ids(ask.sampling))
        if position < len(before):
            near = [i for i in fitting if truth.rounding.near_tie(float(row.max() - row[i]))]
            unclear |= any(i != before[position] for i in near)
        elif fitting:
            token = fitting[int(row[fitting].argmax())]
            value = row[token]
    row = logits[-1]
    if token < 0:
        token, value, unclear = int(row.argmin()), row.min(), True
    found = divergence(
        number, len(before), row, token, float(row.max() - value), truth.rounding,
        lambda token: tokens.texts[token] or f"<{token}>",
    )  # fmt: skip
    return replace(found, verdict="unclear") if unclear and found.verdict == "bug" else found
