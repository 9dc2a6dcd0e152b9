"""The files of an export, each a pure function of a `Deployment`; `all_files` names them.

Nothing here reads or writes. What is a path on the serving machine stands in `Deployment`; in clusters the same things
lie below the mount.
"""

from __future__ import annotations

from headstart.fleet.export.files import alert_tests, alerts, clusters, dashboard, engines, readme
from headstart.fleet.export.files.deployment import Deployment, as_yaml

_VLLM_HEAD = """For vLLM: vllm serve --config vllm.yaml. Keys are its long options.
`method` must stay: without it vLLM guesses it from the drafter's path."""


def all_files(one: Deployment) -> dict[str, str]:
    """The text of every file but the drafter's, the manifest and the prompts, by its place in the folder. Scripts end
    in ".sh"."""
    shared = {
        "prometheus.yml": alerts.prometheus(one),
        "prometheus-rules.yaml": alerts.rules(one),
        "prometheus-rules-test.yaml": alert_tests.rule_tests(one),
        "README.md": readme.readme(one),
    }
    if one.manifest.engine == "sglang":
        return {"serve-sglang.sh": engines.serve_sglang(one), **shared}
    return {
        "vllm.yaml": as_yaml(dict(one.values), _VLLM_HEAD),
        "serve-vllm.sh": engines.serve_vllm(one),
        "compose.yaml": clusters.compose(one),
        "k8s/production-stack-values.yaml": clusters.production_stack(one),
        "k8s/kserve.yaml": clusters.kserve(one),
        "ray-serve.yaml": clusters.ray_serve(one),
        "grafana.json": dashboard.dashboard(one),
        **shared,
    }
