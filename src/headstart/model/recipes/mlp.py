"""The MLP of a layer as plain data. Names are those of transformers' modules, below a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh", "gelu", "relu", "relu2", "xielu"]


@dataclass(frozen=True)
class Mlp:
    """down(activation(gate_factor * gate x) * up x), or without a gate down(activation(up x))."""

    width: int
    activation: Activation
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    """The modules whose outputs side by side are gate and up; without a gate the one of `up`."""
    down: str = "mlp.down_proj"
    gated: bool = True
    numbers: str | None = None
    """The module with the learnt numbers of "xielu"."""
    gate_factor: float = 1.0
    factor: float = 1.0
    """Of what it adds to the stream (Falcon-H1)."""
