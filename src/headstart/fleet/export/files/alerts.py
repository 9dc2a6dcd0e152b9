"""`prometheus.yml`, `prometheus-rules.yaml`: what is scraped, and the alerts.

Tokens per forward is G / (G - A), of generated and accepted tokens, summed over engines; the engine's own "acceptance
length" leaves out forwards without a draft and so flatters. Sources of names: vLLM 0.32 (v1/spec_decode/metrics.py,
v1/metrics/loggers.py), SGLang 0.5.23 (observability/metrics_collector.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.fleet.export.files.deployment import ENGINES, PORT, Deployment, as_yaml

GROUP = "headstart"
RECORDED = "headstart:tokens_per_forward:10m"
TOKENS = 1000
"""Generated tokens in ten minutes below which tokens per forward says too little to raise an alarm."""
SLOWER = 1.5
"""P99 of seconds per output token over that of the same hour of the day before, from which it is an alarm."""
_LEAST = 1.02
"""A bound below this is hardly above plain decoding, and falling below it no sign of anything."""


@dataclass(frozen=True, slots=True)
class Alert:
    """wait: how long the expression must hold. action: what to do."""

    name: str
    expression: str
    wait: str
    severity: str
    summary: str
    description: str
    action: str

    def record(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": self.annotations,
        }

    @property
    def annotations(self) -> dict[str, str]:
        return {"summary": self.summary, "description": self.description, "action": self.action}


def prometheus(one: Deployment) -> str:
    """`prometheus.yml` of the compose file."""
    port = PORT if one.manifest.engine == "vllm" else 30000
    hosts = ENGINES if one.manifest.engine == "vllm" else ("127.0.0.1",)
    found = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["prometheus-rules.yaml"],
        "scrape_configs": [
            {"job_name": one.manifest.engine, "static_configs": [{"targets": [f"{host}:{port}" for host in hosts]}]}
        ],
    }
    return as_yaml(found, "Each engine is asked by itself: a router does not sum their counters.")


def rules(one: Deployment) -> str:
    """`prometheus-rules.yaml`."""
    recorded = {"record": RECORDED, "expr": _tokens_per_forward(one)}
    found = {"groups": [{"name": GROUP, "rules": [recorded, *(alert.record() for alert in alerts(one))]}]}
    return as_yaml(found, "Alerts, each with an annotation that says what to do. Tests: promtool test rules.")


def alerts(one: Deployment) -> list[Alert]:
    """What is raised for this export."""
    sglang = one.manifest.engine == "sglang"
    found = [*_accepts_less(one)]
    if not sglang:
        found += [_drafts_nothing(one), _counters_contradict(one), _preempts(one)]
    return [*found, _slower(one)]


def bound(one: Deployment) -> float | None:
    """The least tokens per forward to expect; None where nothing was measured, or hardly more than one."""
    expected = one.manifest.expected
    low = None if expected is None else expected.tokens_per_forward.low
    return low if low is not None and low >= _LEAST else None


def _tokens_per_forward(one: Deployment) -> str:
    generated = _growth(one, "generation_tokens_total")
    if one.manifest.engine == "sglang":
        return f"{generated} / {_growth(one, 'spec_verify_calls_total')}"
    return f"{generated} / ({generated} - {_growth(one, 'spec_decode_num_accepted_tokens_total')})"


def _growth(one: Deployment, name: str, window: str = "10m") -> str:
    return f"sum by (model_name) (increase({_series(one, name)}[{window}]))"


def _series(one: Deployment, name: str, **labels: str) -> str:
    found = {"model_name": one.name, **labels}
    inner = ",".join(f'{label}="{escaped(value)}"' for label, value in found.items())
    return f"{one.manifest.engine}:{name}{{{inner}}}"


def escaped(value: str) -> str:
    """A label's value as PromQL takes it between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _accepts_less(one: Deployment) -> list[Alert]:
    low = bound(one)
    expected = one.manifest.expected
    if low is None or expected is None:
        return []
    enough = f"{_growth(one, 'generation_tokens_total')} > {TOKENS}"
    return [
        Alert(
            "SpeculationAcceptsLess",
            f"{RECORDED}{{model_name=\"{escaped(one.name)}\"}} < {low:.4f} and on (model_name) {enough}",
            "30m",
            "warning",
            "Fewer drafted tokens are accepted than were measured when this was exported",
            f"Tokens per forward have been below {low:.2f} for half an hour. The export measured "
            f"{expected.tokens_per_forward.value:.2f} on {expected.prompts.source}.",
            "Since the start: the engine reads the drafter wrong (headstart export ... --verify), or the traffic is "
            "not like those prompts (export again with --prompts of your own). Since a moment: the traffic changed. "
            "headstart watch shows which position fell; then headstart adapt, or a lower K.",
        )
    ]  # fmt: skip


