"""What a server's metrics are made from: numbers that are added up on the engine's thread, and nothing else there."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from headstart.serve.names import public_name
from headstart.serve.watching import Ended, Names, Watcher
from headstart.theory.rounds import PositionCounts
from headstart.types import AheadStats, Seconds, Step

FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
REQUEST_SECONDS = (
    0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0,
)  # fmt: skip
LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
_REASONS = {"cancelled": "abort"}
"""vLLM's word for a finish reason, where it differs."""


class Buckets:
    """A histogram. bounds: each bucket's greatest value; one more takes the rest."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(greatest value, how many are not above it), as Prometheus wants them."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, math.inf), tuple(self.counts), strict=True):
            total += count
            found.append(("+Inf" if bound == math.inf else str(float(bound)), float(total)))
        return found


class Counts(Watcher):
    """Everything since the server was started."""

    def __init__(self) -> None:
        self.steps = 0
        """Forwards of the target, each over all requests that run."""
        self.seconds = Seconds()
        """Of those steps."""
        self.forwards = 0
        """Forwards that judged a position of a request, counted by request."""
        self.prompt_tokens = self.cached_tokens = self.tokens = 0
        """Prompt tokens of requests that have a first token; those of them that needed no forward; generated ones."""
        self.drafts = self.drafted = self.accepted = 0
        """Drafts that were judged, their tokens, and the accepted ones."""
        self.positions = PositionCounts()
        self.by_source: dict[str, list[int]] = {}
        """[drafted, accepted]"""
        self.by_tag: dict[str, list[int]] = {}
        """[ended requests, generated tokens, forwards]"""
        self.finished: Counter[str] = Counter()
        """Ended requests by finish reason, in vLLM's words."""
        self.endings: Counter[str] = Counter()
        """Ended requests by who ended them."""
        self.off: Counter[str] = Counter()
        """Ended requests without speculation, by reason."""
        self.requests_refused = 0
        self.ahead = AheadStats()
        """Of the drafts that were made ahead."""
        self.lengths = Buckets(LENGTHS)
        self.gaps = Buckets(TOKEN_SECONDS)
        self.first_token = Buckets(FIRST_TOKEN_SECONDS)
        self.per_token = Buckets(TOKEN_SECONDS)
        self.queue = Buckets(REQUEST_SECONDS)
        self.total = Buckets(REQUEST_SECONDS)
        self._names = {"tag": Names(), "reason": Names(), "source": Names()}
        self._fed: dict[int, int] = {}  # by request without a token, the rows of its prompt that were computed
        self._latest: dict[int, float] = {}  # by request with a token, when its latest came

    def stepped(self, steps: Sequence[Step], now: float) -> None:
        if steps:
            self.steps += 1
            self.seconds += steps[0].seconds  # of the whole step: all its events have the same
        for step in steps:
            drafted = len(step.draft)
            if step.request not in self._latest:
                self._read_prompt(step, step.rows - drafted, now)
            elif step.tokens:
                self.gaps.add(now - self._latest[step.request])
                self._latest[step.request] = now
            if step.tokens:
                self.forwards += 1
                self.tokens += len(step.tokens)
                if step.draft.prepared is not None:
                    self.ahead = self.ahead.counting(step.draft.prepared)
            if drafted:
                self._count_draft(step, drafted)

    def _read_prompt(self, step: Step, fed: int, now: float) -> None:
        fed += self._fed.get(step.request, 0)
        if step.tokens:
            self._fed.pop(step.request, None)
            self._latest[step.request] = now
            self.prompt_tokens += step.position
            self.cached_tokens += step.position - fed
        else:
            self._fed[step.request] = fed

    def _count_draft(self, step: Step, drafted: int) -> None:
        self.drafts += 1
        self.drafted += drafted
        self.accepted += step.accepted
        self.positions.add(max(step.draft.depths), len(step.path))
        self.lengths.add(len(step.path))
        counts = self.by_source.setdefault(self._names["source"].of(public_name(step.draft.source)), [0, 0])
        counts[0] += drafted
        counts[1] += step.accepted

    def ended(self, ended: Ended) -> None:
        self._fed.pop(ended.request, None)
        self._latest.pop(ended.request, None)
        self.endings[ended.ending] += 1
        self.queue.add(ended.queue_seconds)
        self.total.add(ended.total_seconds)
        output, first = ended.output, ended.first_token_seconds
        self.finished["error" if output is None else _REASONS.get(output.finish_reason, output.finish_reason)] += 1
        if first is not None:
            self.first_token.add(first)
        if output is None:
            return
        stats = output.stats
        if first is not None and stats.tokens > 1:
            self.per_token.add((ended.total_seconds - first) / (stats.tokens - 1))
        if not stats.speculation.on:
            error = stats.speculation.error
            reason = stats.speculation.reason if error is None else type(error).__name__
            self.off[self._names["reason"].of(reason)] += 1
        counts = self.by_tag.setdefault(self._names["tag"].of(ended.job.tag), [0, 0, 0])
        for place, count in enumerate((1, stats.tokens, stats.target_forwards)):
            counts[place] += count

    def refused(self) -> None:
        self.requests_refused += 1
