"""Exports that were never measured: manifests and deployments made up, for tests of what is written of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.fleet.export.files.deployment import Deployment
from headstart.fleet.export.files.engines import speculative_config, vllm_values
from headstart.fleet.export.manifest import (
    CostsRecord,
    DepthAt,
    DrafterKind,
    DrafterRecord,
    EngineName,
    Expected,
    Figure,
    Manifest,
    PositionRecord,
    PromptsRecord,
    TargetRecord,
)
from headstart.fleet.export.options import ExportOptions

EXPECTED = Expected(
    PromptsRecord(12, "ef", "sample prompts"), 96, 0.0, False, Figure(3.4, 3.1, 3.7),
    (PositionRecord(1, 314, 260, 0.828, 0.78, 0.87), PositionRecord(2, 260, 200, 0.769, 0.7, 0.83)),
)  # fmt: skip
TABLE = (DepthAt(1, 5, 1.9), DepthAt(8, 3, 1.4), DepthAt(32, 0, 1.0))


def manifest(
    engine: EngineName = "vllm",
    kind: DrafterKind = "eagle3",
    *,
    target: str = "/models/my target",
    depth: int = 4,
    expected: Expected | None = EXPECTED,
) -> Manifest:
    loaded = kind not in ("ngram", "suffix")
    return Manifest(
        engine=engine,
        created="2026-01-01T00:00:00+00:00",
        command="headstart export my-model my-head -o out",
        versions={"headstart": "0.1.0"},
        target=TargetRecord(target, target if target.startswith("/") else None, None, {}, "bfloat16", 6144, 8),
        drafter=DrafterRecord(
            kind, "drafter" if loaded else None, "my-head", {}, (2, 5, 7) if kind == "eagle3" else None
        ),
        depth=depth,
        expected=expected,
        depth_by_batch=TABLE,
        off_from=32,
        costs=CostsRecord("file: costs.json", 0.1, {"1": 1.0, "8": 1.4}),
        tested={"vllm": "0.32.0"},
        warnings=("a warning",),
    )


def deployment(
    made: Manifest | None = None,
    *,
    cpu: bool = False,
    tpot: float | None = None,
    name: str = "My Model",
    settings: Mapping[str, Any] | None = None,
) -> Deployment:
    made = manifest() if made is None else made
    folder = "/srv/out" if made.drafter.folder else None
    speculation = speculative_config(made.drafter.kind, folder and f"{folder}/drafter", made.depth, drawn=False)
    options = ExportOptions(settings=dict(settings or {}))
    values = vllm_values(made.target.name, name, made.target.dtype, speculation, options)
    return Deployment(made, name, "/srv/out", values, "/models", cpu, tpot)
