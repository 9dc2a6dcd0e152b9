"""`prometheus-rules-test.yaml`: each alert fires where it should and stays silent where all is well.

Run with `promtool test rules prometheus-rules-test.yaml`; promtool comes with Prometheus. The series are made up: a
sample every five minutes, for a little more than the day that an alarm looks back, as `start+step x count`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.fleet.export.files.deployment import Deployment, as_yaml
from headstart.fleet.export.files.queries import series

_EVERY = 5
"""Minutes between two samples."""
_SAMPLES = 26 * 60 // _EVERY
_LATE = 120 // _EVERY
_AT, _SOON = "25h40m", "2h"
"""When alarms are looked at: a day later where one compares with the day before."""
_G = 6000
"""Generated tokens in that time."""
_BY_ENGINE = ("SpeculationCountersContradict", "EnginePreempts")
"""Alerts that name the engine."""


def rule_tests(one: Deployment, alerts: Sequence[Mapping[str, Any]]) -> str:
    """The file. alerts: of `prometheus-rules.yaml`."""
    expected = one.manifest.expected
    well = _speculation(one, 1.5 if expected is None else max(1.01, expected.tokens_per_forward.value)) | _latency(one)
    broken = _broken(one)
    tests = [_test(one, "all is well", well, alerts, fires=False)]
    tests += [_test(one, each["alert"], well | broken[each["alert"]], [each], fires=True) for each in alerts]
    head = "promtool test rules prometheus-rules-test.yaml"
    return as_yaml({"rule_files": ["prometheus-rules.yaml"], "evaluation_interval": f"{_EVERY}m", "tests": tests}, head)


def _test(
    one: Deployment, name: str, counted: Mapping[str, str], alerts: Sequence[Mapping[str, Any]], *, fires: bool
) -> dict[str, Any]:
    looks = []
    for alert in alerts:
        engine = {"instance": "engine-1:8000", "engine": "0"} if alert["alert"] in _BY_ENGINE else {}
        labels = {**engine, "model_name": one.name, **alert["labels"]}
        looks.append({
            "eval_time": _SOON if fires and alert["alert"] != "TokensComeSlowly" else _AT,
            "alertname": alert["alert"],
            "exp_alerts": [{"exp_labels": labels, "exp_annotations": alert["annotations"]}] if fires else [],
        })  # fmt: skip
    given = [{"series": key, "values": values} for key, values in counted.items()]
    return {"name": name, "interval": f"{_EVERY}m", "input_series": given, "alert_rule_test": looks}


def _key(one: Deployment, name: str, **more: object) -> str:
    engine = {} if one.sglang else {"engine": "0"}
    return series(one, name, **{"instance": "engine-1:8000", **engine, "model_name": one.name, **more})


def _counter(step: int) -> str:
    return f"0+{step}x{_SAMPLES}"


def _speculation(one: Deployment, ratio: float) -> dict[str, str]:
    """Counters of an engine with so many tokens per forward, where all accepted tokens stand at falling positions."""
    if one.sglang:
        counts = {"generation_tokens_total": _G, "spec_verify_calls_total": round(_G / ratio)}
        return {_key(one, name): _counter(count) for name, count in counts.items()}
    depth, accepted = one.manifest.depth, round(_G * (1 - 1 / ratio))
    counts = {
        "generation_tokens_total": _G,
        "spec_decode_num_accepted_tokens_total": accepted,
        "spec_decode_num_drafts_total": _G - accepted,
        "spec_decode_num_draft_tokens_total": (_G - accepted) * depth,
        "num_preemptions_total": 0,
    }
    shares = [accepted // depth + (accepted % depth if place == 0 else 0) for place in range(depth)]
    by_position = {
        _key(one, "spec_decode_num_accepted_tokens_per_pos_total", position=place): _counter(share)
        for place, share in enumerate(shares)
    }
    return {_key(one, name): _counter(count) for name, count in counts.items()} | by_position


def _latency(one: Deployment, *, late: bool = False) -> dict[str, str]:
    """A histogram of quick requests; late: in the last two hours all are slow."""
    name = "inter_token_latency_seconds_bucket" if one.sglang else "request_time_per_output_token_seconds_bucket"
    quick = f"0+100x{_SAMPLES - _LATE} {100 * (_SAMPLES - _LATE)}+0x{_LATE - 1}" if late else _counter(100)
    return {
        _key(one, name, le="0.0001"): quick,
        _key(one, name, le="100000"): _counter(100),
        _key(one, name, le="+Inf"): _counter(100),
    }


def _broken(one: Deployment) -> dict[str, dict[str, str]]:
    """By alert, the series that raise it."""
    return {
        "SpeculationAcceptsLess": _speculation(one, 1 + ((one.bound or 1.0) - 1) / 2),
        "SpeculationDraftsNothing": {key: _counter(0) for key in _speculation(one, 1.5) if "spec_decode" in key},
        "SpeculationCountersContradict": {_key(one, "spec_decode_num_draft_tokens_total"): _counter(1)},
        "EnginePreempts": {_key(one, "num_preemptions_total"): _counter(3)},
        "TokensComeSlowly": _latency(one, late=True),
    }
