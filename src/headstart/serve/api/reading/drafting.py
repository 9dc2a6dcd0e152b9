"""From `speculation` and `prediction` to `Drafting`, and what the client wants to see of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.serve.api.errors import invalid_value
from headstart.serve.api.schemas.chat import text_of
from headstart.serve.api.schemas.common import Common, PredictionField, SpeculationField
from headstart.types import Drafting


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer tells about its drafts."""

    metrics: Literal["none", "summary", "detailed"] = "summary"
    trace: bool = False
    predicted: bool = False
    """Whether the request had a `prediction`: only then does the usage count its tokens."""


def drafting_of(request: Common, prediction: Sequence[int], known: Mapping[str, str]) -> Drafting:
    """How a request may be drafted for.

    prediction: its predicted output as token ids.
    known: the drafters there are: what requests call them, and what the engine does.

    Raises:
        Refused: a source that is not there.
    """
    asked = request.speculation or SpeculationField()
    most = request.speculative_n_max if asked.max_draft_tokens is None else asked.max_draft_tokens
    unknown = next((name for name in asked.sources or () if name not in known), None)
    if unknown is not None:
        raise invalid_value(
            "speculation.sources",
            f"speculation.sources names {json.dumps(unknown[:60])}, and nothing here drafts by that name",
            f"this server has {', '.join(known)}",
        )
    return Drafting(
        enabled=asked.enabled is not False,
        max_draft_tokens=most,
        sources=None if asked.sources is None else tuple(known[name] for name in asked.sources),
        prediction=tuple(prediction),
    )


def shown_of(request: Common) -> Shown:
    """What the client wants to see."""
    asked = request.speculation or SpeculationField()
    return Shown(asked.metrics or "summary", bool(asked.trace), request.prediction is not None)


def predicted_text(prediction: str | PredictionField | None) -> str:
    """The predicted output as text."""
    return text_of(prediction.content if isinstance(prediction, PredictionField) else prediction)
