"""What Prometheus may ask of a server: vLLM's metrics under ``headstart:``, and those that speculation needs besides.

Acceptance by position has a counter of tested tokens beside that of accepted ones: where draft lengths change, accepted
over drafts is no chance of anything, accepted over tested is the conditional acceptance.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headstart.serve.bridge import Bridge
from headstart.serve.events import FIRST_TOKEN_SECONDS, TOKEN_SECONDS, Ended, Event, Refused, Stepped
from headstart.serve.names import Names, public_name
from headstart.theory.rounds import PositionCounts
from headstart.types import Seconds, Step

PREFIX = "headstart:"
_REQUEST_SECONDS = (
    0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0,
)  # fmt: skip
_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
_REASONS = {"cancelled": "abort"}
"""vLLM's word for a finish reason, where it differs."""
_TOTALS = {
    "prompt_tokens": "Prompt tokens of the requests that have a first token.",
    "generation_tokens": "Generated tokens.",
    "prefix_cache_queries": "Prompt tokens that were looked up in the prompt cache.",
    "prefix_cache_hits": "Prompt tokens that were found there.",
    "requests_refused": "Requests that were refused because too many wait.",
    "engine_steps": "Forwards of the target, each over all requests that run.",
    "target_forwards": "Forwards that judged a position of a request, counted by request.",
    "spec_decode_num_drafts": "Drafts that were judged.",
    "spec_decode_num_draft_tokens": "Draft tokens, all nodes of trees.",
    "spec_decode_num_accepted_tokens": "Draft tokens that were accepted.",
    "ahead_hits": "Drafts made ahead that were ready when asked for.",
    "ahead_misses": "Drafts made again, because the round ended in an outcome that was not foreseen.",
}
_POSITIONS = {
    "tested": "Draft tokens at this position whose fate is known.",
    "accepted": "Draft tokens that were accepted at this position.",
}
_BY_LABEL = {
    "step_seconds": ("part", "Seconds of engine steps, by part."),
    "drafted_by": ("source", "Draft tokens by source."),
    "accepted_by": ("source", "Accepted draft tokens by source."),
    "tagged_requests": ("tag", "Ended requests by the client's tag."),
    "tagged_generation_tokens": ("tag", "Generated tokens by tag."),
    "tagged_target_forwards": ("tag", "Judging forwards by tag."),
    "request_success": ("finished_reason", "Ended requests by finish reason."),
    "request_ended_by": ("ending", "Ended requests by who ended them."),
    "speculation_off": ("reason", "Ended requests without speculation, by reason."),
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": (FIRST_TOKEN_SECONDS, "From a request's arrival to its first token."),
    "time_per_output_token_seconds": (TOKEN_SECONDS, "A request's mean after its first token."),
    "e2e_request_latency_seconds": (_REQUEST_SECONDS, "From a request's arrival to its end."),
    "request_queue_time_seconds": (_REQUEST_SECONDS, "From a request's arrival until it had a slot."),
    "chunk_gap_seconds": (TOKEN_SECONDS, "Between two chunks of tokens of one request."),
    "accepted_length": (_LENGTHS, "Accepted tokens of a draft."),
}


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


