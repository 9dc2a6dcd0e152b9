"""The cache of the fused forward: keys in tiles of sixteen tokens, so that sixteen scores are one vector.

keys[layer]: [slots, heads, capacity / 16, dim, 16]; values[layer]: [slots, heads, capacity, dim].
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
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


def tiled_capacity(capacity: int) -> int:
    """Rounded up to whole tiles."""
    return -(-capacity // native.LANES) * native.LANES


class Numbers:
    """The numbers the kernels read of a packed batch, in one array; each part is known by its address. All int64.

    ids, positions, slots, places [M]: token, rotation position, cache slot, index in the slot. segments [S + 1]:
    segment k owns the rows from segments[k] to segments[k + 1]. judged [R]: rows. views: four parts for each window
    (see `view`).
    """

    def __init__(self, packed: Packed, windows: Sequence[int | None]) -> None:
        slots: list[int] = []
        places: list[int] = []
        for segment, start in zip(packed.segments, packed.starts, strict=True):
            slots += [segment.slot] * len(segment)
            places += range(start + segment.held, start + segment.held + len(segment))
        segments = [0, *(end for _, end in packed.bounds)]
        parts = [packed.token_ids, packed.token_positions, slots, places, segments, packed.judged_rows]
        for window in windows:
            parts += view(packed, window)
        self._array = np.fromiter(itertools.chain.from_iterable(parts), dtype=np.int64, count=sum(map(len, parts)))
        base = self._array.ctypes.data
        addresses = [base + 8 * begin for begin in itertools.accumulate(map(len, parts), initial=0)]
        self.ids, self.positions, self.slots, self.places, self.segments, self.judged = addresses[:6]
        self.views = [tuple(addresses[at : at + 4]) for at in range(6, len(parts), 4)]


def view(packed: Packed, window: int | None) -> tuple[list[int], list[int], list[int], list[int]]:
    """Whom each row sees, in the order of the text: first, last [M], extra_begin [M + 1], extra.

    These are the tokens [first, last) of its slot, then extra[extra_begin[r] : extra_begin[r + 1]], which are its
    ancestors in a draft that is no chain, and itself.
    """
    first: list[int] = []
    last: list[int] = []
    begin = [0]
    extra: list[int] = []
    for segment, start in zip(packed.segments, packed.starts, strict=True):
        end, draft, held = start + len(segment.causal), segment.draft, segment.held
        # a chain is more committed tokens as far as seeing goes
        plain = len(segment) if draft.is_chain else len(segment.causal)
        own = range(start + held, start + held + plain)
        last += [place + 1 for place in own]
        first += [max(0, place + 1 - window) for place in own] if window else [0] * plain
        begin += [len(extra)] * plain
        for node in range(held, held + len(segment) - plain):
            oldest = max(0, end + draft.depths[node] - window) if window else 0
            first.append(min(oldest, end))
            last.append(end)
            extra += [end + ancestor for ancestor in draft.path(node)[max(0, oldest - end) :]]
            begin.append(len(extra))
    return first, last, begin, extra
