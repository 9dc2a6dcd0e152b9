"""Blocks become the numbers that the package `gguf` makes of them, for every type that can be read."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

from headstart.base.errors import DamagedModel
from headstart.model import int4, native
from headstart.model.gguf.blocks import DECODERS, decoded, floats, grouped
from headstart.model.gguf.header import Tensor
from headstart.model.gguf.types import OTHERS, TYPES
from headstart.model.native.grouping import POWERS, form_of, grouped_product
from headstart.model.native.weights import NativeWeights

HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
    "Q2_K": [80, 82], "Q3_K": [108],
    "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip
"""Where a block keeps its half-precision numbers."""
BY_NAME = {each.name: each for each in TYPES.values() if each.name != "I64"}  # which no model has, only ids of heads


def random_tensor(name: str, *, rows: int = 6, blocks: int = 3, seed: int = 0, least: int = 0) -> Tensor:
    """Random bytes, with half-precision numbers that are finite. least: exponent of MXFP4."""
    rng = np.random.default_rng(seed)
    kind = BY_NAME[name]
    data = rng.integers(0, 256, (rows, blocks, kind.size), dtype=np.uint8)
    for at in HALVES.get(name, ()):
        data[..., at : at + 2] = rng.normal(size=(rows, blocks, 1)).astype("<f2").view(np.uint8)
    if name in ("F32", "F16"):
        form = "<f4" if name == "F32" else "<f2"
        data = rng.normal(size=(rows, blocks, 1)).astype(form).view(np.uint8)
    if name == "MXFP4":
        data[..., 0] = rng.integers(least, 240, (rows, blocks))  # none of infinity
    if name == "BF16":
        data[..., 1] &= 0xBF  # no exponent of infinity
    return Tensor("t", (rows, blocks * kind.inputs), kind, data.reshape(rows, -1))


@pytest.mark.parametrize("name", BY_NAME)
def test_numbers_are_exactly_those_of_the_package_gguf(name: str) -> None:
    """Bit for bit, but for the sign of a zero."""
    tensor = random_tensor(name)
    twin = gguf.dequantize(tensor.data, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(floats(tensor), twin)


@pytest.mark.parametrize("name", DECODERS)
def test_codes_keep_their_bits_and_groups(name: str) -> None:
    found = grouped(random_tensor(name))
    assert found is not None
    assert found.codes.dtype == np.uint8
    assert found.codes.max() < 2**found.bits
    assert found.scales.shape == found.minimums.shape == (6, found.codes.shape[1] // found.group)
    assert found.scales.dtype == found.minimums.dtype == np.float32


@pytest.mark.parametrize("name", ["IQ4_NL", "IQ4_XS", "MXFP4"])
def test_numbers_of_a_table_are_codes_of_four_bits(name: str) -> None:
    found = grouped(random_tensor(name))
    assert found is not None
    assert (found.bits, found.minimums.any()) == (4, False)
    assert found.table is not None


@pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")
@pytest.mark.parametrize("name", DECODERS)
def test_memory_is_what_the_kernels_take(name: str) -> None:
    tensor = random_tensor(name, rows=32, blocks=8, least=2)
    product = grouped_product(NativeWeights(native.GROUPED4), decoded(tensor), None)
    assert native.kernels().grouped_bytes(product) * 8 == tensor.type.memory * tensor.count


def test_blocks_of_zeros_of_mxfp4_have_scales_of_zero() -> None:
    """Writers give them the exponent 0, a scale that no byte holds."""
    rows = np.random.default_rng(0).normal(size=(6, 96)).astype(np.float32)
    rows[2, 32:64] = 0
    data = gguf.quantize(rows, gguf.GGMLQuantizationType.MXFP4)
    assert data[2, 17] == 0
    tensor = Tensor("t", rows.shape, BY_NAME["MXFP4"], data)
    scales = decoded(tensor).scales
    assert (scales == 0).nonzero() == (2, 1)
    assert form_of(decoded(tensor)).scales == POWERS
    np.testing.assert_array_equal(floats(tensor), gguf.dequantize(data, gguf.GGMLQuantizationType.MXFP4))


def test_some_rows_are_the_rows_of_all() -> None:
    tensor = random_tensor("Q6_K")
    np.testing.assert_array_equal(floats(tensor, slice(2, 4)), floats(tensor)[2:4])


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("rows", [slice(None), slice(1, 4), np.array([4, 0, 5])], ids=["all", "a slice", "some"])
def test_codes_are_the_same_without_kernels(
    name: str, rows: slice | np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = random_tensor(name)
    wide = np.concatenate([tensor.data, tensor.data], axis=1)[:, : tensor.data.shape[1]]  # rows with a gap between them
    apart = replace(tensor, data=wide)
    fast = [decoded(each, rows).codes for each in (tensor, apart)]
    monkeypatch.setattr(native, "available", lambda: False)
    for codes in fast:
        np.testing.assert_array_equal(codes, decoded(tensor, rows).codes)


def test_floats_have_no_codes() -> None:
    assert [grouped(random_tensor(name)) for name in ("F32", "F16", "BF16")] == [None] * 3


@pytest.mark.parametrize("name", HALVES)
def test_a_scale_that_is_not_finite_is_refused(name: str) -> None:
    tensor = random_tensor(name)
    tensor.data[3, HALVES[name][0] : HALVES[name][0] + 2] = np.array([np.inf], "<f2").view(np.uint8)
    with pytest.raises(DamagedModel, match="'t' holds a scale"):
        floats(tensor)


@pytest.mark.parametrize("exponent", [253, 255])
def test_an_exponent_that_is_too_large_is_refused(exponent: int) -> None:
    tensor = random_tensor("MXFP4")
    tensor.data[3, 0] = exponent
    with pytest.raises(DamagedModel, match="'t' holds a scale"):
        floats(tensor)


def test_types_have_the_names_and_sizes_of_the_package_gguf() -> None:
    theirs = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    assert {number: (each.name, each.inputs, each.size) for number, each in TYPES.items()}.items() <= theirs.items()
    assert {number: theirs[number][0] for number in OTHERS if number in theirs}.items() <= OTHERS.items()
