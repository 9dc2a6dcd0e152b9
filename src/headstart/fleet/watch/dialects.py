"""What the counters of each kind of server are called on its page for Prometheus.

Sources: headstart's own `serve/metrics.py`; vLLM 0.32 `v1/metrics/loggers.py` and `v1/spec_decode/metrics.py`;
SGLang 0.5.23 `srt/observability/metrics_collector.py`; llama.cpp's server, whose names for speculation are taken in
each of the spellings that are plausible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one kind of server. Where a field has several names, the first that occurs is taken."""

    kind: str
    prefix: str
    """What every name begins with, and no name of another kind."""
    totals: Mapping[str, tuple[str, ...]]
    """By field of `Counters`: names of counters, without the prefix."""
    gauges: Mapping[str, tuple[str, ...]]
    """The same for values of the moment."""
    positions: Mapping[str, tuple[str, ...]]
    """The same for counters with a label `position`, which counts from 0."""
    histograms: Mapping[str, tuple[str, ...]]
    """By field: names of histograms."""
    engine_label: str | None = None
    """The label by which the engines of one server differ, if it has several."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Labels whose other values repeat this one's; samples that have them are left out."""


_SPECULATION = {
    "drafts": ("spec_decode_num_drafts_total",),
    "drafted": ("spec_decode_num_draft_tokens_total",),
    "accepted": ("spec_decode_num_accepted_tokens_total",),
}
_ENDED = ("request_success_total",)
_GAUGES = {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}

HEADSTART = Dialect(
    kind="headstart",
    prefix="headstart:",
    totals={
        **_SPECULATION,
        "generated": ("generation_tokens_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "counted_forwards": ("target_forwards_total",),
        "ended": _ENDED,
    },
    gauges=_GAUGES,
    positions={
        "accepted_per_position": ("spec_decode_num_accepted_tokens_per_pos_total",),
        "tested_per_position": ("spec_decode_num_tested_tokens_per_pos_total",),
    },
    histograms={"first_token": ("time_to_first_token_seconds",), "per_token": ("time_per_output_token_seconds",)},
)
VLLM = Dialect(
    kind="vllm",
    prefix="vllm:",
    totals={
        **_SPECULATION,
        "generated": ("generation_tokens_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "preemptions": ("num_preemptions_total",),
        "ended": _ENDED,
    },
    gauges=_GAUGES,
    positions={
        "accepted_per_position": ("spec_decode_num_accepted_tokens_per_pos_total",),
        "drafted_per_position": ("spec_decode_num_draft_tokens_per_pos_total",),
    },
    # inter_token_latency_seconds is left out: it is the gap between two steps, and a step gives several tokens
    histograms={
        "first_token": ("time_to_first_token_seconds",),
        "per_token": ("request_time_per_output_token_seconds",),
    },
    engine_label="engine",
)
SGLANG = Dialect(
    kind="sglang",
    prefix="sglang:",
    totals={
        "generated": ("generation_tokens_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "counted_forwards": ("spec_verify_calls_total",),
        "preemptions": ("num_retracted_requests_total", "num_retractions_total"),
        "ended": ("num_requests_total",),
    },
    gauges={
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "kv_usage": ("token_usage",),
    },
    positions={},
    histograms={
        "first_token": ("time_to_first_token_seconds",),
        "per_token": ("time_per_output_token_seconds", "inter_token_latency_seconds"),
    },
    only={"tp_rank": "0", "pp_rank": "0"},
)
LLAMA_CPP = Dialect(
    kind="llama.cpp",
    prefix="llamacpp:",
    totals={
        "drafts": ("spec_decode_num_drafts_total", "spec_decode_num_drafts"),
        "drafted": ("spec_decode_num_draft_tokens_total", "spec_decode_num_draft_tokens"),
        "accepted": ("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
        "generated": ("tokens_predicted_total", "tokens_predicted"),
        "prompt_tokens": ("prompt_tokens_total",),
    },
    gauges={
        "running": ("requests_processing",),
        "waiting": ("requests_deferred",),
        "kv_usage": ("kv_cache_usage_ratio",),
    },
    positions={
        "accepted_per_position": (
            "spec_decode_num_accepted_tokens_per_pos_total",
            "spec_decode_num_accepted_tokens_per_pos",
            "spec_decode_accepted_tokens_per_pos_total",
            "spec_decode_accepted_tokens_per_pos",
        ),
    },
    histograms={},
)
DIALECTS = (HEADSTART, VLLM, SGLANG, LLAMA_CPP)
