"""Forwards of few rows, recorded as CUDA graphs.

A forward of a model is hundreds of short kernels, and to launch them one by one takes a host longer than a GPU takes
to run them, unless the model is very large. So each shape of a forward is recorded when it is first met, and from then
on launched as a whole. What differs between two forwards of one shape lies in the buffers of a `Grid`.

When a shape is recorded, what comes out of it is compared with the forward that was not recorded. Whatever cannot be
recorded, or comes out otherwise, runs as before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders import parts
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.packed import Forward, Packed
from headstart.model.planes import StateShape
from headstart.model.reading import first_line
from headstart.model.recorded.grid import Attend, Grid, shape_of

if TYPE_CHECKING:
    from headstart.model.mapped import PackedFile

log = logging.getLogger(__name__)

MOST = 48
"""Recorded forwards of one cache; those that were not asked for longest make room."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a forward computes: of the judged rows [R, ...], and of all rows [M, ...]."""

    judged: tuple[Tensor, ...]
    every: tuple[Tensor, ...] = ()


Compute = Callable[[Packed, Tensor | None], Rows]
"""A forward: from the rows, and what else it is given for each of them [M, ...]."""
Replay = Callable[[Callable[[], Rows]], tuple[Callable[[], object], Rows]]
"""Records what a function does; returns what does it again, and what it then writes into."""


def again(work: Callable[[], Rows]) -> tuple[Callable[[], object], Rows]:
    """Record nothing, and do it again every time: the plain twin of `CudaGraphs`."""
    rows = work()

    def repeat() -> None:
        found = work()
        for old, new in zip((*rows.judged, *rows.every), (*found.judged, *found.every), strict=True):
            old.copy_(new)

    return repeat, rows


