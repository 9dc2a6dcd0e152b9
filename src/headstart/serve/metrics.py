"""What Prometheus may ask of a server: vLLM's metrics under ``headstart:``, and those that speculation needs besides.

Acceptance by position has a counter of tested tokens beside that of accepted ones: where draft lengths change, accepted
over drafts is no chance of anything, accepted over tested is the conditional acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headstart.serve.bridge import Bridge
from headstart.serve.counts import Counts
from headstart.types import PARTS

PREFIX = "headstart:"


class Metrics(Collector):
    """The page that Prometheus reads. Families, labels and text are made when it asks.

    model: the name under which clients know the model.
    """

    def __init__(self, model: str) -> None:
        self.counts = Counts()
        """To be given to the bridge, as a watcher."""
        self._model = model
        self._bridge: Bridge | None = None
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
        counts = self.counts
        return {
            "generated_tokens": counts.tokens,
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "target_forwards": counts.forwards,
            "drafted_tokens": counts.drafted,
            "accepted_tokens": counts.accepted,
        }

    def collect(self) -> Iterator[Metric]:
        counts = self.counts
        yield from self._gauges()
        for name, help, count in (
            ("prompt_tokens", "Prompt tokens of the requests that have a first token.", counts.prompt_tokens),
            ("generation_tokens", "Generated tokens.", counts.tokens),
            ("prefix_cache_queries", "Prompt tokens that were looked up in the prompt cache.", counts.prompt_tokens),
            ("prefix_cache_hits", "Prompt tokens that were found there.", counts.cached_tokens),
            ("requests_refused", "Requests that were refused because too many wait.", counts.requests_refused),
            ("engine_steps", "Forwards of the target, each over all requests that run.", counts.steps),
            ("target_forwards", "Forwards that judged a position of a request, counted by request.", counts.forwards),
            ("spec_decode_num_drafts", "Drafts that were judged.", counts.drafts),
            ("spec_decode_num_draft_tokens", "Draft tokens, all nodes of trees.", counts.drafted),
            ("spec_decode_num_accepted_tokens", "Draft tokens that were accepted.", counts.accepted),
            ("ahead_hits", "Drafts made ahead that were ready when asked for.", counts.ahead.hits),
            ("ahead_misses", "Drafts made anew, since a round came to what was not foreseen.", counts.ahead.misses),
        ):
            yield self._counter(name, help, {"": count})
        positions = counts.positions
        for name, help, row in (
            ("tested", "Draft tokens at this position whose fate is known.", positions.tested),
            ("accepted", "Draft tokens that were accepted at this position.", positions.accepted),
        ):
            by_place = {str(place): count for place, count in enumerate(tuple(row))}
            yield self._counter(f"spec_decode_num_{name}_tokens_per_pos", help, by_place, "position")
        yield from self._by_name()
        yield from self._histograms()

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

    def _by_name(self) -> Iterator[Metric]:
        counts = self.counts
        sources, tags = dict(counts.by_source), dict(counts.by_tag)
        parts = {part: getattr(counts.seconds, part) for part in PARTS}
        yield self._counter("step_seconds", "Seconds of engine steps, by part.", parts, "part")
        yield self._counter("drafted_by", "Draft tokens by source.", _column(sources, 0), "source")
        yield self._counter("accepted_by", "Accepted draft tokens by source.", _column(sources, 1), "source")
        yield self._counter("tagged_requests", "Ended requests by the client's tag.", _column(tags, 0), "tag")
        yield self._counter("tagged_generation_tokens", "Generated tokens by tag.", _column(tags, 1), "tag")
        yield self._counter("tagged_target_forwards", "Judging forwards by tag.", _column(tags, 2), "tag")
        yield self._counter(
            "request_success", "Ended requests by finish reason.", dict(counts.finished), "finished_reason"
        )
        yield self._counter("request_ended_by", "Ended requests by who ended them.", dict(counts.endings), "ending")
        yield self._counter(
            "speculation_off", "Ended requests without speculation, by reason.", dict(counts.off), "reason"
        )

    def _histograms(self) -> Iterator[Metric]:
        counts = self.counts
        for name, help, buckets in (
            ("time_to_first_token_seconds", "From a request's arrival to its first token.", counts.first_token),
            ("time_per_output_token_seconds", "A request's mean after its first token.", counts.per_token),
            ("e2e_request_latency_seconds", "From a request's arrival to its end.", counts.total),
            ("request_queue_time_seconds", "From a request's arrival until it had a slot.", counts.queue),
            ("chunk_gap_seconds", "Between two chunks of tokens of one request.", counts.gaps),
            ("accepted_length", "Accepted tokens of a draft.", counts.lengths),
        ):
            family = HistogramMetricFamily(PREFIX + name, help, labels=["model_name"])
            family.add_metric([self._model], buckets.cumulative(), buckets.sum)
            yield family

    def _counter(self, name: str, help: str, counts: Mapping[str, float], label: str = "") -> Metric:
        """One counter; by the values of a label, if it has one."""
        family = CounterMetricFamily(PREFIX + name, help, labels=["model_name", *([label] if label else [])])
        for value, count in counts.items():
            family.add_metric([self._model, *([value] if label else [])], count)
        return family


def _column(counts: Mapping[str, Iterable[int]], place: int) -> dict[str, float]:
    return {name: tuple(row)[place] for name, row in counts.items()}


def dashboard() -> str:
    """A Grafana dashboard of these metrics, as JSON to import."""
    return files("headstart.serve").joinpath("grafana.json").read_text(encoding="utf-8")
