"""Latent attention: its weights as decoders want them, and its forward in tensor operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from headstart.model.decoders import parts
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.linears import PackedLinear, PlainLinear
from headstart.model.decoders.operations import normed, rotate
from headstart.model.decoders.parts import part
from headstart.model.packed import Packed
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.recipe import Norm, Rope


def queries(owner: Any, latent: Latent) -> Any:
    """The layer that makes queries of those of low rank, in the order of `parts.queries_keys_values`."""
    linear = part(owner, latent.q_b)
    parts.check_outputs(linear.out_features, latent.query_outputs, (latent.q_b,))
    return parts.reordered(linear, parts.query_order(latent)) if latent.rope and latent.rope.pairs else linear


def keys_values(owner: Any, latent: Latent) -> tuple[Tensor, Tensor]:
    """The matrices of each head: from its query to the latent space [heads, rank, nope], and from there to its values
    [heads, value_dim, rank]. Codes become float32."""
    linear = part(owner, latent.kv_b)
    if isinstance(linear, GroupedLinear):
        weight = torch.from_numpy(linear.weights.dequantise())
    else:
        weight = linear.weight.detach()
    parts.check_shape(latent.kv_b, weight.shape, (latent.heads * (latent.nope + latent.value_dim), latent.rank))
    keys, values = torch.split(weight.view(latent.heads, -1, latent.rank), [latent.nope, latent.value_dim], 1)
    return keys.transpose(1, 2), values


class TensorLatent:
    """Latent attention of a recipe: from normed rows to what goes into its output layer."""

    def __init__(self, owner: Any, latent: Latent, index: int, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        self._latent, self._index = latent, index
        self._scores = Scores(latent.scaling, values=latent.rank)
        self._qkv = linear(parts.queries_keys_values(owner, latent))
        self._q_b = None if latent.q_rank is None else linear(queries(owner, latent))
        # copies: the matrix that they are parts of is let go
        self._keys, self._values = (each.contiguous() for each in keys_values(owner, latent))
        self._gains = {
            norm: gain.to(self._keys.dtype)
            for norm in (latent.q_norm, latent.k_norm)
            if norm is not None and (gain := parts.head_gain(owner, norm, latent)) is not None
        }

    def __call__(self, z: Tensor, turns: Mapping[Rope, tuple[Tensor, Tensor]], packed: Packed) -> Tensor:
        """z [M, d]; returns [M, heads * value_dim]."""
        latent, rows = self._latent, len(z)
        q, row, key = self._qkv(z).split((latent.outputs - latent.dim, latent.rank, latent.turning), -1)
        if self._q_b is not None:
            q = self._q_b(self._norm(q, latent.q_norm))
        q, turning = q.view(rows, latent.heads, -1).split((latent.nope, latent.turning), -1)
        if latent.rope is not None:
            turned = rotate(torch.cat((turning, key[:, None]), 1), *turns[latent.rope])
            turning, key = turned[:, :-1], turned[:, -1]
        q = torch.cat((torch.einsum("mhn,hrn->mhr", q, self._keys), turning), -1)
        if latent.query_beta:
            factors = 1 + latent.query_beta * torch.log1p(torch.floor(packed.positions[0] / latent.query_origin))
            q = q * factors.to(q.dtype)[:, None, None]
        stored = torch.cat((self._norm(row, latent.k_norm), key), -1)[None, None]
        new = stored, stored[..., :0]
        found = attend_packed(packed, self._index, q.transpose(0, 1)[None], new, self._scores)[0]
        return torch.einsum("mhr,hvr->mhv", found, self._values).reshape(rows, -1)

    def _norm(self, x: Tensor, norm: Norm | None) -> Tensor:
        return x if norm is None else normed(x, self._gains.get(norm), None, norm.eps, centred=False)

    def weights(self) -> Iterable[Tensor]:
        yield from self._qkv.weights()
        if self._q_b is not None:
            yield from self._q_b.weights()
        yield from (self._keys, self._values, *self._gains.values())