def _drafts_nothing(one: Deployment) -> Alert:
    drafts = _growth(one, "spec_decode_num_drafts_total")
    missing = f"(({drafts}) or (0 * {_growth(one, 'generation_tokens_total')}))"
    return Alert(
        "SpeculationDraftsNothing",
        f"{missing} == 0 and on (model_name) {_growth(one, 'generation_tokens_total')} > {TOKENS}",
        "15m",
        "warning",
        "Tokens are generated, and nothing is drafted",
        "The engines' counter of drafts stands still while they generate.",
        "Look whether the engine was started with this vllm.yaml (its log names the speculative config), and whether "
        "its requests use parameters that it does not speculate for.",
    )


def _counters_contradict(one: Deployment) -> Alert:
    by = "sum by (instance, engine, model_name)"
    accepted = f"{by} ({_series(one, 'spec_decode_num_accepted_tokens_total')})"
    drafted = f"{by} ({_series(one, 'spec_decode_num_draft_tokens_total')})"
    positions = f"{by} ({_series(one, 'spec_decode_num_accepted_tokens_per_pos_total')})"
    terms = [f"({accepted} > {drafted})", f"({positions} != {accepted})"]
    for place in range(1, one.manifest.depth):
        here, before = (
            f"{by} ({_series(one, 'spec_decode_num_accepted_tokens_per_pos_total', position=str(i))})"
            for i in (place, place - 1)
        )
        terms.append(f"({here} > {before})")
    return Alert(
        "SpeculationCountersContradict",
        " or ".join(terms),
        "10m",
        "critical",
        "The engine's own counters of speculation contradict each other",
        "Accepted tokens must be at most the drafted ones, be the sum over positions, and fall from one position to "
        "the next.",
        "Trust no figure of this engine. Look whether two engines share one set of labels or one metrics folder; "
        "restart it, and if it happens again report it to vLLM with a copy of /metrics.",
    )


def _preempts(one: Deployment) -> Alert:
    return Alert(
        "EnginePreempts",
        f"sum by (instance, engine, model_name) (increase({_series(one, 'num_preemptions_total')}[10m])) > 0",
        "15m",
        "warning",
        "Requests are preempted: the KV cache is too small for the load",
        "A preempted request loses its cache and is computed again. Drafted tokens take places in the cache, too.",
        "Lower --max-num-seqs or K, give the engine more memory (--gpu-memory-utilization), or add an engine.",
    )


def _slower(one: Deployment) -> Alert:
    sglang = one.manifest.engine == "sglang"
    name = "inter_token_latency_seconds_bucket" if sglang else "request_time_per_output_token_seconds_bucket"
    series = _series(one, name)

    def p99(offset: str = "") -> str:
        return f"histogram_quantile(0.99, sum by (le, model_name) (rate({series}[30m]{offset})))"

    if one.tpot is None:
        limit, words = f"{SLOWER} * ({p99(' offset 1d')})", f"{SLOWER} times that of the day before"
    else:
        limit, words = f"{one.tpot:g}", f"{one.tpot:g} s"
    what = "the gap between tokens" if sglang else "the time per output token"
    return Alert(
        "TokensComeSlowly",
        f"{p99()} > {limit}",
        "15m",
        "warning",
        f"The slowest hundredth of requests waits longer for its tokens: P99 is above {words}",
        f"P99 of {what}, over the last half hour.",
        f"{_load_words(one)} Else compare with an engine that does not speculate, under the same load.",
    )


def _load_words(one: Deployment) -> str:
    off = one.manifest.off_from
    if off is None:
        return "Look at running requests: with more of them at once, guesses cost more and K should be lower."
    return (
        f"By the costs of the export guesses no longer pay from {off} requests at once: if that many run, add an "
        "engine or lower K."
    )
