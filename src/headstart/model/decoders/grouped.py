"""Layers of grouped weights inside a transformers model: what carries them until a decoder takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.decoders.linears import joined_bias
from headstart.model.grouped import (
    ChannelWeights,
    GroupedWeights,
    JoinedWeights,
    StoredWeights,
    side_by_side,
    stored_together,
)
from headstart.model.native import structs
from headstart.model.threads import threads

Weights = GroupedWeights | ChannelWeights | JoinedWeights | StoredWeights

_AT_ONCE = 1 << 21
"""Weights that are made into floats at a time."""
_IN_CACHE = 1 << 17
"""The same where it is done in several threads: few enough for a core's cache."""


class GroupedLinear(nn.Module):
    """y = x W^T + b in floats, with some rows of W at a time made from their codes. It holds no parameter: nothing can
    train it.

    The row kernels' grouped products compute the same but for rounding each row to 8-bit integers.
    """

    def __init__(self, weights: Weights, bias: Tensor | None = None) -> None:
        super().__init__()
        self.held, self.bias = weights, bias
        self.out_features, self.in_features = weights.shape

    @property
    def by_output(self) -> bool:
        """Whether its scales are of whole outputs: see `ChannelWeights`."""
        return by_output(self.held)

    @property
    def weights(self) -> GroupedWeights | ChannelWeights | JoinedWeights:
        """All of them; read from their file now, if they lie in one."""
        return self.held.read()

    def forward(self, x: Tensor) -> Tensor:
        step = max(1, _AT_ONCE // self.in_features)
        parts = []
        for first in range(0, self.out_features, step):
            rows = self.held.read(slice(first, min(first + step, self.out_features)))
            parts.append(F.linear(x, torch.from_numpy(rows.dequantise()).to(x.device, x.dtype)))
        y = torch.cat(parts, -1)
        return y if self.bias is None else y + self.bias.to(x.dtype)


class GroupedEmbedding(nn.Module):
    """Rows of numbers for tokens, made from their codes at every call. It holds no parameter."""

    def __init__(self, weights: GroupedWeights | StoredWeights, dtype: torch.dtype, factor: float = 1.0) -> None:
        """factor: what rows are multiplied by, rounded to dtype (Gemma); decoders read it in the recipe."""
        super().__init__()
        self.held, self.dtype, self.factor = weights, dtype, factor
        self.laid_out: tuple[structs.Product, Any] | None = None
        """The codes as a decoder has laid them out for the row kernels, and what keeps them alive."""
        self.num_embeddings, self.embedding_dim = weights.shape

    @property
    def weight(self) -> Tensor:
        """The whole table in floats, without the factor, for what cannot take codes: it is made at every call."""
        made = torch.empty(self.num_embeddings, self.embedding_dim, dtype=self.dtype)
        step = max(1, _AT_ONCE // self.embedding_dim)
        for first in range(0, len(made), step):
            rows = slice(first, min(first + step, len(made)))
            made[rows] = torch.from_numpy(self.held.read(rows).dequantise())
        return made

    def rows(self, ids: Tensor) -> Tensor:
        """The rows of some tokens, without the factor [..., d]."""
        rows = self.held.read(ids.reshape(-1).numpy()).dequantise()
        return torch.from_numpy(rows).to(self.dtype).reshape(*ids.shape, -1)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.rows(ids)
        return found if self.factor == 1.0 else found * torch.tensor(self.factor, dtype=self.dtype)


class GroupedExperts(nn.Module):
    """A matrix of codes for each expert. transformers' modules take one as if this were their parameter."""

    def __init__(
        self, held: Sequence[Weights], dtype: torch.dtype, *, transposed: bool = False, interleaved: bool = False
    ) -> None:
        """held: [outputs, inputs] of each expert, gate before up. dtype: of the floats that they stand for. transposed,
        interleaved: how the parameter lies (see `recipes.experts.Experts`)."""
        super().__init__()
        self.held, self.dtype = list(held), dtype
        self._transposed, self._interleaved = transposed, interleaved

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experts, outputs, inputs."""
        outputs, inputs = self.held[0].shape
        return len(self.held), outputs, inputs

    def linear(self, number: int, bias: Tensor | None = None) -> GroupedLinear:
        """The layer of an expert."""
        return GroupedLinear(self.held[number], bias)

    def __getitem__(self, number: int | Tensor) -> Tensor:
        """The matrix of an expert in floats, as the parameter has it."""
        made = _floats(self.held[int(number)], self.dtype)
        if self._interleaved:
            made = torch.stack(made.chunk(2), 1).flatten(0, 1)
        return made.T if self._transposed else made


def _floats(held: Weights, dtype: torch.dtype) -> Tensor:
    """A matrix in floats. Some rows at a time, which stay in a core's cache, by all threads: the probe of a mixture
    reads most of its experts."""
    outputs, inputs = held.shape
    made = np.empty((outputs, inputs), np.float32)
    step = max(1, _IN_CACHE // inputs)

    def fill(first: int) -> None:
        rows = slice(first, min(first + step, outputs))
        made[rows] = held.read(rows).dequantise()

    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(fill, range(0, outputs, step)))
    return torch.from_numpy(made).to(dtype)


def joined_grouped(linears: Sequence[GroupedLinear]) -> GroupedLinear:
    """One layer that computes several of the same input, their outputs side by side."""
    stored = [linear.held for linear in linears if isinstance(linear.held, StoredWeights)]
    if len(stored) == len(linears) and not any(each.by_output for each in stored):
        return GroupedLinear(stored_together(stored), joined_bias(linears))
    return GroupedLinear(side_by_side([linear.weights for linear in linears]), joined_bias(linears))


def fewest_bits(model: nn.Module) -> int | None:
    """Of the codes of a model's grouped layers; None if it has none."""
    return min(_bits(model), default=None)


def _bits(model: nn.Module) -> Iterable[int]:
    return (held.bits for held in coded(model))


def coded(model: nn.Module) -> Iterable[Weights]:
    """All matrices of a model that are codes."""
    for module in model.modules():
        if isinstance(module, GroupedLinear):
            yield module.held
        elif isinstance(module, GroupedExperts):
            yield from module.held


def by_output(held: Weights) -> bool:
    """Whether their scales are of whole outputs: see `ChannelWeights`."""
    return held.by_output if isinstance(held, StoredWeights) else isinstance(held, ChannelWeights)
