"""A step of the engine as JSON, for `speculation.trace`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headstart.serve.names import public_name, public_words
from headstart.types import Step


def step_as_json(step: Step) -> dict[str, Any]:
    """What one step drafted, and what became of it. Parents are indices of nodes, -1 the token before the draft."""
    return {
        "i": step.index,
        "position": step.position,
        "source": public_name(step.draft.source),
        "tokens": list(step.draft.tokens),
        "parents": list(step.draft.parents),
        "path": list(step.path),
        "emitted": list(step.tokens),
        "seconds": {part: round(value, 6) for part, value in asdict(step.seconds).items()},
        "rows": step.rows,
        "batch": step.batch,
        "budget": step.budget.nodes,
        "reason": public_words(step.budget.reason, step.speculation.drafter),
    }