class Metrics(Collector):
    """A subscriber of `Events` that adds up, and the page that Prometheus reads of it.

    Numbers are added up on the engine's thread, since the server was started. prometheus_client's own counters take a
    lock for each addition, so plain numbers are kept; families, labels and text are made when the page is asked for.

    model: the name under which clients know the model.
    """

    def __init__(self, model: str) -> None:
        self.total: dict[str, int] = dict.fromkeys(_TOTALS, 0)
        self.positions = PositionCounts()
        """Of all drafts."""
        self.by_label: dict[str, defaultdict[str, int]] = {name: defaultdict(int) for name in _BY_LABEL}
        self.seconds = Seconds()
        """Of engine steps."""
        self.histograms = {name: Buckets(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
        self._drafted_by, self._accepted_by = self.by_label["drafted_by"], self.by_label["accepted_by"]
        self._gaps, self._lengths = self.histograms["chunk_gap_seconds"], self.histograms["accepted_length"]
        self._model = model
        self._bridge: Bridge | None = None
        self._names = {label: Names() for label in ("tag", "reason", "source")}
        self._sources: dict[str, str] = {}  # by the engine's name of a drafter, the one that is shown
        self._fed: dict[int, int] = {}  # by request without a token, the rows of its prompt that were computed
        self._latest: dict[int, float] = {}  # by request with a token, when its latest came
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def follow(self, bridge: Bridge) -> None:
        """Show also who runs and waits there."""
        self._bridge = bridge

    def exposition(self) -> tuple[bytes, str]:
        """The page, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def totals(self) -> dict[str, int]:
        """What was counted since the start, as plain numbers: for those who look several times a second."""
        total = self.total
        return {
            "generated_tokens": total["generation_tokens"],
            "prompt_tokens": total["prompt_tokens"],
            "cached_tokens": total["prefix_cache_hits"],
            "target_forwards": total["target_forwards"],
            "drafted_tokens": total["spec_decode_num_draft_tokens"],
            "accepted_tokens": total["spec_decode_num_accepted_tokens"],
        }

    # -- what happens ---------------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        match event:
            case Stepped():
                self._count_steps(event.steps, event.now)
            case Ended():
                self._count_end(event)
            case Refused():
                self.total["requests_refused"] += 1

    def _count_steps(self, steps: Sequence[Step], now: float) -> None:
        total, latest = self.total, self._latest
        if steps:
            total["engine_steps"] += 1
            self.seconds += steps[0].seconds  # of the whole step: all its events have the same
        for step in steps:
            drafted = len(step.draft)
            if step.request not in latest:
                self._read_prompt(step, step.rows - drafted, now)
            elif step.tokens:
                self._gaps.add(now - latest[step.request])
                latest[step.request] = now
            if step.tokens:
                total["target_forwards"] += 1
                total["generation_tokens"] += len(step.tokens)
                prepared = step.draft.prepared
                if prepared is not None and prepared.foreseen:
                    total["ahead_hits" if prepared.hit else "ahead_misses"] += 1
            if step.draft.guesses:
                self._count_draft(step, step.draft.guesses)

    def _read_prompt(self, step: Step, fed: int, now: float) -> None:
        fed += self._fed.get(step.request, 0)
        if step.tokens:
            self._fed.pop(step.request, None)
            self._latest[step.request] = now
            self.total["prompt_tokens"] += step.position
            self.total["prefix_cache_queries"] += step.position
            self.total["prefix_cache_hits"] += step.position - fed
        else:
            self._fed[step.request] = fed

    def _count_draft(self, step: Step, drafted: int) -> None:
        total, accepted = self.total, step.accepted - step.forced
        total["spec_decode_num_drafts"] += 1
        total["spec_decode_num_draft_tokens"] += drafted
        total["spec_decode_num_accepted_tokens"] += accepted
        right = step.draft.guesses_in(step.path)
        self.positions.add(step.draft.guessed_levels, right)
        self._lengths.add(right)
        source = self._sources.get(step.draft.source)
        if source is None:
            source = self._names["source"].of(public_name(step.draft.source))
            self._sources[step.draft.source] = source
        self._drafted_by[source] += drafted
        self._accepted_by[source] += accepted

    def _count_end(self, ended: Ended) -> None:
        self._fed.pop(ended.request, None)
        self._latest.pop(ended.request, None)
        output, by_label = ended.output, self.by_label
        by_label["request_ended_by"][ended.ending] += 1
        reason = "error" if output is None else _REASONS.get(output.finish_reason, output.finish_reason)
        by_label["request_success"][reason] += 1
        for name, seconds in (
            ("request_queue_time_seconds", ended.queue_seconds),
            ("e2e_request_latency_seconds", ended.total_seconds),
            ("time_to_first_token_seconds", ended.first_token_seconds),
            ("time_per_output_token_seconds", ended.seconds_per_token),
        ):
            if seconds is not None:
                self.histograms[name].add(seconds)
        if output is None:
            return
        stats = output.stats
        if not stats.speculation.on:
            error = stats.speculation.error
            off = stats.speculation.reason if error is None else type(error).__name__
            by_label["speculation_off"][self._names["reason"].of(off)] += 1
        tag = self._names["tag"].of(ended.job.tag)
        by_label["tagged_requests"][tag] += 1
        by_label["tagged_generation_tokens"][tag] += stats.tokens
        by_label["tagged_target_forwards"][tag] += stats.target_forwards

    # -- the page -------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        for name, help in _TOTALS.items():
            yield self._counter(name, help, {"": self.total[name]})
        for name, help in _POSITIONS.items():
            by_place = {str(place): count for place, count in enumerate(tuple(getattr(self.positions, name)))}
            yield self._counter(f"spec_decode_num_{name}_tokens_per_pos", help, by_place, "position")
        for name, (label, help) in _BY_LABEL.items():
            counts = asdict(self.seconds) if name == "step_seconds" else dict(self.by_label[name])
            yield self._counter(name, help, counts, label)
        for name, (_, help) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(PREFIX + name, help, labels=["model_name"])
            family.add_metric([self._model], self.histograms[name].cumulative(), self.histograms[name].sum)
            yield family

    def _gauges(self) -> Iterator[Metric]:
        bridge = self._bridge
        if bridge is None:
            return
        slots, facts = bridge.slots(), bridge.describe()
        held = sum(slot.tokens for slot in slots) / (len(slots) * facts["max_length"])
        for name, help, value in (
            ("num_requests_running", "Requests that have a slot.", sum(slot.request is not None for slot in slots)),
            ("num_requests_waiting", "Requests that wait for a slot.", bridge.queued),
            ("kv_cache_usage_perc", "Share of the cache's places that hold a token; 1 is all.", held),
            ("engine_failed", "1 where the engine has failed for good.", bridge.failure is not None),
        ):
            family = GaugeMetricFamily(PREFIX + name, help, labels=["model_name"])
            family.add_metric([self._model], float(value))
            yield family

    def _counter(self, name: str, help: str, counts: Mapping[str, float], label: str = "") -> Metric:
        """One counter; by the values of a label, if it has one."""
        family = CounterMetricFamily(PREFIX + name, help, labels=["model_name", *([label] if label else [])])
        for value, count in counts.items():
            family.add_metric([self._model, *([value] if label else [])], count)
        return family


def dashboard() -> str:
    """A Grafana dashboard of these metrics, as JSON to import."""
    return files("headstart.serve").joinpath("grafana.json").read_text(encoding="utf-8")
