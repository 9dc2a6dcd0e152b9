"""Grouped weights as the kernels read them: which form holds their numbers, and laying them out."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel
from headstart.model import native
from headstart.model.grouped import UNIT, BlockRows, ChannelWeights, GroupedWeights, JoinedWeights
from headstart.model.memory import prefetch, release
from headstart.model.native.memory import Pointed, Room, aligned
from headstart.model.native.structs import BlockMatrix, Product

FLOATS, HALVES, UNITS, POWERS = range(4)
"""How scales and minimums are stored; the enum Scales of grouped.h."""

STORED = -1
"""Minimums are stored; otherwise each is the same whole multiple of its scale, and only that multiple is."""

TOGETHER = 32
"""Inputs whose codes of 3 and of 5 bits lie together."""

_MULTIPLES = (0, 4, 8, 16, 32, 128)  # of symmetric codes of 3, 4, 5, 6 and 8 bits: where zero stands


class Form(NamedTuple):
    """How a product keeps its scales and minimums. The form is found in the numbers, and changes none of them."""

    scales: int
    """FLOATS, HALVES, UNITS or POWERS."""
    minimum: int
    """STORED, or so many times the scale."""


def form_of(weights: GroupedWeights) -> Form:
    """The smallest form that holds these scales and minimums exactly."""
    multiple = 0 if weights.table is not None else _multiple(weights)
    kept = [(weights.scales, weights.scale_units)]
    if multiple == STORED:
        kept.append((weights.minimums, weights.minimum_units))
    if all(_are_powers(numbers) for numbers, _ in kept):
        return Form(POWERS, multiple)
    if all(_in_units(numbers, units, weights.group) for numbers, units in kept):
        return Form(UNITS, multiple)
    return Form(HALVES if all(_is_half(numbers) for numbers, _ in kept) else FLOATS, multiple)


def _multiple(weights: GroupedWeights) -> int:
    """So many times its scale each minimum is; or STORED."""
    scales, minimums = weights.scales, weights.minimums
    return next((c for c in _MULTIPLES if np.array_equal(minimums, np.float32(c) * scales)), STORED)


def _is_half(numbers: NDArray[np.float32]) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers)


def _are_powers(numbers: NDArray[np.float32]) -> bool:
    """Whether all are powers of two that are not subnormal, or zero."""
    return not (numbers.view(np.uint32) & 0x807FFFFF).any()


def _in_units(numbers: NDArray[np.float32], units: NDArray[np.float32] | None, group: int) -> bool:
    if units is None or not _is_half(units):
        return False
    spread = np.repeat(units, UNIT // group, axis=1)[:, : numbers.shape[1]]
    whole = np.rint(np.divide(numbers, spread, out=np.zeros_like(numbers), where=spread != 0))
    return bool(np.abs(whole + 0.5).max(initial=0) <= 127.5) and np.array_equal(whole * spread, numbers)


def kind_of_codes(bits: int, group: int, inputs: int) -> int:
    """The kind of product that takes such codes. Those of 5 bits lie by 32 inputs, and take 6 in smaller groups; those
    of 3 bits take 4 in smaller groups of which there is an odd number."""
    if (bits == 5 and group < TOGETHER) or (bits == 3 and group < TOGETHER and inputs % TOGETHER):
        bits += 1
    return _KINDS[bits]


def bits_of_kind(kind: int) -> int:
    """Of the codes that such a product takes."""
    return next(bits for bits, each in _KINDS.items() if each == kind)


_KINDS = {
    2: native.GROUPED2, 3: native.GROUPED3, 4: native.GROUPED4, 5: native.GROUPED5, 6: native.GROUPED6,
    8: native.GROUPED8,
}  # fmt: skip


def grouped_product(
    of: Pointed, weights: GroupedWeights, bias: torch.Tensor | None, room: Room | None = None
) -> Product:
    """A product of these weights, laid out for the kernels and kept alive by `of`. room: where they go; None for memory
    of their own."""
    form, kernels = form_of(weights), native.kernels()
    outputs, inputs = weights.codes.shape
    kind = kind_of_codes(weights.bits, weights.group, inputs)
    product = Product(
        bias=of.gain(bias), inputs=inputs, outputs=outputs, kind=kind, group=weights.group, scales=form.scales,
        minimum=form.minimum, results=outputs,
    )  # fmt: skip
    packed = (aligned if room is None else room.take)(kernels.grouped_bytes(product))
    arrays = (weights.codes, weights.scales, weights.minimums, weights.scale_units, weights.minimum_units)
    held = [None if array is None else np.ascontiguousarray(array) for array in arrays]
    addresses = [None if array is None else array.ctypes.data for array in held]
    kernels.pack_grouped(product, *addresses, packed.data_ptr(), torch.get_num_threads())
    product.weights = of.pointer(packed)
    if weights.order is not None:
        product.order = of.pointer(torch.from_numpy(weights.order))
    if weights.table is not None:
        product.table = of.pointer(torch.from_numpy(weights.table))
    return product


def joined_product(of: Pointed, weights: JoinedWeights, bias: torch.Tensor | None, room: Room | None = None) -> Product:
    """A product of these weights, each part in codes of its own. room: see `grouped_product`."""
    ends = list(itertools.accumulate(part.shape[0] for part in weights.parts))
    products = []
    for part, end in zip(weights.parts, ends, strict=True):
        own = None if bias is None else bias[end - part.shape[0] : end]
        products.append(grouped_product(of, part, own, room))
        products[-1].results = ends[-1]
    return _chained(of, products)


def _chained(of: Pointed, products: Sequence[Product]) -> Product:
    """One product of several that take the same inputs."""
    for product, more in itertools.pairwise(products):
        product.more = of.structure(more)
    return products[0]


def block_products(
    of: Pointed,
    matrices: Sequence[tuple[Sequence[BlockRows], torch.Tensor | None]],
    take: Callable[[int], torch.Tensor] = aligned,
) -> list[Product]:
    """Products of matrices that are a file's blocks, with their biases, all packed at once; kept alive by `of`.

    matrices: the parts of each one after the other, and its bias. take: gives memory.

    Raises:
        DamagedModel: a scale is no finite number.
    """
    kernels, made = native.kernels(), [_block_parts(of, *each, take) for each in matrices]
    parts = [part for each, _ in matrices for part in each]
    jobs = (BlockMatrix * len(parts))()
    for job, part, product in zip(jobs, parts, itertools.chain.from_iterable(made), strict=True):
        job.product, job.type = ctypes.pointer(product), part.form.number
        job.rows, job.to = part.rows.ctypes.data, product.weights
    whole = {id(data): data for part in parts for data in part.within}.values()
    for data in whole:
        prefetch(data)
    kernels.pack_blocks(jobs, len(jobs), torch.get_num_threads())
    for data in whole:
        release(data)
    for job, part in zip(jobs, parts, strict=True):
        if job.damaged:
            raise DamagedModel(
                f"tensor {part.tensors!r} holds a scale that is no finite number",
                hint="the file is damaged: copy or download it again",
            )
    return [_chained(of, each) for each in made]


def _block_parts(
    of: Pointed, parts: Sequence[BlockRows], bias: torch.Tensor | None, take: Callable[[int], torch.Tensor]
) -> list[Product]:
    """Products of which only the numbers are missing, which have memory already."""
    made: list[Product] = []
    ends = list(itertools.accumulate(len(part.rows) for part in parts))
    for part, end in zip(parts, ends, strict=True):
        form, outputs, inputs = part.form, len(part.rows), part.inputs
        own = None if bias is None else bias[end - outputs : end]
        made.append(
            Product(
                bias=of.gain(own), inputs=inputs, outputs=outputs, kind=kind_of_codes(form.bits, form.group, inputs),
                group=form.group, scales=form.scales, minimum=form.minimum, results=ends[-1],
            )
        )  # fmt: skip
        made[-1].weights = of.pointer(take(native.kernels().grouped_bytes(made[-1])))
        if part.order is not None:
            made[-1].order = of.pointer(torch.from_numpy(part.order))
        if form.table is not None:
            made[-1].table = of.pointer(torch.from_numpy(form.table))
    return made


def channel_product(
    of: Pointed, weights: ChannelWeights, bias: torch.Tensor | None, room: Room | None = None
) -> Product:
    """A product of weights that are int8 with a scale for each output: they are laid out as they are. room: see
    `grouped_product`."""
    kernels, (outputs, inputs) = native.kernels(), weights.shape
    packed = (aligned if room is None else room.take)(kernels.packed_bytes(native.INT8, inputs, outputs))
    shift = torch.empty(outputs, dtype=torch.int32)
    addresses = of.pointer(packed), of.pointer(torch.from_numpy(weights.scales)), of.pointer(shift)
    codes = np.ascontiguousarray(weights.codes)
    kernels.pack_whole(codes.ctypes.data, inputs, outputs, addresses[0], addresses[2], torch.get_num_threads())
    return Product(*addresses, of.gain(bias), inputs, outputs, native.INT8, results=outputs)
