"""Weights as the kernels read them: which kind a model's would be, and laying them out."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from headstart.base.errors import UnsupportedModel
from headstart.model import native
from headstart.model.decoders.grouped import GroupedLinear, by_output, coded
from headstart.model.grouped import BlockRows, ChannelWeights, JoinedWeights, StoredWeights
from headstart.model.native.grouping import block_products, channel_product, grouped_product, joined_product
from headstart.model.native.memory import Pointed, Room, aligned
from headstart.model.native.structs import Product

if TYPE_CHECKING:
    from headstart.model.native.product_file import ProductFile

log = logging.getLogger(__name__)


def why_not(dtype: torch.dtype, device: torch.device, widths: Iterable[int]) -> str | None:
    """Why the kernels do not take weights of this dtype and these widths on a device; None where they do."""
    if device.type != "cpu":
        return f"they run on processors, and this is {device}"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"they compute in float32 and bfloat16, and this is {str(dtype).removeprefix('torch.')}"
    if uneven := sorted(width for width in widths if width % native.LANES):
        return f"widths must be multiples of {native.LANES}, and one is {uneven[0]}"
    return None if native.available() else native.reason() or "there are none here"


def kind_of(dtype: torch.dtype, device: torch.device, widths: Iterable[int], quantize: str | None) -> int | None:
    """How the kernels would store weights of this kind; None where they do not take them.

    widths: of all rows and attention heads. quantize: None; "int8" for nothing but 8-bit integers; "auto" for those
    where this processor has products of them, and the numbers of `dtype` elsewhere.
    """
    if (why := why_not(dtype, device, widths)) is not None:
        log.info("no row kernels, so more and smaller operations run instead: %s", why)
        return None
    supported = native.kernels().supported
    if quantize is not None and supported(native.INT8):
        return native.INT8
    if quantize == "int8":
        return None
    if dtype == torch.float32:
        return native.FLOAT32
    return native.BF16_PAIRS if supported(native.BF16_PAIRS) else native.BF16_WIDE


def takes_codes(model: nn.Module) -> bool:
    """Whether the kernels have products of all codes that this model's matrices are."""
    kinds = {native.INT8 if by_output(held) else native.GROUPED4 for held in coded(model)}
    return native.available() and all(native.kernels().supported(kind) for kind in kinds)


class NativeWeights(Pointed):
    """Weights laid out for the kernels, and kept alive.

    kind: of the products, see `kind_of`. file: in which some are laid out already.
    """

    def __init__(self, kind: int, file: ProductFile | None = None) -> None:
        super().__init__()
        self.kind, self._file = kind, file
        if file is not None:
            self.tensors.append(file.memory)

    def named(self, name: str, shape: tuple[int, int], layer: Callable[[], nn.Module]) -> Product:
        """The product of a layer, from the file where that holds one of this name.

        shape: inputs and outputs. layer: makes it, where there is none.

        Raises:
            ValueError, KeyError, TypeError: the file holds another one.
        """
        if self._file is not None and name in self._file:
            return self._file.products(name, 1, *shape)[0]
        return self.product(layer())

    def product(self, linear: nn.Module, kind: int | None = None, room: Room | None = None) -> Product:
        """A layer's weights in the kernels' own order. Grouped weights stay what they are, whatever the kind. room:
        where they go; None for memory of their own."""
        if (blocks := _blocks_of(linear)) is not None:
            return block_products(self, [(blocks, _bias_of(linear))], aligned if room is None else room.take)[0]
        if isinstance(linear, GroupedLinear):
            coded = linear.weights
            match coded:
                case ChannelWeights():
                    return channel_product(self, coded, linear.bias, room)
                case JoinedWeights():
                    return joined_product(self, coded, linear.bias, room)
                case _:
                    return grouped_product(self, coded, linear.bias, room)
        if not isinstance(linear, nn.Linear):
            raise UnsupportedModel(
                f"the row kernels do not take a layer of the type {type(linear).__name__}",
                hint="layers are plain nn.Linear, or grouped weights",
            )
        kind = self.kind if kind is None else kind
        kernels, weight = native.kernels(), linear.weight.detach().contiguous()
        outputs, inputs = weight.shape
        packed = (aligned if room is None else room.take)(kernels.packed_bytes(kind, inputs, outputs))
        scale, shift = torch.empty(outputs), torch.empty(outputs, dtype=torch.int32)
        addresses = [self.pointer(tensor) for tensor in (packed, scale, shift)]
        kernels.pack(
            kind,
            weight.data_ptr(),
            weight.dtype == torch.bfloat16,
            inputs,
            outputs,
            *addresses,
            torch.get_num_threads(),
        )
        return Product(*addresses, self.gain(linear.bias), inputs, outputs, kind, results=outputs)

    def products(
        self, linears: Iterable[nn.Module], count: int, first: Sequence[Product] = ()
    ) -> ctypes.Array[Product]:
        """The products of so many layers, one after the other, which share a block of memory. first: those that are
        laid out already, before the others."""
        made, room = (Product * (len(first) + count))(*first), Room(count)
        blocks = []
        for number, linear in enumerate(linears, len(first)):
            if (rows := _blocks_of(linear)) is None:
                made[number] = self.product(linear, room=room)
            else:
                blocks.append((number, (rows, _bias_of(linear))))
        packed = block_products(self, [each for _, each in blocks], room.take)
        for (number, _), product in zip(blocks, packed, strict=True):
            made[number] = product
        self.structure(made)
        return made


def _blocks_of(linear: nn.Module) -> tuple[BlockRows, ...] | None:
    """A layer's weights as the blocks of a file; None where they are none."""
    held = linear.held if isinstance(linear, GroupedLinear) else None
    return held.blocks() if isinstance(held, StoredWeights) and held.blocks is not None else None


def _bias_of(linear: nn.Module) -> torch.Tensor | None:
    found: torch.Tensor | None = linear.bias  # type: ignore[assignment]  # a module's attribute can be anything
    return found