class CudaGraphs:
    """Records as CUDA graphs, which take turns with one stretch of memory: what one computes is read before the next
    one runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, work: Callable[[], Rows]) -> tuple[Callable[[], object], Rows]:
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            work()  # kernels are compiled, and libraries take their memory, before anything is recorded
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # other threads may go on using the GPU
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                rows = work()
            finally:
                graph.capture_end()
        torch.cuda.synchronize(self._device)
        return graph.replay, rows


class Recording:
    """One shape of a forward."""

    def __init__(self, grid: Grid, given: Tensor | None, compute: Compute, replay: Replay) -> None:
        self._grid, self._given = grid, given
        self._compute, self._replay = compute, replay
        self._run: Callable[[], object] | None = None

    def run(self, packed: Packed, given: Tensor | None) -> Rows:
        """The forward of these rows."""
        grid = self._grid
        grid.fill(packed)
        if given is not None:
            assert self._given is not None, "given every time, or never"
            if len(packed.segments) == 1:
                self._given[: len(given)].copy_(given)
            else:
                self._given.index_copy_(0, grid.real[: len(given)], given)
        if self._run is None:
            self._run, self._rows = self._replay(lambda: self._compute(grid, self._given))
        self._run()
        judged, count = len(packed.judged_rows), len(packed.token_ids)
        # copies: the next forward writes into the same memory
        return Rows(
            tuple(each[:judged].clone() for each in self._rows.judged),
            tuple(
                each[:count].clone() if len(packed.segments) == 1 else each[grid.real[:count]]
                for each in self._rows.every
            ),
        )


class Recorder:
    """Records the forwards of one model or head, each the first time that its shape is met."""

    def __init__(self, device: torch.device, replay: Replay, attend: Attend) -> None:
        self._device, self._replay, self._attend = device, replay, attend
        self._of: WeakKeyDictionary[Slots, OrderedDict[Hashable, Recording]] = WeakKeyDictionary()
        self.refused: str | None = None
        """Why nothing is recorded any more."""

    @classmethod
    def on(cls, device: torch.device) -> Self | None:
        """One for a GPU; None where nothing can be recorded."""
        if device.type != "cuda":
            return None
        try:
            from headstart.model.recorded.kernels import attend  # needs Triton, which comes with torch for CUDA
        except ImportError as error:
            log.info("forwards are launched kernel by kernel: %s", first_line(error))
            return None
        return cls(device, CudaGraphs(device), attend)

    def another(self) -> Recorder:
        """One of the same kind for another model."""
        return Recorder(self._device, self._replay, self._attend)

    def run(self, packed: Packed, how: Hashable, compute: Compute, given: Tensor | None = None) -> Rows:
        """What `compute` makes of these rows. how: whatever else decides what it does."""
        shape = shape_of(packed.segments)
        if self.refused is not None or shape is None or not isinstance(packed.cache, KVCache):
            return compute(packed, given)
        known = self._of.setdefault(packed.cache, OrderedDict())
        key = (shape, how, None if given is None else (given.dtype, given.shape[1:]))
        found = known.get(key)
        if found is None:
            plain = compute(packed, given)
            try:
                found = self._recorded(packed.cache, shape, compute, given)
                self._compare(plain, found.run(packed, given))
            except Exception as error:  # of a driver, a compiler, or a forward that waits for the device
                self.refused = first_line(error)
                self._of.clear()
                log.warning("forwards are launched kernel by kernel: %s", self.refused)
                return plain
            known[key] = found
            if len(known) > MOST:
                known.popitem(last=False)
        known.move_to_end(key)
        return found.run(packed, given)

    def _recorded(self, cache: KVCache, shape: tuple[int, int], compute: Compute, given: Tensor | None) -> Recording:
        requests, rows = shape
        grid = Grid(cache, requests, rows, self._device, self._attend)
        into = None if given is None else given.new_zeros(requests * rows, *given.shape[1:])
        return Recording(grid, into, compute, self._replay)

    def _compare(self, plain: Rows, found: Rows) -> None:
        for old, new in zip((*plain.judged, *plain.every), (*found.judged, *found.every), strict=True):
            most = 1e-3 if old.dtype == torch.float32 else 0.1
            spread = float(old.float().amax() - old.float().amin())
            off = float((old.float() - new.float()).abs().max())
            if off > most * max(spread, 1e-6):  # NaN is the model's own
                raise ArithmeticError(f"a recorded forward is off by {off:.2g} of {spread:.2g}")


class RecordedDecoder:
    """A lean decoder whose forwards of few rows are recorded. It takes models whose layers are plain attention: the
    kernels of a mixture of experts depend on what its rows choose."""

    name = LeanDecoder.name
    quantize: str | None = None
    width_invariant = False
    can_exit = True
    experts_touched: int | None = None

    def __init__(self, decoder: LeanDecoder, recorder: Recorder) -> None:
        self._decoder, self._recorder = decoder, recorder
        self.shapes: Mapping[int, LayerShape] = decoder.shapes
        self.states: Mapping[int, StateShape] = decoder.states

    @classmethod
    def build(
        cls,
        model: Any,
        shapes: Mapping[int, LayerShape],
        *,
        length: int,
        quantize: str | None,
        packed: PackedFile | None = None,
    ) -> Self | None:
        recipe = parts.find_recipe_for(model)
        if recipe is None or recipe.experts or recipe.recurrent:
            return None
        if not all(shape.value_dim for shape in parts.shapes(recipe).values()):
            return None  # latent attention
        recorder = Recorder.on(model.device)
        if recorder is None:
            return None
        decoder = LeanDecoder.build(model, shapes, length=length, quantize=quantize, packed=packed)
        return None if decoder is None else cls(decoder, recorder)

    def new_cache(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> Slots:
        return self._decoder.new_cache(slots, capacity, dtype)

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        def compute(rows: Packed, _given: Tensor | None) -> Rows:
            found = self._decoder.run(rows, taps, layers)
            return Rows((found.logits,), tuple(found.hidden.values()))

        found = self._recorder.run(packed, (tuple(taps), layers), compute)
        return Forward(found.judged[0], dict(zip(sorted(set(taps)), found.every, strict=True)))

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> RecordedDecoder:
        return RecordedDecoder(self._decoder.first_layers(count, gain, output, quantize), self._recorder.another())

    def weights(self) -> Iterable[Tensor]:
        return self._decoder.weights()
