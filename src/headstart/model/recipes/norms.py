"""Norms of rows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Norm:
    """A norm of rows: gain * (x - mean) / spread + bias."""

    name: str | None
    """The module that holds gain and bias; None for a norm without weights."""
    eps: float
    kind: Literal["rms", "layer"] = "rms"
    """"rms" takes no mean off."""
    offset: float = 0.0
    """What is added to the stored gain: in float32 with `wide_gain`, else in the gain's own dtype."""
    wide_gain: bool = False
    """Whether the gain is applied before the row is rounded to the model's dtype (Gemma) or after it (Llama)."""
