"""Forwards of few rows, recorded as CUDA graphs.

A forward of a model is hundreds of short kernels, and to launch them one by one takes a host longer than a GPU takes
to run them, unless the model is very large. So each shape of a forward is recorded when it is first met, and from then
on launched as a whole. What differs between two forwards of one shape lies in the buffers of a `Grid`.

When a shape is recorded, what comes out of it is compared with the forward that was not recorded. Whatever cannot be
recorded, or comes out otherwise, runs as before. So does what a thread launches that drafts ahead, on a stream of its
own: recorded forwards of one model share their memory, and must follow one another.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
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

MOST_ROWS = 1024
"""Of all recorded forwards of one cache, each of which keeps the logits of its rows; those that were not asked for
longest make room."""

_ONE_RECORDS = threading.Lock()
"""While one forward is recorded nobody may wait for the whole device, as the next to record would."""


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
        # Streams are handed out in turns, and those of this priority to nobody else here
        self._stream: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]

    def __call__(self, work: Callable[[], Rows]) -> tuple[Callable[[], object], Rows]:
        with _ONE_RECORDS:
            torch.cuda.synchronize(self._device)
            with torch.cuda.stream(self._stream):
                work()  # kernels are compiled, and libraries take their memory, before anything is recorded
                self._stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                # other threads may go on using the GPU
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    rows = work()
                except BaseException:
                    with suppress(RuntimeError):  # it would hide why
                        graph.capture_end()
                    raise
                graph.capture_end()
            torch.cuda.synchronize(self._device)
        return graph.replay, rows


class Recording:
    """One shape of a forward."""

    def __init__(self, grid: Grid, given: Tensor | None, compute: Compute, replay: Replay) -> None:
        self._grid, self._given = grid, given
        self._compute, self._replay = compute, replay
        self._run: Callable[[], object] | None = None

    @property
    def rows(self) -> int:
        return self._grid.requests * self._grid.rows

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
        self._turn = threading.Lock()  # of threads whose engines share a model
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
        """One of the same kind for another model, whose forwards take turns with those of this one."""
        made = Recorder(self._device, self._replay, self._attend)
        made._turn = self._turn
        return made

    def run(self, packed: Packed, how: Hashable, compute: Compute, given: Tensor | None = None) -> Rows:
        """What `compute` makes of these rows. how: whatever else decides what it does."""
        shape = shape_of(packed.segments)
        if self.refused is not None or shape is None or not isinstance(packed.cache, KVCache) or self._apart():
            return compute(packed, given)
        with self._turn:
            key = (shape, how, None if given is None else (given.dtype, given.shape[1:]))
            known = self._of.setdefault(packed.cache, OrderedDict())
            found = known.get(key)
            if found is None:
                try:
                    found = self._recorded(packed, shape, compute, given)
                except Exception as error:  # of a driver, a compiler, or a forward that waits for the device
                    self.refused = first_line(error)
                    self._of.clear()
                    log.warning("forwards are launched kernel by kernel: %s", self.refused)
                    return compute(packed, given)  # once more: what was refused has written keys and values
                known[key] = found
                while len(known) > 1 and sum(each.rows for each in known.values()) > MOST_ROWS:
                    known.popitem(last=False)
            known.move_to_end(key)
            return found.run(packed, given)

    def _apart(self) -> bool:
        """Whether the calling thread has a stream of its own."""
        if self._device.type != "cuda":
            return False
        return bool(torch.cuda.current_stream(self._device) != torch.cuda.default_stream(self._device))

    def _recorded(self, packed: Packed, shape: tuple[int, int], compute: Compute, given: Tensor | None) -> Recording:
        requests, rows = shape
        plain = compute(packed, given)
        assert isinstance(packed.cache, KVCache), "others are not recorded"
        grid = Grid(packed.cache, requests, rows, self._device, self._attend)
        into = None if given is None else given.new_zeros(requests * rows, *given.shape[1:])
        made = Recording(grid, into, compute, self._replay)
        found = made.run(packed, given)
        for old, new in zip((*plain.judged, *plain.every), (*found.judged, *found.every), strict=True):
            compare(old, new)
        return made


def compare(old: Tensor, new: Tensor) -> None:
    """Raises:
    ArithmeticError: what was recorded differs from what was not by more than rounding.
    """
    finite = old.isfinite()
    if not torch.equal(finite, new.isfinite()):
        raise ArithmeticError("a recorded forward has other numbers that are not finite")
    a, b = (each[finite].double() for each in (old, new))
    if not a.numel():
        return
    most = 1e-3 if old.dtype in (torch.float32, torch.float64) else 0.1
    spread, off = float(a.max() - a.min()), float((a - b).abs().max())
    if off > most * max(spread, 1e-6):
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
        tapped = sorted(tap for tap in set(taps) if layers is None or tap <= layers)
        return Forward(found.judged[0], dict(zip(tapped, found.every, strict=True)))

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> RecordedDecoder:
        return RecordedDecoder(self._decoder.first_layers(count, gain, output, quantize), self._recorder.another())

    def weights(self) -> Iterable[Tensor]:
        return self._decoder.weights()
