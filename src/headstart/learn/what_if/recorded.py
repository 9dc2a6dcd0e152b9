"""What a traced request would have taken with other draft lengths.

With shorter chains nothing need be run again. At temperature 0 the text stays the same whatever is drafted, and what a
draft model guesses at a place depends on the text before it alone: the same guesses, cut shorter, are accepted and
refused as they were, and the counts can be replayed. One thing no trace knows: whether a draft that was accepted whole
would have been right about one token more. Where that matters, the counts are known between two bounds.

Everything else is an estimate: of sampled requests (other drafts give another text, of the same distribution), of
trees, of drafters that copy or read hidden states (begun elsewhere, they guess otherwise), and of longer drafts than
were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.base.options import check_number
from headstart.engine.trace.reader import Trace, TracedRequest
from headstart.engine.trace.summary import depth_of, summarise
from headstart.theory.rounds import Stretch, expected_tokens_by_position, recut
from headstart.types import Sampling

BY_TEXT_ALONE = frozenset({"draft", "early-exit"})
"""Kinds of drafters whose guess at a place is a function of the text before it."""

Label = Literal["exact", "between", "estimate"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a request takes."""

    forwards: float
    drafted: float
    accepted: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One request with drafts of at most k tokens (levels, of trees)."""

    request: int
    k: int
    label: Label
    """exact: these are the counts. between: they lie between `fewest` and `most`. estimate: about so many."""
    why: str
    """Why it is so, or why it can be no more."""
    tokens: int
    """Emitted; they are the same for any k."""
    fewest: Counts
    """With the fewest forwards that are possible."""
    most: Counts
    """With the most; the same as `fewest` where the label is "exact" or "estimate"."""
    seconds: float | None
    """About so long, from the mean times of the recorded parts; None where nothing was drafted, or in a batch."""

    @property
    def tokens_per_forward(self) -> tuple[float, float]:
        """With the most forwards, and with the fewest."""
        return self.tokens / self.most.forwards, self.tokens / self.fewest.forwards


def what_if(trace: Trace, request: TracedRequest, k: int) -> WhatIf:
    """The request with at most k drafted tokens (levels, of trees) in a step.

    Raises:
        InvalidOption: k is negative.
    """
    check_number("k", k, low=0, integer=True)
    judged = [step for step in request.steps if step.judged and step.emitted]
    tokens = sum(len(step.emitted) for step in judged)

    def found(label: Label, why: str, fewest: Counts, most: Counts) -> WhatIf:
        seconds = _seconds(request, _between(fewest, most))
        return WhatIf(request.number, k, label, why, tokens, fewest, most, seconds)

    if not judged:
        return found("exact", "no token was emitted", Counts(0, 0, 0), Counts(0, 0, 0))
    why = _only_an_estimate(trace, request, k)
    if k > _longest(request) or (why and not _chains(request)):
        about = _by_acceptance(request, k)
        return found("estimate", why, about, about)
    rounds = [Stretch(step.source, len(step.tokens), len(step.path), len(step.emitted)) for step in judged]
    most, fewest = (_counts(recut(rounds, k, joined=joined), _room(trace, request)) for joined in (False, True))
    if why:
        return found("estimate", why, _between(fewest, most), _between(fewest, most))
    if fewest == most:
        return found(
            "exact", "at temperature 0 the text and the guesses are the same; only their cut differs", most, most
        )
    why = "no trace knows whether a draft that was accepted whole would have been right about one token more"
    return found("between", why, fewest, most)


def _only_an_estimate(trace: Trace, request: TracedRequest, k: int) -> str:
    """Why the counts cannot be replayed; "" where they can."""
    drafted = [step for step in request.steps if step.judged and step.tokens]
    kinds = {each.name: each.kind for each in trace.header.drafters}
    sources = {step.source for step in drafted}
    if not drafted:
        return "" if k == 0 else "nothing was drafted"
    if k == 0:
        return "" if request.greedy else "sampled: without drafts the text would be another, of the same distribution"
    if not request.greedy:
        return "sampled: with other drafts the text would be another, of the same distribution"
    if not _chains(request):
        return "trees: a smaller one is not a part of a larger one"
    if k > _longest(request):
        return "longer drafts than were made"
    if len(sources) > 1 or len(kinds) > 1:
        return "several drafters: which of them would have drafted is not known"
    if any(kinds.get(source) not in BY_TEXT_ALONE for source in sources):
        return "this drafter, begun at another place, may guess otherwise"
    return ""


def _chains(request: TracedRequest) -> bool:
    return all(step.is_chain for step in request.steps)


def _longest(request: TracedRequest) -> int:
    return max((depth_of(step) for step in request.steps if step.judged), default=0)


def _room(trace: Trace, request: TracedRequest) -> int:
    """Tokens that could still be emitted when the recording began."""
    limit = request.line.sampling.get("max_tokens", Sampling().max_tokens) - len(request.line.before)
    context = trace.header.engine.get("max_length")
    begun = len(request.line.prompt_tokens) + len(request.line.before)
    return int(limit if context is None else min(limit, context - begun))


def _counts(rounds: Sequence[Stretch], room: int) -> Counts:
    """room: no draft is longer than what may still be emitted, less the token that comes in any case."""
    drafted = accepted = emitted = 0
    for one in rounds:
        nodes = min(one.nodes, room - emitted - 1)
        drafted += max(0, nodes)
        accepted += min(one.accepted, one.tokens)
        emitted += one.tokens
    return Counts(len(rounds), drafted, accepted)


def _between(a: Counts, b: Counts) -> Counts:
    return Counts((a.forwards + b.forwards) / 2, (a.drafted + b.drafted) / 2, (a.accepted + b.accepted) / 2)


def _by_acceptance(request: TracedRequest, k: int) -> Counts:
    """From the conditional acceptance by depth; the last one known stands for all that are deeper."""
    found = summarise(request)
    if not found.conditional:
        return Counts(found.forwards, 0, 0)
    in_drafts = found.tokens - found.plain  # a forward without a draft emits one token, and goes on doing so
    per_round = float(expected_tokens_by_position(found.conditional, k))
    rounds = in_drafts / per_round
    return Counts(rounds + found.plain, rounds * k, in_drafts - rounds)


def _seconds(request: TracedRequest, counts: Counts) -> float | None:
    judged = [step for step in request.steps if step.judged and step.emitted]
    nodes = sum(len(step.tokens) for step in judged)
    if not nodes or any(step.batch > 1 for step in judged):
        return None
    drafting = sum(step.seconds.draft for step in judged)
    forward = (sum(step.seconds.total for step in judged) - drafting) / len(judged)
    draft = drafting / nodes
    return counts.forwards * forward + counts.drafted * draft
