"""Greedy text of a server that gives no tokens: compared as text, and looked up where it first differs.

Up to there both texts are written by the reference's own greedy tokens, so the position is known. What the server wrote
next is taken to be the likeliest token that the rest of its text begins with. Nothing after it can be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headstart.fleet.audit.tokens import ServerTokens
from headstart.measure.audit.greedy import Divergence, GreedyResult, divergence, processed_logits
from headstart.measure.audit.run import GroundTruth
from headstart.measure.audit.subject import Ask, Completion, Subject
from headstart.types import Sampling


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
