"""Greedy text of a server that tells no tokens: compared as text, and judged where it first differs.

Up to there both texts are written by the reference's own greedy tokens, so the position is known. What the server said
next is taken to be the likeliest token that the rest of its text begins with. Nothing after it can be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from headstart.insight.audit.greedy import Divergence, GreedyResult, divergence, processed_logits
from headstart.insight.audit.rounding import EXACT, Rounding
from headstart.insight.audit.subject import Ask, Completion, Reference, Subject, sample_all
from headstart.types import Sampling

Write = Callable[[Sequence[int], Sequence[int]], str]
"""(prompt, tokens) -> what they write after it."""


def audit_greedy_text(
    subject: Subject,
    plain: Subject,
    reference: Reference,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    rounding: Rounding,
    *,
    write: Write,
    words: Sequence[str],
) -> GreedyResult:
    """As `audit_greedy`, by text. plain: the reference's own greedy decoding. words[i]: what token i writes."""
    cold = replace(sampling, temperature=0.0, logprobs=None, seed=None)
    asks = [Ask(tuple(prompt), cold) for prompt in prompts]
    positions = 0
    found: list[Divergence] = []
    for number, (ask, theirs, ours) in enumerate(
        zip(asks, sample_all(subject, asks), sample_all(plain, asks), strict=True)
    ):
        shared = _shared(ask.prompt, ours, theirs.text, write)
        positions += min(shared + 1, len(ours.tokens))
        ended = theirs.text == write(ask.prompt, ours.tokens[:shared]) and theirs.finish_reason == "length"
        if theirs.text != ours.text and not ended:
            found.append(_judge(number, ask, ours.tokens[:shared], theirs, reference, rounding, write, words))
    note = "texts are compared, since the server tells no tokens; nothing is judged after a first difference"
    return GreedyResult(len(asks), positions, tuple(found), 0, rounding, notes=(note,))


def _shared(prompt: Sequence[int], ours: Completion, text: str, write: Write) -> int:
    """How many of our tokens write a beginning of `text`."""
    shared = 0
    for count in range(1, len(ours.tokens) + 1):
        written = write(prompt, ours.tokens[:count])
        if text.startswith(written) or (written.endswith("\ufffd") and text.startswith(written.rstrip("\ufffd"))):
            shared = count if not written.endswith("\ufffd") else shared
        else:
            break
    return shared


def _judge(
    number: int,
    ask: Ask,
    before: Sequence[int],
    theirs: Completion,
    reference: Reference,
    rounding: Rounding,
    write: Write,
    words: Sequence[str],
) -> Divergence:
    logits = processed_logits(reference, ask.prompt, before, ask.sampling)
    tolerance = max(rounding.margin, EXACT)
    unclear = False
    said, value = -1, -np.inf
    for position, row in enumerate(logits):
        rest = theirs.text[len(write(ask.prompt, before[:position])) :]
        fitting = [i for i, word in enumerate(words) if word and rest.startswith(word)] if rest else []
        if not rest:
            fitting = sorted(reference.stop_ids(ask.sampling))
        if position < len(before):
            unclear |= any(i != before[position] and row.max() - row[i] <= tolerance for i in fitting)
        elif fitting:
            said = max(fitting, key=lambda i, row=row: row[i])  # type: ignore[misc]
            value = row[said]
    row = logits[-1]
    if said < 0:
        said, value, unclear = int(row.argmin()), row.min(), True
    judged = divergence(
        number, len(before), row, said, float(row.max() - value), rounding, lambda token: words[token] or f"<{token}>"
    )
    return replace(judged, verdict="unclear") if unclear and judged.verdict == "bug" else judged
