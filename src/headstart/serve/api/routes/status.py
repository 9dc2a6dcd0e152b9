"""`GET /health`, `/v1/models`, `/slots` and `/metrics`: what runs here, and how it is."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from headstart.serve.api.errors import Refused
from headstart.serve.api.replies import ERRORS, failure_reply, json_reply
from headstart.serve.api.service import Service
from headstart.serve.metrics import dashboard
from headstart.serve.names import public_name


def status(service: Service) -> APIRouter:
    """The paths that only tell."""
    router = APIRouter(responses=ERRORS)

    @router.get("/health", summary="Whether requests are answered")
    async def health() -> Response:
        trouble = service.trouble
        if trouble is not None:
            return failure_reply(trouble, status=trouble.code, uptime=service.uptime)
        return json_reply({"status": "ok"})

    @router.get("/v1/models", summary="The model that is served, by each of its names")
    async def models() -> Response:
        return json_reply({"object": "list", "data": _models(service)})

    @router.get("/v1/models/{name:path}", summary="The model that is served, by one of its names")
    async def model(name: str) -> Response:
        found = _models(service)
        service.check_model(name)
        return json_reply(next(each for each in found if each["id"] == name))

    @router.get("/slots", summary="Who runs where")
    async def slots() -> Response:
        bridge, counted = service.bridge, service.served.metrics
        found = {"slots": [asdict(slot) for slot in bridge.slots()], "queued": bridge.queued}
        return json_reply(found if counted is None else found | {"totals": counted.totals()})

    @router.get("/metrics", summary="Counters for Prometheus")
    async def metrics() -> Response:
        counted = service.served.metrics
        if counted is None:
            raise Refused("no metrics are kept", hint="see docs/guides/operate.md", status=404, code="not_found")
        data, kind = counted.exposition()
        return Response(data, media_type=kind)

    @router.get("/metrics/grafana.json", summary="A dashboard of these metrics, to be imported by Grafana")
    async def grafana() -> Response:
        return Response(dashboard(), media_type="application/json")

    return router


def _models(service: Service) -> list[dict[str, Any]]:
    about = service.bridge.describe()
    shown = (
        "rule", "pacing", "dtype", "quantize", "decoder", "width_invariant", "vocab_size", "max_length",
        "max_batch_size", "prefix_cache",
    )  # fmt: skip
    ours = {each: about[each] for each in shown} | {
        "target": public_name(str(about["target"])),
        "drafter": public_name(str(about["drafter"])),
        "sources": [name for name in service.model.sources if name != "none"],
        "chat": bool(getattr(service.model.tokenizer, "chat_template", None)),
        "defaults": asdict(service.model.defaults),
        "versions": {name: version(name) for name in ("headstart", "torch", "transformers")},
    }
    return [
        {
            "id": name,
            "object": "model",
            "created": service.started,
            "owned_by": "headstart",
            "max_model_len": about["max_length"],
            "headstart": ours,
        }
        for name in service.names
    ]
