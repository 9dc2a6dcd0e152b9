"""An EAGLE head on the row kernels of a CPU: one call for fusing layer, decoder layer and head.

A head has a layer or two, so a forward of a few rows takes a fraction of a millisecond, of which calls must not be the
most.
What does not change from forward to forward is laid out once. `eagle.TensorHead` is the twin.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from headstart.base.errors import InvalidBatch, InvalidOption
from headstart.model import int4, native
from headstart.model.cache import Slots
from headstart.model.decoders.batches import TiledBatches
from headstart.model.decoders.fused import FusedLayers, lookup
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.linears import linear_of
from headstart.model.decoders.parts import rotation
from headstart.model.decoders.tiled import TiledCache
from headstart.model.heads.eagle import Head, HeadOutput, HeadWeights, TensorHead
from headstart.model.heads.eagle_checkpoint import EAGLE3
from headstart.model.native import structs
from headstart.model.native.memory import Room
from headstart.model.native.weights import NativeWeights, kind_of
from headstart.model.packed import Packed


class FourBits(NativeWeights):
    """Weights whose matrices are rounded to 4-bit codes, but for those that are asked for in another kind."""

    def product(self, linear: nn.Module, kind: int | None = None, room: Room | None = None) -> structs.Product:
        if kind is None and isinstance(linear, nn.Linear):
            linear = GroupedLinear(int4.four_bits(linear.weight.detach()), linear.bias)
        return super().product(linear, kind, room)


def make_head(weights: HeadWeights, length: int, *, quantize: str | None = None, lender: Head | None = None) -> Head:
    """The fastest forward that takes this head: row kernels, or tensor operations.

    quantize: None for the head's own numbers; "int8" for matrices of 8-bit integers; "int4" for 4-bit codes in groups;
    "auto" for the fewest bits. What the row kernels have no products of here runs on the next that they have. lender:
    another head, made with the same options, whose output matrix this one has as well.

    Raises:
        InvalidOption: quantize is something else.
    """
    if quantize not in (None, "int8", "int4", "auto"):
        raise InvalidOption(f"heads do not run with quantize={quantize!r}", hint="it is None, 'int8', 'int4' or 'auto'")
    if _kind(weights, quantize) is None:
        return TensorHead(weights, length, lender=lender)
    return FusedHead(weights, length, quantize=quantize, lender=lender)


def _kind(weights: HeadWeights, quantize: str | None) -> int | None:
    config = weights.checkpoint.config
    attention = {config.dim} if config.recipe is None else config.recipe.attention.widths
    widths = {config.width, config.intermediate, config.fused_inputs} | attention
    return kind_of(weights.head.dtype, weights.head.device, widths, quantize and "auto")


class FusedHead(Head):
    """The head as one call.

    Raises:
        native.Unavailable: the kernels do not take this head, or cannot be built here.
    """

    def __init__(
        self, weights: HeadWeights, length: int, *, quantize: str | None = None, lender: Head | None = None
    ) -> None:
        super().__init__(weights, length)
        kind, unrounded = _kind(weights, quantize), _kind(weights, None)
        self._kind = kind
        self._four_bits = quantize in ("int4", "auto") and int4.can_run(weights.head.device)
        if kind is None:
            raise native.Unavailable(f"the row kernels do not take {self.config.name}: {native.reason()}")
        config, rotary = self.config, weights.rotary()
        own = self._weights = FourBits(kind) if self._four_bits else NativeWeights(kind)
        owners, layers = zip(*((weights.owner(i), weights.layer(i)) for i in range(config.layers)), strict=True)
        self._lender = lender if isinstance(lender, FusedHead) else None
        self._layers = FusedLayers(owners, layers, own, length, lambda _: rotation(rotary, length)).structs
        self._embedding = weights.embedding
        numbers, codes = lookup(weights.embedding, own)
        self._model: structs.Model = structs.Model(
            layers=self._layers,
            layer_count=config.layers,
            width=config.width,
            final_norm=self._norm(weights.gain("norm")),
            head=own.product(linear_of(weights.head)) if self._lender is None else self._lender._model.head,
            embedding=numbers,
            table=codes,
            embedding_factor=1.0,
            logit_factor=1.0,
            bf16=self.dtype == torch.bfloat16,
        )
        self._draft_head = structs.DraftHead(
            # never rounded: what it joins is of different sizes, and the small would be lost beside the large
            fuse=own.product(weights.linear("fc"), unrounded),
            state_norm=self._norm(weights.gain("hidden_norm")),
            embedding_norm=self._norm(weights.gain("embedding_norm")),
            state_first=config.state_first,
            residual_normed=config.norm_before_residual,
            output_normed=config.states_normed,
        )
        self._draft_head_pointer = ctypes.pointer(self._draft_head)
        self._third = config.version == EAGLE3
        self._batches = TiledBatches(
            (config.window,), shapes=self.shapes, dtype=self.dtype, vocabulary=config.vocab_size, positions=self.length
        )

    @property
    def weights_in_words(self) -> str:
        if self._four_bits:
            return f"4-bit codes by {int4.GROUP}"
        return "int8" if self._kind == native.INT8 else super().weights_in_words

    def _norm(self, gain: Tensor | None) -> structs.Norm:
        if gain is None:
            return structs.Norm()
        return structs.Norm(self._weights.gain(gain), None, self.config.eps, structs.RMS)

    def new_cache(self, slots: int) -> Slots:
        return TiledCache(self.shapes, slots=slots, capacity=self.length, dtype=self.dtype)

    def run(self, packed: Packed, given: Tensor, *, own: bool, every: bool = False) -> HeadOutput:
        fusing = self._third and not own
        rows = self._features(given) if fusing else given
        if rows.dtype != torch.float32 or not rows.is_contiguous():  # to ask costs less than operations that do nothing
            rows = rows.float().contiguous()
        batch = self._batches.take(packed, self._model)
        struct, width = batch.struct, self.config.fused_inputs if fusing else self.config.width
        if rows.shape != (struct.count, width):
            raise InvalidBatch(
                f"states of the shape {list(rows.shape)} for {struct.count} rows of {width}",
                hint="give a state for each row",
            )
        struct.draft_head = self._draft_head_pointer
        struct.states, struct.features = (None, rows.data_ptr()) if fusing else (rows.data_ptr(), None)
        states = torch.empty(struct.judged_count, self._model.width)
        struct.output_states, struct.taps, left = states.data_ptr(), None, None
        if every:
            left, pointers = torch.empty(len(rows), self._model.width), (ctypes.c_void_p * (self.config.layers + 1))()
            pointers[self.config.layers] = left.data_ptr()
            struct.taps = ctypes.addressof(pointers)
        return HeadOutput(self._batches.run(batch, self._model)[0], states, left)

    def weights(self) -> Iterable[Tensor]:
        return (*super().weights(), *self._weights.tensors)
