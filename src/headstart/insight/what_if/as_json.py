"""The answers as JSON takes them: every number, and null for what is infinite or no number."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headstart.insight.what_if.question import WhatIf


def record(found: WhatIf) -> dict[str, Any]:
    """All numbers; what is infinite or no number is null."""
    costs = found.costs
    numbers = {
        "headstart_simulate": 1,
        "batch": found.batch,
        "c": costs.c(),
        "verify_cost": {rows: costs.v(rows) for rows in range(1, found.most + 2)},
        "answers": [{**asdict(a), "best": a.best._asdict()} for a in found.answers],
        "maps": {
            **asdict(found.maps),
            "by_length": found.maps.by_length.tolist(),
            "by_cost": found.maps.by_cost.tolist(),
        },
        "batches": [asdict(b) for b in found.batches],
        "temperatures": [asdict(t) for t in found.temperatures],
    }
    cleaned: dict[str, Any] = finite(numbers)
    return cleaned


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): finite(entry) for name, entry in value.items()}
    if hasattr(value, "_asdict"):
        return finite(value._asdict())
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
