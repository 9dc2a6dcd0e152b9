"""What a traced request adds up to: tokens per forward, acceptance, where rounds were lost, where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from headstart.engine.trace.format import StepLine
from headstart.engine.trace.reader import TracedRequest
from headstart.theory.rounds import PositionCounts
from headstart.types import PARTS, AheadStats, depths_of

WORST = 5
"""Refusals that are listed one by one."""


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What came of the drafts of one drafter."""

    drafts: int = 0
    drafted: int = 0
    judged: int = 0
    """Levels whose fate is known: all before them were accepted."""
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """A round that ended with a refusal."""

    i: int
    """The step."""
    depth: int
    """Of the refused guess: 1 is the first of its draft."""
    lost: int
    """Levels of the draft, from this one on, that came to nothing."""
    guess: str
    """What the refused token writes; of several siblings the first one's."""
    instead: str
    """What the text got in its place."""
    p: float | None
    q: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One request of a trace in numbers. Times are those of whole steps, which requests of a batch share."""

    request: int
    finish_reason: str | None
    """None where the recording ended first."""
    tokens: int
    forwards: int
    """Target forwards that judged something."""
    prefills: int
    """Target forwards that only read a part of the prompt."""
    drafted: int
    judged: int
    """Levels of drafts whose fate is known. Behind a refusal nothing is judged."""
    accepted: int
    tested_by_depth: tuple[int, ...]
    accepted_by_depth: tuple[int, ...]
    by_source: Mapping[str, SourceCounts]
    seconds: Mapping[str, float]
    """By part: draft, verify, distribution, commit."""
    reasons: Mapping[str, int]
    """How often each reason was given for a budget, the most frequent first."""
    refused_at: Mapping[int, int]
    """By depth, the rounds that ended with a refusal there; 0 counts drafts that were accepted whole."""
    plain: int
    """Forwards that judged no draft."""
    worst: tuple[Loss, ...] = field(default=())
    """The rounds that lost the most levels."""
    ahead: AheadStats | None = None
    """What came of drafting ahead; None where nothing was drafted ahead."""
    experts: Mapping[int, float] = field(default_factory=dict)
    """By rows of a forward, how many experts such forwards met, on average; of forwards that were the request's alone,
    and nothing where experts are not counted."""

    @property
    def tokens_per_forward(self) -> float:
        return self.tokens / self.forwards if self.forwards else 0.0

    @property
    def conditional(self) -> tuple[float, ...]:
        """[i]: how often a guess at depth i + 1 was accepted, once all before it were."""
        return tuple(a / t for a, t in zip(self.accepted_by_depth, self.tested_by_depth, strict=True))


def summarise(request: TracedRequest) -> Summary:
    """The numbers of one request."""
    judged = [step for step in request.steps if step.judged]
    drafted = [step for step in judged if step.tokens]
    counts = _counts(drafted)
    sources = {step.source: [each for each in drafted if each.source == step.source] for step in drafted}
    losses = [_loss(request, step) for step in drafted if _refused(step)]
    reasons = Counter(step.budget.reason for step in judged)
    ends = Counter(_refused(step) for step in drafted)
    return Summary(
        request=request.number,
        finish_reason=None if request.end is None else request.end.finish_reason,
        tokens=sum(len(step.emitted) for step in judged),
        forwards=sum(bool(step.emitted) for step in judged),
        prefills=sum(not step.judged and step.finish_reason != "error" for step in request.steps),
        drafted=sum(len(step.tokens) for step in drafted),
        judged=sum(counts.tested),
        accepted=sum(step.accepted for step in drafted),
        tested_by_depth=tuple(counts.tested),
        accepted_by_depth=tuple(counts.accepted),
        by_source={name: _source(steps) for name, steps in sources.items()},
        seconds={part: sum(getattr(step.seconds, part) for step in request.steps) for part in PARTS},
        reasons=dict(reasons.most_common()),
        refused_at=dict(sorted(ends.items())),
        plain=len(judged) - len(drafted),
        worst=tuple(sorted(losses, key=lambda loss: (-loss.lost, loss.i))[:WORST]),
        ahead=_ahead(judged),
        experts=_experts(judged),
    )


def _experts(steps: Sequence[StepLine]) -> dict[int, float]:
    found: dict[int, list[int]] = {}
    for step in steps:
        if step.experts is not None and step.batch == 1:
            found.setdefault(step.rows, []).append(step.experts)
    return {rows: fmean(found[rows]) for rows in sorted(found)}


def _ahead(steps: Sequence[StepLine]) -> AheadStats | None:
    found = None
    for step in steps:
        if step.ahead is not None:
            found = (found or AheadStats()).counting(step.ahead.prepared)
    return found


def depth_of(step: StepLine) -> int:
    """Levels of a step's draft."""
    return max(depths_of(step.parents), default=0)


def _counts(steps: Sequence[StepLine]) -> PositionCounts:
    counts = PositionCounts()
    for step in steps:
        counts.add(depth_of(step), len(step.path))
    return counts


def _source(steps: Sequence[StepLine]) -> SourceCounts:
    counts = _counts(steps)
    return SourceCounts(
        drafts=len(steps),
        drafted=sum(len(step.tokens) for step in steps),
        judged=sum(counts.tested),
        accepted=sum(step.accepted for step in steps),
    )


def _refused(step: StepLine) -> int:
    """The depth at which a draft was refused; 0 where it was accepted as far as it went."""
    return len(step.path) + 1 if len(step.path) < depth_of(step) else 0


def _loss(request: TracedRequest, step: StepLine) -> Loss:
    last = step.path[-1] if step.path else -1
    depth = len(step.path) + 1
    at = step.parents.index(last) if last in step.parents else None
    return Loss(
        i=step.i,
        depth=depth,
        lost=depth_of(step) - depth + 1,
        guess="" if at is None else request.text(step.tokens[at]),
        instead="" if step.end is None else request.text(step.end.token),
        p=None if at is None else step.nodes[at].p,
        q=None if at is None else step.nodes[at].q,
    )
