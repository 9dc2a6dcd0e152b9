"""Blocks of GGUF files, packed by the kernels without a copy between, against the codes that NumPy makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel
from headstart.model import native
from headstart.model.gguf.blocks import DECODERS, FORMS, decoded
from headstart.model.gguf.header import Tensor
from headstart.model.gguf.types import TYPES
from headstart.model.gguf.weights import _side_by_side
from headstart.model.grouped import StoredWeights
from headstart.model.native.grouping import block_products, form_of, grouped_product
from headstart.model.native.memory import Pointed
from headstart.model.native.structs import Product

HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (),
}  # fmt: skip
"""Where the half-precision numbers of a block are."""

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here")


def tensor(name: str, rows: int, blocks: int, seed: int = 0) -> Tensor:
    """Random codes, and random scales that are numbers."""
    kind = next(each for each in TYPES.values() if each.name == name)
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks, kind.size), np.uint8)
    for at in HALVES[name]:
        raw[..., at + 1] = raw[..., at + 1] & 0x83 | 0x28  # halves of a size that weights have
    if name == "MXFP4":
        raw[..., 0] = raw[..., 0] % 8 + 116
        raw[0, 0, 1:] = 0x80  # a block of zeros
    return Tensor(name, (rows, blocks * kind.inputs), kind, raw.reshape(rows, -1))


def numbers(product: Product) -> NDArray[np.float32]:
    made = np.empty((product.outputs, product.inputs), np.float32)
    rows = np.arange(product.outputs)
    native.kernels().unpack_grouped(product, rows.ctypes.data, len(rows), made.ctypes.data)
    return made


def results(product: Product, rows: int) -> torch.Tensor:
    x = torch.randn(rows, product.inputs, generator=torch.Generator().manual_seed(1))
    y = torch.empty(rows, product.results)
    native.kernels().multiply(product, x.data_ptr(), rows, y.data_ptr(), 1)
    return y


def test_all_types_are_packed() -> None:
    assert FORMS.keys() == DECODERS.keys() == HALVES.keys()
    assert all(TYPES[form.number].name == name and TYPES[form.number].bits == form.bits for name, form in FORMS.items())


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "blocks"), [(48, 1), (40, 3)])
def test_the_same_products_as_of_codes(name: str, rows: int, blocks: int) -> None:
    """Whole panels and a part of one; outputs in another order than the file's; two matrices at once."""
    stored, order = tensor(name, rows, blocks), np.random.default_rng(2).permutation(rows)
    other = tensor(name, 16, blocks, seed=3)
    both = [_side_by_side([(stored, 0, rows)], order), _side_by_side([(other, 0, 16)])]
    of = Pointed()
    made = block_products(of, [(each.blocks(), None) for each in both if each.blocks is not None])
    for product, codes in zip(made, (decoded(stored, order), decoded(other)), strict=True):
        twin = grouped_product(of, codes, None)
        assert (product.scales, product.minimum) == tuple(form_of(codes))
        assert np.array_equal(numbers(product), codes.dequantise())
        for count in (1, 3, 40):
            assert torch.equal(results(product, count), results(twin, count))


def test_parts_of_other_types_are_a_chain_and_those_of_one_type_are_one() -> None:
    first, second, third = tensor("Q4_K", 32, 1), tensor("Q4_K", 32, 1, seed=1), tensor("Q6_K", 32, 1)
    joined = _side_by_side([(first, 0, 32), (second, 0, 32), (third, 16, 16)])
    bias = torch.randn(80)
    of = Pointed()
    assert joined.blocks is not None
    (product,) = block_products(of, [(joined.blocks(), bias)])
    assert (product.outputs, product.results) == (64, 80)
    more = Product.from_address(product.more)
    assert (more.outputs, more.results, more.more) == (16, 80, None)
    parts = [decoded(first), decoded(second), decoded(third, slice(16, 32))]
    wanted = [results(grouped_product(of, part, None), 2) for part in parts]
    assert torch.equal(results(product, 2), torch.cat(wanted, 1) + bias)


@pytest.mark.parametrize("name", [name for name in FORMS if HALVES[name]])
def test_a_scale_that_is_no_number_is_an_error(name: str) -> None:
    stored = tensor(name, 32, 2)
    stored.data[17, stored.type.size + HALVES[name][-1] + 1] = 0x7C
    stored.data[17, stored.type.size + HALVES[name][-1]] = 0
    held: StoredWeights = _side_by_side([(stored, 0, 32)])
    assert held.blocks is not None
    with pytest.raises(DamagedModel, match=f"'{name}' holds a scale"):
        block_products(Pointed(), [(held.blocks(), None)])
