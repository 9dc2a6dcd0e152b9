"""The cache of the fused forward: keys in tiles of sixteen tokens, so that sixteen scores are one vector.

keys[layer]: [slots, heads, capacity / 16, dim, 16]; values[layer]: [slots, heads, capacity, dim].
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.model import native
from headstart.model.cache import LayerShape, Slots
from headstart.model.packed import Packed


class TiledCache(Slots):
    """Keys and values as the row kernels want them."""

    def __init__(self, layers: Mapping[int, LayerShape], *, slots: int, capacity: int, dtype: torch.dtype) -> None:
        super().__init__(slots, capacity)
        self._kernels = native.kernels()
        self._bf16 = dtype == torch.bfloat16
        room = tiled_capacity(capacity)
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        for layer, shape in layers.items():
            tiles = (slots, shape.heads, room // native.LANES, shape.key_dim, native.LANES)
            # empty, not zeros: pages of slots that are never used are never touched
            self.keys[layer] = torch.empty(tiles, dtype=dtype)
            self.values[layer] = torch.empty(slots, shape.heads, room, shape.value_dim, dtype=dtype)
        self.room = room

        self.pointers = tuple(
            (ctypes.c_void_p * len(store))(*(tensor.data_ptr() for tensor in store.values()))
            for store in (self.keys, self.values)
        )

    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        nodes = np.array(path, dtype=np.int64)
        for layer, keys in self.keys.items():
            _, heads, _, dim, _ = keys.shape
            places = (self._bf16, heads, dim, self.room, slot, base, nodes.ctypes.data, len(path))
            self._kernels.gather(keys.data_ptr(), self.values[layer].data_ptr(), *places)


def _addresses(*arrays: NDArray[np.int64]) -> tuple[int, int, int, int]:
    a, b, c, d = (array.ctypes.data for array in arrays)  # slow to ask for: once per forward, not once per layer
    return a, b, c, d


def tiled_capacity(capacity: int) -> int:
    """Rounded up to whole tiles."""
    return -(-capacity // native.LANES) * native.LANES


@dataclass(frozen=True)
class Places:
    """Where each row of a packed batch stands, as the kernels read it; all int64.

    positions, slots, places [M]: rotation position, cache slot, token index in the slot. segments [S + 1]: segment k
    owns the rows from segments[k] to segments[k + 1].
    """

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    places: NDArray[np.int64]
    segments: NDArray[np.int64]

    @cached_property
    def pointers(self) -> tuple[int, int, int, int]:
        """Addresses of the four, in order."""
        return _addresses(self.positions, self.slots, self.places, self.segments)

    @classmethod
    def of(cls, packed: Packed) -> Places:
        sizes = [len(segment) for segment in packed.segments]
        return cls(
            positions=packed.positions[0].numpy(),
            slots=np.repeat([segment.slot for segment in packed.segments], sizes).astype(np.int64, copy=False),
            places=np.concatenate(
                [np.arange(start, start + size) for start, size in zip(packed.starts, sizes, strict=True)]
            ),
            segments=np.array([0, *(end for _, end in packed.bounds)], dtype=np.int64),
        )


@dataclass(frozen=True)
class Views:
    """Whom each row sees, in the order of the text: the tokens [first, last) of its slot, then extra[extra_begin[r]
    to extra_begin[r + 1]], its ancestors in a draft that is no chain, and itself; all int64."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    extra_begin: NDArray[np.int64]
    extra: NDArray[np.int64]

    @cached_property
    def pointers(self) -> tuple[int, int, int, int]:
        """Addresses of the four, in order."""
        return _addresses(self.first, self.last, self.extra_begin, self.extra)

    @classmethod
    def of(cls, packed: Packed, window: int | None) -> Views:
        first: list[int] = []
        last: list[int] = []
        begin = [0]
        extra: list[int] = []
        for segment, start in zip(packed.segments, packed.starts, strict=True):
            own = range(start, start + len(segment.causal))
            last += [place + 1 for place in own]
            first += [max(0, place + 1 - window) for place in own] if window else [0] * len(own)
            begin += [len(extra)] * len(own)
            end, draft = own.stop, segment.draft
            chain = draft.is_chain
            for node, depth in enumerate(draft.depths):
                position = end - 1 + depth
                oldest = max(0, position + 1 - window) if window else 0
                first.append(min(oldest, end))
                last.append(end + depth if chain else end)
                if chain:
                    first[-1] = oldest
                else:
                    path = draft.path(node)
                    extra += [end + ancestor for ancestor in path[max(0, oldest - end) :]]
                begin.append(len(extra))
        return cls(*(np.array(values, dtype=np.int64) for values in (first, last, begin, extra or [0])))
