"""Several engines: `docker compose up`, the chart of vLLM's production-stack, a service of KServe, and Ray Serve.

Compose starts two engines, a router before them, and Prometheus; folders are mounted where they lie outside, so that
`vllm.yaml` holds inside the containers as it is. In clusters target/ and drafter/ lie on a volume. Sources:
production-stack (helm/templates, chart 0.1.12), KServe's `LLMInferenceService` (serving.kserve.io/v1alpha2,
config/llmisvcconfig), Ray Serve LLM (`LLMConfig`).
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from headstart.fleet.export.architectures import VERSIONS
from headstart.fleet.export.files.deployment import ENGINES, PORT, ROUTER, Deployment, as_yaml
from headstart.fleet.vllm import as_flags

PROMETHEUS = "prom/prometheus:v3.5.0"
_HEALTH = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)"
_CACHE = "/root/.cache/huggingface"


def compose(one: Deployment) -> str:
    services: dict[str, Any] = {name: _engine(one, number) for number, name in enumerate(ENGINES)}
    services["router"] = {
        "image": f"headstart-{ROUTER.replace('==', ':')}",
        "build": {
            "context": ".",
            "dockerfile_inline": f"FROM python:3.12-slim\nRUN pip install --no-cache-dir {ROUTER}\n",
        },
        "command": [
            "vllm-router", "--worker-urls", *(f"http://{name}:{PORT}" for name in ENGINES), "--policy", "round_robin",
            "--host", "0.0.0.0", "--port", str(PORT),
        ],
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "depends_on": {name: {"condition": "service_healthy"} for name in ENGINES},
        "restart": "unless-stopped",
    }  # fmt: skip
    services["prometheus"] = {
        "image": PROMETHEUS,
        "volumes": [
            _bind(f"./{name}", f"/etc/prometheus/{name}") for name in ("prometheus.yml", "prometheus-rules.yaml")
        ],
        "ports": ["127.0.0.1:9090:9090"],
        "restart": "unless-stopped",
    }
    found: dict[str, Any] = {"name": f"headstart-{one.slug}", "services": services}
    if not one.target_is_local:
        found["volumes"] = {"models": {}}
    head = "Two engines, a router and Prometheus: docker compose up. Clients: http://127.0.0.1:8000/v1"
    return as_yaml(found, head)


def _engine(one: Deployment, number: int) -> dict[str, Any]:
    environment: dict[str, Any] = {} if one.target_is_local else {"HF_TOKEN": "${HF_TOKEN:-}"}
    if one.cpu:
        environment["VLLM_CPU_KVCACHE_SPACE"] = "${VLLM_CPU_KVCACHE_SPACE:-4}"
    mounts = [_bind(".", one.folder)]
    if one.target_is_local:
        place = one.manifest.target.name
        mounts.append(_bind(f"${{TARGET:-{one.manifest.target.path or place}}}", place))
    else:
        mounts.append({"type": "volume", "source": "models", "target": _CACHE})
    found: dict[str, Any] = {
        "image": one.image,
        "entrypoint": ["vllm", "serve"],
        "command": ["--config", f"{one.folder}/vllm.yaml", "--host", "0.0.0.0", "--port", str(PORT)],
        "volumes": mounts,
        "shm_size": "4gb",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _HEALTH],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": "15m",
        },
        "restart": "unless-stopped",
    }
    if environment:
        found["environment"] = environment
    if one.gpus:
        ids = [str(number * one.gpus + i) for i in range(one.gpus)]
        device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
        found["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return found


def _bind(source: str, target: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "target": target, "read_only": True}


CLAIM = "headstart-models"
"""The name of the volume's claim, which the user makes."""
_KSERVE_DRAFTER = "/mnt/drafter"  # /models is KServe's own cache
_CHART_KEYS = {"dtype": "dtype", "max-model-len": "maxModelLen", "tensor-parallel-size": "tensorParallelSize",
               "max-num-seqs": "maxNumSeqs"}  # fmt: skip


