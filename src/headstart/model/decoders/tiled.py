"""The cache of the row kernels, what a forward hands to them, and the forward.

keys[layer]: [slots, heads, capacity / 16, dim, 16], in tiles of sixteen tokens, so that sixteen scores are one vector;
values[layer]: [slots, heads, capacity, dim]. Where attention is by the processor's tiles, keys lie as values do, and so
do rows of latent attention, which are keys without values. States of recurrent layers: [heads, tiles of
columns, keys, tile].
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from headstart.base.compiling import address
from headstart.base.errors import InvalidBatch, NotEnoughMemory
from headstart.model import native
from headstart.model.cache import NO_STATES, LayerShape, Slots, states_of, stored
from headstart.model.decoders.rows import HINT, Rows
from headstart.model.native import structs
from headstart.model.packed import Packed
from headstart.model.planes import LOG, StateShape
from headstart.model.recipes import Recipe
from headstart.model.threads import threads
from headstart.model.walks import Walk


class TiledCache(Slots):
    """Keys and values as the row kernels want them.

    shapes: of each layer. padded: tokens of a slot, rounded up to whole tiles. dtype: the model's, or int8, where each
    key and each value of a head is rounded to multiples of a scale of its own, a float32 that stands behind its
    numbers as four more. Latent attention is not rounded. computed: the model's dtype, if that is another one.
    """

    def __init__(
        self,
        layers: Mapping[int, LayerShape],
        *,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        computed: torch.dtype | None = None,
        states: Mapping[int, StateShape] = NO_STATES,
    ) -> None:
        super().__init__(slots, capacity, states_of(states, layers, slots, capacity, dtype, torch.device("cpu")))
        self.shapes, self.dtype, self.computed = layers, dtype, computed or dtype
        self.padded = tiled_capacity(capacity)
        self.keys, self.values = {}, {}
        # by shape, and bytes of a key and a value where keys lie as values do
        alike: dict[tuple[LayerShape, tuple[int, int] | None], list[int]] = {}
        for layer, logical in layers.items():
            shape = stored(logical, dtype)
            tiles: tuple[int, ...] = (slots, shape.heads, self.padded // native.LANES, shape.key_dim, native.LANES)
            row_bytes = None
            rows = self.computed == torch.bfloat16 and native.kernels().rows_of_keys(logical.key_dim)
            if rows or not shape.value_dim:
                tiles = (slots, shape.heads, self.padded, shape.key_dim)
                row_bytes = shape.key_dim * dtype.itemsize, shape.value_dim * dtype.itemsize
            alike.setdefault((logical, row_bytes), []).append(layer)
            # empty, not zeros: pages of slots that are never used are never touched
            self.keys[layer] = torch.empty(tiles, dtype=dtype)
            self.values[layer] = torch.empty(slots, shape.heads, self.padded, shape.value_dim, dtype=dtype)
        count = max(layers, default=-1) + 1
        self.pointers = tuple((ctypes.c_void_p * count)() for _ in range(2))
        for pointers, store in zip(self.pointers, (self.keys, self.values), strict=True):
            for layer, tensor in store.items():
                pointers[layer] = tensor.data_ptr()
        self._alike = [
            (
                shape,
                row_bytes,
                len(at),
                [(ctypes.c_void_p * len(at))(*map(each.__getitem__, at)) for each in self.pointers],
            )
            for (shape, row_bytes), at in alike.items()
        ]
        """Of layers that lie alike: shape and bytes of rows, how many they are, and where their keys and values are."""
        self.state_pointers = tuple((ctypes.c_void_p * (max(states, default=-1) + 1))() for _ in range(3))
        if self.states is not None:
            held = (self.states.planes, self.states.kept, self.states.log)
            for pointers, store in zip(self.state_pointers, held, strict=True):
                for layer, tensor in store.items():
                    pointers[layer] = tensor.data_ptr()

    def read(self, layer: int, slot: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of keys that lie in tiles, in the order of tokens, and of all that is rounded; others are none."""
        if self.dtype == torch.int8:
            return self._read_rounded(layer, slot, end)
        return self._keys(layer, slot, end).unsqueeze(0), self.values[layer][slot, :, :end].unsqueeze(0)

    def _keys(self, layer: int, slot: int, end: int) -> torch.Tensor:
        """[heads, end, dim], in the order of tokens."""
        if self.keys[layer].dim() == 4:
            return self.keys[layer][slot, :, :end]
        return self.keys[layer][slot].transpose(2, 3)[:, : tiled_capacity(end) // native.LANES].flatten(1, 2)[:, :end]

    def _read_rounded(self, layer: int, slot: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """As float32."""
        shape, found = self.shapes[layer], (self._keys(layer, slot, end), self.values[layer][slot, :, :end])
        keys, values = (
            rows[..., :dim] * rows[..., dim:].contiguous().view(torch.float32)
            for rows, dim in zip(found, (shape.key_dim, shape.value_dim), strict=True)
        )
        return keys.unsqueeze(0), values.unsqueeze(0)

    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        if not (0 <= slot < len(self.lengths) and base + max(path) < self.capacity and min(path) >= 0 <= base):
            raise InvalidBatch(f"slot {slot} holds no path {tuple(path)} from token {base} on", hint=HINT)
        where = (self.padded, slot, base, (ctypes.c_int64 * len(path))(*path), len(path))
        kernels, size = native.kernels(), self.dtype.itemsize
        for shape, rows, layers, (keys, values) in self._alike:  # a call for each layer would cost more than its work
            if rows is None:
                kernels.gather(keys, values, layers, size, shape.heads, shape.key_dim, *where)
                continue
            kernels.gather_rows(keys, layers, rows[0], shape.heads, *where)
            if shape.value_dim:
                kernels.gather_rows(values, layers, rows[1], shape.heads, *where)

    def copy_from(self, other: Slots, source: int, slot: int, length: int, begin: int = 0) -> None:
        first, last = begin // native.LANES, tiled_capacity(length) // native.LANES
        begin = first * native.LANES
        for layer, keys in self.keys.items():
            some = slice(begin, length) if keys.dim() == 4 else slice(first, last)
            keys[slot, :, some] = other.keys[layer][source, :, some]  # behind the last token is scratch
            self.values[layer][slot, :, begin:length] = other.values[layer][source, :, begin:length]


def tiled_capacity(capacity: int) -> int:
    """Rounded up to whole tiles."""
    return -(-capacity // native.LANES) * native.LANES


def buffer_bytes(recipe: Recipe, *, rows: int, capacity: int, size: int) -> int:
    """Bytes that a forward of so many rows takes for itself, nearly: the kernels keep them from call to call (`grow` of
    decoder.cpp and experts.h). capacity: tokens of a slot. size: bytes of a number of the dtype."""
    width, count = recipe.width, -(-rows // _ROWS_TOGETHER) * _ROWS_TOGETHER
    widest = heads = mixed = expert_floats = taken = tiles = 0
    for _, layer in recipe.kinds:
        mlp, experts = layer.dense, layer.experts
        widest = max(widest, sum(each.outputs for each in layer.mixers), 0 if mlp is None else 2 * mlp.width)
        if layer.attends is not None:
            heads = max(heads, layer.attends.heads * layer.attends.widest)
            _, key_dim, _ = layer.attends.kept
            if size == torch.bfloat16.itemsize:  # counted where the processor has no tiles, too: it is little
                tiles = max(tiles, _TILES_ROOM * key_dim)
        if layer.recurs is not None:
            heads, mixed = max(heads, layer.recurs.width), max(mixed, layer.recurs.channels + layer.recurs.gates)
        if experts is not None:
            (inputs, outputs), (inner, _) = experts.shapes(width)
            chosen = rows * experts.router.chosen
            shared = 0 if mlp is None else max(2 * mlp.width, width)
            expert_floats = max(
                expert_floats, rows * (2 * width + experts.count + shared) + chosen * max(outputs, width)
            )
            places = chosen + _ROWS_TOGETHER * min(experts.count, chosen) + count
            taken = max(taken, places * max(inputs, inner))
    inputs = max(width, heads, widest // 2)
    floats = count * (width + max(widest, width) + 2 * heads + mixed) + expert_floats
    own = inputs + (_QUERIES_TOGETHER + 1) * capacity + 2 * native.LANES * count + tiles
    return 4 * (floats + threads() * own) + size * max(taken, count * inputs)


_ROWS_TOGETHER, _QUERIES_TOGETHER = 32, 8
"""Rows up to a multiple of which products have room, and queries whose scores a thread has at a time."""
_TILES_ROOM = 16 * (8 + 16) + 4 * (32 + 32)
"""Numbers of a thread's room for attention by tiles, for each number of a key: queries and sums of sixteen groups,
values and keys of four heads (`TilesRoom` of attention_tiles.h)."""


class TiledBatch:
    """What the kernels read of a packed batch, and where they leave its logits.

    struct: the kernels' own, complete but for what decoders add. logits: [R, outputs], of the judged rows.

    The numbers of its rows are `Rows`. Those of walks through recurrent states stand in one array of int64, and each
    part is known by its address (see `walk_parts`).

    Raises:
        InvalidBatch: the kernels would read or write outside a table or a slot. Nothing is written then.
    """

    def __init__(
        self,
        packed: Packed,
        windows: Sequence[int | None],
        *,
        shapes: Mapping[int, LayerShape],
        dtype: torch.dtype,
        vocabulary: int,
        positions: int,
        outputs: int,
        states: Mapping[int, StateShape] = NO_STATES,
        layers: int | None = None,
    ) -> None:
        """shapes, states: of the cache that its decoder runs on. positions: that rows may have. outputs: of the head.
        layers: those that run, if not all."""
        cache = packed.cache
        if (
            not isinstance(cache, TiledCache)
            or cache.computed != dtype
            or cache.dtype not in (dtype, torch.int8)
            or cache.shapes != shapes
            or (NO_STATES if cache.states is None else cache.states.shapes) != states
        ):
            raise InvalidBatch("the row kernels run on caches of their own model", hint=HINT)
        self.outputs, self._layers, self._states = outputs, layers, cache.states
        self._cache = weakref.ref(cache)
        self._touched = ctypes.c_int64()
        seen = (structs.Visible * len(windows))()
        keys, values = cache.pointers
        self.struct = structs.Batch(
            visible=seen,
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            capacity=cache.padded,
            experts_touched=ctypes.addressof(self._touched),
            coded=cache.dtype == torch.int8,
        )
        self._rows = Rows(self.struct, seen, windows, (vocabulary, positions, len(cache.lengths), cache.capacity))
        self._lay(packed)

    def _lay(self, packed: Packed) -> None:
        """Take in the rows of a packed batch. What it holds of states is not changed before they have been checked."""
        struct = self.struct
        self._rows.lay(packed)
        self.logits = torch.empty(struct.judged_count, self.outputs)
        struct.logits, struct.threads = self.logits.data_ptr(), threads()
        if self._states is None:
            return
        cache = packed.cache
        assert isinstance(cache, TiledCache), "it was checked"
        self._walks = self._states.walks(packed, self._layers)
        parts = walk_parts(self._walks)
        lengths = [len(part) for part in parts]
        self._array = np.fromiter(itertools.chain.from_iterable(parts), dtype=np.int64, count=sum(lengths))
        at = itertools.accumulate([8 * length for length in lengths[:-1]], initial=address(self._array))
        held = (ctypes.addressof(pointers) for pointers in cache.state_pointers)
        sizes = (len(cache.lengths), LOG, self._states.taps)
        deepest = max((max(walk.depths) for walk in self._walks), default=0)
        struct.walks = ctypes.pointer(structs.Walks(*held, *sizes, *at, len(self._walks), deepest))

    @property
    def can_move(self) -> bool:
        """Whether it holds no states of recurrent layers, which would outlive their cache."""
        return self._states is None

    def move_to(self, packed: Packed) -> bool:
        """Become the batch of other rows of the same cache, if no layer is recurrent. It has logits of its own then;
        what decoders add stays as it is.

        Raises:
            InvalidBatch: as above.
        """
        if not self.can_move or packed.cache is not self._cache():
            return False
        self._touched.value = 0
        self._lay(packed)
        return True

    @property
    def experts_touched(self) -> int:
        """How many experts its rows chose, of all layers together."""
        return self._touched.value

    def run(self, model: structs.Model) -> None:
        """The forward of the kernels.

        Raises:
            NotEnoughMemory: there is none for its rows. Nothing is written then.
        """
        try:
            native.kernels().forward(model, self.struct)
        except NotEnoughMemory:
            if self._states is not None:
                self._states.unwritten(self._walks)
            raise
        if self._states is not None:
            self._states.written(self._walks, self._layers)


def walk_parts(walks: Sequence[Walk]) -> list[Sequence[int]]:
    """Walks as the kernels read them: the arrays of `structs.Walks`, in its order."""
    stores = [store for walk in walks for store in walk.stores]
    flat: list[tuple[Sequence[int], ...]] = [
        (walk.logged, walk.inputs, walk.depths, walk.written, walk.places) for walk in walks
    ]
    logged, inputs, depths, written, places = (
        each[0] if len(walks) == 1 else list(itertools.chain.from_iterable(each)) for each in zip(*flat, strict=True)
    )
    return [
        [-1 if walk.source is None else walk.source for walk in walks],
        _begins(len(walk.logged) for walk in walks),
        logged,
        _begins(len(walk.depths) for walk in walks),
        inputs,
        depths,
        _begins(len(walk.stores) for walk in walks),
        [store.visits for store in stores],
        [store.plane for store in stores],
        [number for store in stores for number in store.before],
        _begins(len(walk.places) for walk in walks),
        written,
        places,
    ]


def _begins(lengths: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(lengths, initial=0))
