"""`compose.yaml`: two engines, a router before them, and Prometheus, for `docker compose up`.

Folders are mounted where they lie outside, so that `vllm.yaml` holds inside the containers as it stands.
"""

from __future__ import annotations

from typing import Any

from headstart.fleet.export.files.deployment import ENGINES, PORT, ROUTER, Deployment, as_yaml

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
