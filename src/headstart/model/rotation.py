"""Rotations by their frequencies, without the modules of transformers that would make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.base.lazy import transformers


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of a rotation: each position times each frequency."""

    frequencies: tuple[float, ...]
    factor: float = 1.0
    """Of cosine and sine."""
    polar: bool = False
    """Whether cosine and sine are a complex number, whose last bits are others (DeepSeek V2)."""


class Rotary(nn.Module):
    """Cosine and sine of positions, as a rotary module of transformers gives them. pairs, once: see `Rope`."""

    def __init__(self, tables: Mapping[str, Rotation], *, pairs: bool = False, once: bool = False) -> None:
        """tables: by the name of the layers that have these angles, "" where there is one for all."""
        super().__init__()
        self.tables, self.pairs, self.once = dict(tables), pairs, once

    def forward(self, x: Tensor, positions: Tensor, table: str = "") -> tuple[Tensor, Tensor] | Tensor:
        """positions: [1, L]; returns cosine and sine [1, L, 2 * frequencies], or half as many, in the dtype of x; or
        complex numbers [1, L, frequencies]."""
        found = self.tables[table]
        frequencies = torch.tensor(found.frequencies, dtype=torch.float32, device=positions.device)
        turns = positions[..., None].float() * frequencies
        if found.polar:
            return torch.polar(torch.ones_like(turns), turns) * found.factor
        if not self.once:
            turns = turns.repeat_interleave(2, -1) if self.pairs else torch.cat((turns, turns), -1)
        return (turns.cos() * found.factor).to(x.dtype), (turns.sin() * found.factor).to(x.dtype)


@dataclass(frozen=True, slots=True)
class PlainRope:
    """What a config says of a rotation that is not scaled, under transformers' names."""

    rope_parameters: dict[str, Any]
    head_dim: int
    max_position_embeddings: int

    @classmethod
    def stated(cls, config: Mapping[str, Any]) -> PlainRope | None:
        """By a config of Llama's kind; None where it scales its rotation, or where only transformers can judge it."""
        found = config.get("rope_parameters") or {}
        if config.get("rope_scaling") or not isinstance(found, Mapping) or found.keys() - {"rope_type", "rope_theta"}:
            return None
        theta = found.get("rope_theta", config.get("rope_theta", 10000.0))
        sizes = config.get("hidden_size", 0), config.get("num_attention_heads", 0)
        length = config.get("max_position_embeddings", 2048)
        if not all(type(size) is int and size > 0 for size in (*sizes, length)):
            return None
        dim = config.get("head_dim") or sizes[0] // sizes[1]
        if found.get("rope_type", "default") != "default" or type(dim) is not int or dim % 2:
            return None
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not theta > 0:
            return None
        return cls({"rope_type": "default", "rope_theta": theta}, dim, length)

    @property
    def frequencies(self) -> Tensor:
        """base ** (-2 i / dim), i = 0, 1, ..., dim / 2 - 1, in float32."""
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.int64).float() / self.head_dim
        found: Tensor = 1.0 / (self.rope_parameters["rope_theta"] ** steps)
        return found


def rotary_of(rope: Any) -> nn.Module:
    """The module that turns a head's queries and keys. rope: `PlainRope`, or a config of transformers."""
    if isinstance(rope, PlainRope):
        return Rotary({"": Rotation(tuple(rope.frequencies.tolist()))})
    made: nn.Module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config=rope)
    return made
