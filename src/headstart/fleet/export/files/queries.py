"""PromQL, as alerts, their tests and the dashboard ask it.

Tokens per forward is G / (G - A), of generated and accepted tokens, summed over engines; the engine's own "acceptance
length" leaves out forwards without a draft and so flatters. Sources of names: vLLM 0.32 (v1/spec_decode/metrics.py,
v1/metrics/loggers.py), SGLang 0.5.23 (observability/metrics_collector.py).
"""

from __future__ import annotations

from headstart.fleet.export.files.deployment import Deployment


def series(one: Deployment, name: str, **more: object) -> str:
    """The series of this export's model, with these labels; the model's name stands first, if not among them."""
    return f"{one.manifest.engine}:{name}{{{labels(one, **more)}}}"


def labels(one: Deployment, **more: object) -> str:
    """The model's name, and these labels; as they stand between braces."""
    found = more if "model_name" in more else {"model_name": one.name, **more}
    return ",".join(f'{label}="{_escaped(str(value))}"' for label, value in found.items())


def growth(one: Deployment, name: str) -> str:
    """By how much a counter grew in ten minutes, over all engines of the model."""
    return f"sum by (model_name) (increase({series(one, name)}[10m]))"


def rate(name: str, *, by: str | None = None, **more: object) -> str:
    """What a counter of vLLM grows by in a second, over the models that the dashboard's reader has chosen."""
    inner = ",".join(['model_name=~"$model"', *(f'{label}="{value}"' for label, value in more.items())])
    return f"{f'sum by ({by})' if by else 'sum'}(rate(vllm:{name}{{{inner}}}[$__rate_interval]))"


def _escaped(value: str) -> str:
    """A label's value as PromQL takes it between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