def production_stack(one: Deployment) -> str:
    """Values for `helm install ... vllm/vllm-stack -f`."""
    values = one.in_cluster()
    config: dict[str, Any] = {ours: values[name] for name, ours in _CHART_KEYS.items() if name in values}
    # Where the chart finds no word on prefix caching it switches it off
    config["enablePrefixCaching"] = values.get("enable-prefix-caching", True)
    without = ("model", "revision", "enable-prefix-caching", *_CHART_KEYS)
    config["extraArgs"] = as_flags(values, without=without)
    repository, _, tag = one.image.rpartition(":")
    spec: dict[str, Any] = {
        "name": one.slug,
        "repository": repository,
        "tag": tag,
        "modelURL": values["model"],
        "replicaCount": 2,
        "requestCPU": 6,
        "requestMemory": "16Gi",
        "requestGPU": one.gpus,
        "vllmConfig": config,
    }
    if "revision" in values:
        spec["modelRevision"] = values["revision"]
    if one.target_is_local or one.has_drafter:
        spec["extraVolumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}]
        spec["extraVolumeMounts"] = [{"name": "models", "mountPath": one.mount, "readOnly": True}]
    found = {"servingEngineSpec": {"modelSpec": [spec], "serviceMonitor": {"enabled": True}}}
    head = (
        "For the chart of vLLM's production-stack:\n"
        "  helm repo add vllm https://vllm-project.github.io/production-stack\n"
        f"  helm install headstart vllm/vllm-stack -f production-stack-values.yaml\n"
        f"{_claim_words(one)}"
    )
    return as_yaml(found, head)


def kserve(one: Deployment) -> str:
    """An `LLMInferenceService`.

    KServe puts its arguments into a line that bash evaluates once more, so each is quoted for a shell here.
    """
    values = one.in_cluster(drafter=_KSERVE_DRAFTER)
    words = as_flags(values, without=("model", "served-model-name", "tensor-parallel-size", "revision"))
    container: dict[str, Any] = {
        "name": "main",
        "image": one.image,
        "args": [shlex.quote(word) for word in words],
    }
    if one.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(one.gpus)}}
    template: dict[str, Any] = {"containers": [container]}
    if one.has_drafter:
        container["volumeMounts"] = [
            {"name": "drafter", "mountPath": _KSERVE_DRAFTER, "subPath": "drafter", "readOnly": True}
        ]
        template["volumes"] = [{"name": "drafter", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}]
    uri = f"pvc://{CLAIM}/target" if one.target_is_local else f"hf://{values['model']}"
    spec: dict[str, Any] = {"model": {"uri": uri, "name": one.name}, "replicas": 2}
    if isinstance(values.get("tensor-parallel-size"), int):
        spec["parallelism"] = {"tensor": values["tensor-parallel-size"]}
    spec |= {"template": template, "router": {"gateway": {}, "route": {}, "scheduler": {}}}
    found = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": one.slug},
        "spec": spec,
    }
    return as_yaml(found, f"For KServe: kubectl apply -f kserve.yaml\n{_claim_words(one, mounted=False)}")


def ray_serve(one: Deployment) -> str:
    """For `serve run ray-serve.yaml`, or as `serveConfigV2` of a RayService."""
    values = one.in_cluster()
    model = values.pop("model")
    values.pop("served-model-name")
    engine = {name.replace("-", "_"): value for name, value in values.items()}
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": one.name, "model_source": model},
        "engine_kwargs": engine,
        "deployment_config": {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}},
    }
    found = {
        "applications": [
            {
                "name": one.slug,
                "route_prefix": "/",
                "import_path": "ray.serve.llm:build_openai_app",
                "args": {"llm_configs": [config]},
            }
        ]
    }
    head = f"For Ray Serve (with vLLM {VERSIONS['vllm']}): serve run ray-serve.yaml\n{_claim_words(one)}"
    return as_yaml(found, head)


def _claim_words(one: Deployment, *, mounted: bool = True) -> str:
    parts = (["target/"] if one.target_is_local else []) + (["drafter/"] if one.has_drafter else [])
    if not parts:
        return ""
    place = f"is mounted at {one.mount} and " if mounted else ""
    return f"The volume of the claim {json.dumps(CLAIM)} {place}holds {' and '.join(parts)}."
