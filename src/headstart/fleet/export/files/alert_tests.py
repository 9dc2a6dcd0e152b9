"""`prometheus-rules-test.yaml`: each alert fires where it should and stays silent where all is well.

Run with `promtool test rules prometheus-rules-test.yaml`; promtool comes with Prometheus. The series are made up: a
sample every five minutes, for a little more than the day that an alarm looks back, as `start+step x count`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headstart.fleet.export.files.alerts import Alert, alerts, bound, escaped
from headstart.fleet.export.files.deployment import Deployment, as_yaml

_EVERY = 5
"""Minutes between two samples."""
_SAMPLES = 26 * 60 // _EVERY
_LATE = 120 // _EVERY
_AT, _SOON = "25h40m", "2h"
"""When alarms are looked at: a day later where one compares with the day before."""
_G = 6000
"""Generated tokens in that time."""


def rule_tests(one: Deployment) -> str:
    """The file."""
    tests = [_test(one, "all is well", [], _series(one))]
    for alert in alerts(one):
        broken = _BROKEN[alert.name](one)
        labels = _labels(one, alert)
        tests.append(_test(one, alert.name, [(alert, labels)], _series(one) | broken))
    head = "promtool test rules prometheus-rules-test.yaml"
    return as_yaml({"rule_files": ["prometheus-rules.yaml"], "evaluation_interval": f"{_EVERY}m", "tests": tests}, head)


def _test(one: Deployment, name: str, fired: list[tuple[Alert, dict[str, str]]], series: dict[str, str]) -> Any:
    names = {alert.name: labels for alert, labels in fired}
    return {
        "name": name,
        "interval": f"{_EVERY}m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": _AT if not fired or "TokensComeSlowly" in names else _SOON,
                "alertname": alert.name,
                "exp_alerts": [
                    {"exp_labels": {**names[alert.name], "severity": alert.severity},
                     "exp_annotations": alert.annotations}
                ] if alert.name in names else [],
            }
            for alert in alerts(one)
            if not fired or alert.name in names
        ],
    }  # fmt: skip


def _labels(one: Deployment, alert: Alert) -> dict[str, str]:
    """The labels of the alert as it fires."""
    if alert.name in ("SpeculationCountersContradict", "EnginePreempts"):
        return {"instance": "engine-1:8000", "engine": "0", "model_name": one.name}
    return {"model_name": one.name}


# -- series -----------------------------------------------------------------------------------------------------------


def _key(one: Deployment, name: str, **more: str) -> str:
    labels = {"instance": "engine-1:8000", "engine": "0", "model_name": one.name, **more}
    if one.manifest.engine == "sglang":
        del labels["engine"]
    inner = ",".join(f'{label}="{escaped(value)}"' for label, value in labels.items())
    return f"{one.manifest.engine}:{name}{{{inner}}}"


def _counter(step: int, count: int = _SAMPLES) -> str:
    return f"0+{step}x{count}"


def _series(one: Deployment) -> dict[str, str]:
    """An engine that does what the export expects."""
    expected = one.manifest.expected
    ratio = 1.5 if expected is None else max(1.01, expected.tokens_per_forward.value)
    return _speculation(one, ratio) | _latency(one)


def _speculation(one: Deployment, ratio: float) -> dict[str, str]:
    """Counters of an engine with so many tokens per forward, where all accepted tokens stand at falling positions."""
    if one.manifest.engine == "sglang":
        return {
            _key(one, "generation_tokens_total"): _counter(_G),
            _key(one, "spec_verify_calls_total"): _counter(round(_G / ratio)),
        }
    depth = one.manifest.depth
    accepted = round(_G * (1 - 1 / ratio))
    shares = [accepted // depth] * depth
    shares[0] += accepted - sum(shares)
    found = {
        _key(one, "generation_tokens_total"): _counter(_G),
        _key(one, "spec_decode_num_accepted_tokens_total"): _counter(accepted),
        _key(one, "spec_decode_num_drafts_total"): _counter(_G - accepted),
        _key(one, "spec_decode_num_draft_tokens_total"): _counter((_G - accepted) * depth),
        _key(one, "num_preemptions_total"): _counter(0),
    }
    for place, share in enumerate(shares):
        found[_key(one, "spec_decode_num_accepted_tokens_per_pos_total", position=str(place))] = _counter(share)
    return found


def _latency(one: Deployment, *, late: bool = False) -> dict[str, str]:
    """A histogram of quick requests; late: in the last two hours all are slow."""
    name = "inter_token_latency_seconds_bucket" if one.manifest.engine == "sglang" else (
        "request_time_per_output_token_seconds_bucket"
    )  # fmt: skip
    quick = f"0+100x{_SAMPLES - _LATE} {100 * (_SAMPLES - _LATE)}+0x{_LATE - 1}" if late else _counter(100)
    return {
        _key(one, name, le="0.0001"): quick,
        _key(one, name, le="100000"): _counter(100),
        _key(one, name, le="+Inf"): _counter(100),
    }


def _less(one: Deployment) -> dict[str, str]:
    return _speculation(one, 1 + ((bound(one) or 1.0) - 1) / 2)


def _nothing(one: Deployment) -> dict[str, str]:
    return {key: _counter(0) for key in _speculation(one, 1.5) if "spec_decode" in key}


_BROKEN: Mapping[str, Callable[[Deployment], dict[str, str]]] = {
    "SpeculationAcceptsLess": _less,
    "SpeculationDraftsNothing": _nothing,
    "SpeculationCountersContradict": lambda one: {_key(one, "spec_decode_num_draft_tokens_total"): _counter(1)},
    "EnginePreempts": lambda one: {_key(one, "num_preemptions_total"): _counter(3)},
    "TokensComeSlowly": lambda one: _latency(one, late=True),
}
"""By alert, the series that raise it."""
