"""Grouped products: the kernels' bits are those of the NumPy twin, on every instruction set and in any company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import grouped_twin as twin

from headstart.base.errors import UnsupportedModel
from headstart.model import native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.grouped import GROUPS, UNIT, ChannelWeights, GroupedWeights, JoinedWeights, side_by_side
from headstart.model.native.grouping import (
    FLOATS,
    HALVES,
    POWERS,
    STORED,
    UNITS,
    channel_product,
    form_of,
    grouped_product,
)
from headstart.model.native.weights import NativeWeights

F32 = NDArray[np.float32]

pytestmark = pytest.mark.skipif(
    not (native.available() and native.kernels().supported(native.GROUPED4)), reason="no grouped products here"
)

FORMS = {"floats": FLOATS, "halves": HALVES, "units": UNITS, "powers": POWERS}

TABLED = 0
"""Of `bits`: codes of four bits that stand for numbers of a table."""

TABLE = np.array([-128, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 127], np.int8)


def weights_of(
    shape: tuple[int, int], bits: int, group: int, form: str, *, middle: bool, seed: int = 0
) -> GroupedWeights:
    """Random weights whose scales the form holds. middle: symmetric codes, whose zero stands in the middle."""
    rng = np.random.default_rng(seed)
    outputs, inputs = shape
    groups, blocks = -(-inputs // group), -(-inputs // UNIT)
    codes = rng.integers(0, 1 << (bits or 4), shape, dtype=np.uint8)

    def numbers() -> tuple[F32, F32 | None]:
        if form == "units":
            units = rng.standard_normal((outputs, blocks)).astype(np.float16).astype(np.float32)
            spread = np.repeat(units, UNIT // group, axis=1)[:, :groups]
            return (rng.integers(-128, 128, (outputs, groups)) * spread).astype(np.float32), units
        if form == "powers":
            return np.ldexp(np.float32(1), rng.integers(-20, 3, (outputs, groups)), dtype=np.float32), None
        drawn = rng.standard_normal((outputs, groups))
        return (drawn.astype(np.float16) if form == "halves" else drawn).astype(np.float32), None

    (scales, scale_units), (minimums, minimum_units) = numbers(), numbers()
    if bits == TABLED:
        return GroupedWeights(codes, 4, group, scales, np.zeros_like(scales), scale_units, table=TABLE)
    if middle:
        minimums, minimum_units = np.float32(1 << bits - 1) * scales, None
    return GroupedWeights(codes, bits, group, scales, minimums, scale_units, minimum_units)


def without_table(weights: GroupedWeights) -> GroupedWeights:
    """The same numbers as codes of eight bits."""
    assert weights.table is not None
    codes = (weights.table[weights.codes].astype(np.int16) + 128).astype(np.uint8)
    return replace(weights, codes=codes, bits=8, minimums=128 * weights.scales, table=None)


def multiply(weights: GroupedWeights | JoinedWeights, x: F32, *, threads: int = 1, bias: F32 | None = None) -> F32:
    held = NativeWeights(native.GROUPED4)
    product = held.product(GroupedLinear(weights, None if bias is None else torch.from_numpy(bias)))
    y = np.full((len(x), weights.shape[0]), np.nan, np.float32)
    native.kernels().multiply(product, x.ctypes.data, len(x), y.ctypes.data, threads)
    return y


def rows(count: int, inputs: int, seed: int = 1) -> F32:
    return np.random.default_rng(seed).standard_normal((count, inputs)).astype(np.float32)


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [4, 8])
def test_single_outputs_are_read_back_from_the_panels(bits: int, group: int, form: str, middle: bool) -> None:
    """As an embedding is looked up: each number is that of the codes, rounded once."""
    for shape in ((97, 16), (33, 48), (40, 592)):
        weights, wanted = weights_of(shape, bits, group, form, middle=middle), np.array([0, 31, 32, 17, 0])
        held = NativeWeights(native.GROUPED4)
        found = np.full((len(wanted), shape[1]), np.nan, np.float32)
        product = grouped_product(held, weights, None)
        native.kernels().unpack_grouped(product, wanted.ctypes.data, len(wanted), found.ctypes.data)
        np.testing.assert_array_equal(found, weights.dequantise()[wanted])


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_has_the_bits_of_the_twin(bits: int, group: int, form: str, middle: bool) -> None:
    for shape in ((97, 16), (33, 48), (40, 592)):
        weights, x = weights_of(shape, bits, group, form, middle=middle), rows(7, shape[1])
        found = form_of(weights)
        assert found.scales == FORMS[form]
        assert found.minimum == ((8 if bits == 4 else 128) if middle else STORED)
        y = multiply(weights, x)
        assert np.array_equal(y, twin.product(weights, x))
        dense = x.astype(np.float64) @ weights.dequantise().T.astype(np.float64)
        assert np.linalg.norm(y - dense) < 0.015 * np.linalg.norm(dense)


@pytest.mark.parametrize("bits", [4, 8, TABLED])
@pytest.mark.parametrize("group", GROUPS)
def test_a_row_has_the_same_bits_at_every_width(group: int, bits: int) -> None:
    """1 to 40 rows, one and two threads."""
    weights = weights_of((80, 320), bits, group, "halves", middle=group == 32)
    x = rows(40, 320)
    alone = np.concatenate([multiply(weights, row[None]) for row in x])
    assert np.array_equal(alone, twin.product(weights, x))
    for count in range(1, 41):
        assert np.array_equal(multiply(weights, x[:count], threads=1 + count % 2), alone[:count]), count


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8, TABLED])
def test_many_rows_have_the_bits_of_the_twin(bits: int, group: int, middle: bool) -> None:
    """Rows that tiles take, where there are any: several passes of them, the last of which is not full."""
    weights = weights_of((49, 592), bits, group, "halves", middle=middle)
    for count in (30, 70, 140):
        x = rows(count, 592)
        assert np.array_equal(multiply(weights, x), twin.product(weights, x)), count


def test_minimums_that_take_codes_beyond_a_byte() -> None:
    """255 - 8 is no int8 number: tiles cannot have the minimum taken off beforehand."""
    weights = weights_of((33, 320), 8, 32, "halves", middle=False)
    weights = replace(weights, minimums=np.float32(8) * weights.scales, minimum_units=None)
    assert form_of(weights).minimum == 8
    x = rows(40, 320)
    assert np.array_equal(multiply(weights, x), twin.product(weights, x))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 40), st.sampled_from([2, 3, 4, 5, 6, 8, TABLED]), st.sampled_from(GROUPS),
    st.integers(1, 40), st.sampled_from([*FORMS]), st.booleans(), st.booleans(), st.integers(0, 9),
)  # fmt: skip
def test_any_shape_and_form(
    outputs: int, sixteens: int, bits: int, group: int, count: int, form: str, middle: bool, bias: bool, seed: int
) -> None:
    weights = weights_of((outputs, 16 * sixteens), bits, group, form, middle=middle, seed=seed)
    x = rows(count, 16 * sixteens, seed)
    b = rows(1, outputs, seed)[0] if bias else None
    assert np.array_equal(multiply(weights, x, bias=b), twin.product(weights, x, b))


EXTREMES = {
    "zeros": lambda x: x * 0,
    "minus zeros": lambda x: x * -0.0,
    "rows all equal": lambda x: np.broadcast_to(np.float32(0.7), x.shape).copy(),
    "one huge number in each row": lambda x: np.where(np.arange(x.shape[1]) == 5, np.float32(3e7), x),
    "tiny numbers": lambda x: x * np.float32(1e-38),
    "subnormal numbers": lambda x: x * np.float32(1e-42),
    "as large as numbers go": lambda x: np.sign(x) * np.float32(3e38),
}


@pytest.mark.parametrize("count", [5, 30])
@pytest.mark.parametrize("code", [0, 15, 255])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extremes(kind: str, code: int, count: int) -> None:
    """The largest and smallest codes against the largest rows: whole sums may not saturate anywhere."""
    bits = 8 if code == 255 else 4
    plain = weights_of((33, 288), bits, 128, "halves", middle=False)
    weights = GroupedWeights(np.full_like(plain.codes, code), bits, 128, plain.scales, plain.minimums)
    x = EXTREMES[kind](rows(count, 288)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = twin.product(weights, x)
    assert np.array_equal(multiply(weights, x), want, equal_nan=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", GROUPS)
def test_codes_of_a_table_are_its_numbers(group: int, form: str) -> None:
    """They take four bits, and have the bits of the twin and of the same numbers as codes of eight bits. Read back,
    they are scale times number."""
    for shape in ((97, 16), (33, 48), (40, 592)):
        weights, x = weights_of(shape, TABLED, group, form, middle=False), rows(7, shape[1])
        assert form_of(weights) == (FORMS[form], 0)
        wide, four = without_table(weights), replace(weights, table=None)
        scales = np.repeat(weights.scales, group, axis=1)[:, : shape[1]].astype(np.float64)
        numbers = (scales * TABLE[weights.codes]).astype(np.float32)
        np.testing.assert_array_equal(weights.dequantise(), numbers)
        np.testing.assert_array_equal(wide.dequantise(), numbers)
        held = NativeWeights(native.GROUPED4)
        product, plain = grouped_product(held, weights, None), grouped_product(held, four, None)
        assert native.kernels().grouped_bytes(product) == native.kernels().grouped_bytes(plain)
        found, wanted = np.full(shape, np.nan, np.float32), np.arange(shape[0])
        native.kernels().unpack_grouped(product, wanted.ctypes.data, shape[0], found.ctypes.data)
        np.testing.assert_array_equal(found, numbers)
        y = multiply(weights, x)
        np.testing.assert_array_equal(y, twin.product(weights, x))
        np.testing.assert_array_equal(y, multiply(wide, x))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("number", [-128, 127, 0])
@pytest.mark.parametrize("count", [1, 5, 30])
def test_a_tables_largest_numbers_against_the_largest_rows(count: int, number: int, sign: int) -> None:
    plain = weights_of((33, 288), TABLED, 128, "halves", middle=False)
    weights = replace(plain, table=np.full(16, number, np.int8))
    x = np.full((count, 288), np.float32(sign * 127))
    np.testing.assert_array_equal(multiply(weights, x), twin.product(weights, x))


def test_zeros_are_powers_too() -> None:
    weights = weights_of((33, 64), TABLED, 32, "powers", middle=False)
    weights.scales[3, 1] = 0
    assert form_of(weights).scales == POWERS
    x = rows(2, 64)
    np.testing.assert_array_equal(multiply(weights, x), twin.product(weights, x))
    weights.scales[3, 1] = np.float32(2.0**-127)  # subnormal: no exponent says which
    assert form_of(weights).scales == FLOATS
    np.testing.assert_array_equal(multiply(weights, x), twin.product(weights, x))


@pytest.mark.parametrize("count", [16, 40])
@pytest.mark.parametrize("bits", [4, 8, TABLED])
def test_a_row_that_is_not_finite_stays_so_and_harms_no_other(bits: int, count: int) -> None:
    x = rows(count, 320)
    x[1, 300], x[2, 9], x[9, 0] = np.nan, np.inf, -np.inf
    weights = weights_of((40, 320), bits, 32, "halves", middle=True)
    y = multiply(weights, x)
    finite = [row not in (1, 2, 9) for row in range(count)]
    assert np.isfinite(y).all(axis=1).tolist() == finite
    assert np.isfinite(y).any(axis=1).tolist() == finite
    assert np.array_equal(y, twin.product(weights, x), equal_nan=True)


def several() -> list[GroupedWeights]:
    """Matrices of the same inputs in codes of every kind, some of which lie beside one of their own."""
    return [
        weights_of((outputs, 320), bits, group, form, middle=middle, seed=seed)
        for seed, (outputs, bits, group, form, middle) in enumerate((
            (33, 4, 32, "units", False), (40, 4, 32, "units", False), (5, TABLED, 32, "units", False),
            (64, TABLED, 32, "units", False), (7, 8, 16, "floats", False), (48, 6, 16, "units", True),
            (20, 5, 128, "halves", False), (11, 3, 16, "units", True), (11, 2, 16, "units", False),
        ))
    ]  # fmt: skip


def test_matrices_side_by_side_stay_what_they_are() -> None:
    parts = several()
    joined = side_by_side(parts)
    assert isinstance(joined, JoinedWeights)
    assert [part.shape[0] for part in joined.parts] == [73, 69, 7, 48, 20, 11, 11]
    assert (joined.shape, joined.bits) == ((239, 320), 2)
    everything = np.concatenate([part.dequantise() for part in parts])
    np.testing.assert_array_equal(joined.dequantise(), everything)
    for wanted in (np.arange(239)[::-1], np.array([72, 73, 3, 216, 141, 142]), slice(70, 150)):
        np.testing.assert_array_equal(joined.read(wanted).dequantise(), everything[wanted])
    alike = side_by_side(parts[:2])
    assert isinstance(alike, GroupedWeights)
    np.testing.assert_array_equal(alike.dequantise(), everything[:73])


@pytest.mark.parametrize("biased", [False, True])
def test_products_side_by_side_have_the_bits_of_each(biased: bool) -> None:
    """For any number of rows and threads."""
    parts, x = several(), rows(40, 320)
    bias = rows(1, 239)[0] if biased else None
    alone = np.concatenate([twin.product(part, x) for part in parts], axis=1)
    if bias is not None:
        alone += bias
    joined = side_by_side(parts)
    assert isinstance(joined, JoinedWeights)
    for count in (*range(1, 14), 24, 25, 40):
        found = multiply(joined, x[:count], threads=1 + count % 2, bias=bias)
        np.testing.assert_array_equal(found, alone[:count], err_msg=str(count))


def test_a_table_stays_where_it_is_the_same() -> None:
    first, second = (weights_of((n, 288), TABLED, 32, "halves", middle=False, seed=n) for n in (5, 7))
    other = replace(second, table=np.roll(TABLE, 1))
    assert isinstance(side_by_side([first, second]), GroupedWeights)
    assert isinstance(side_by_side([first, other]), JoinedWeights)


def test_a_table_that_does_not_fit_is_refused() -> None:
    weights = weights_of((4, 64), TABLED, 32, "floats", middle=False)
    for change in (
        {"table": TABLE[:15]}, {"table": TABLE.astype(np.int16)}, {"bits": 8}, {"minimums": weights.scales},
    ):  # fmt: skip
        with pytest.raises(UnsupportedModel, match="do not fit"):
            replace(weights, **change)  # type: ignore[arg-type]


def test_scales_that_do_not_fit_are_refused() -> None:
    weights = weights_of((4, 64), 4, 32, "floats", middle=False)
    for group, scales in ((64, weights.scales), (32, weights.scales[:, :1]), (32, weights.scales.astype(np.float64))):
        with pytest.raises(UnsupportedModel, match="do not fit"):
            GroupedWeights(weights.codes, 4, group, scales, weights.minimums)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("bits", "kind"), [(2, native.GROUPED2), (3, native.GROUPED3), (5, native.GROUPED5), (6, native.GROUPED6)]
)
def test_codes_take_no_more_than_their_bits(bits: int, kind: int, group: int) -> None:
    """They are read back, their products have the bits of the twin and of the same codes in eight bits, and memory is
    that of so many bits; three and five bits lie by 32 inputs."""
    weights, x = weights_of((48, 592), bits, group, "halves", middle=True), rows(7, 592)
    held = NativeWeights(native.GROUPED4)
    product, wide = (grouped_product(held, each, None) for each in (weights, replace(weights, bits=8)))
    small = bits in (3, 5) and group == 16
    assert product.kind == ({3: native.GROUPED4, 5: native.GROUPED6}[bits] if small else kind)
    spared = (8 - bits - small) * 64 * (-(-592 // group) * group) // 8  # of the 64 outputs that 48 are rounded up to
    assert native.kernels().grouped_bytes(wide) - native.kernels().grouped_bytes(product) == spared
    found, wanted = np.full((48, 592), np.nan, np.float32), np.arange(48)
    native.kernels().unpack_grouped(product, wanted.ctypes.data, 48, found.ctypes.data)
    np.testing.assert_array_equal(found, weights.dequantise())
    y = multiply(weights, x)
    np.testing.assert_array_equal(y, multiply(replace(weights, bits=8), x))
    np.testing.assert_array_equal(y, twin.product(weights, x))


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_in_another_order_are_rows_in_that_order(bits: int) -> None:
    """To the bit, for one row and for several; and the weights are read back to their inputs."""
    weights = weights_of((40, 96), bits, 32, "halves", middle=False)
    order = np.random.default_rng(4).permutation(96).astype(np.int32)
    x = np.random.default_rng(5).standard_normal((5, 96)).astype(np.float32)
    ordered = replace(weights, order=order)
    for rows in (1, 5):
        ours = multiply(ordered, np.ascontiguousarray(x[:rows]))
        np.testing.assert_array_equal(ours, multiply(weights, np.ascontiguousarray(x[:rows, order])))
    np.testing.assert_array_equal(ordered.dequantise()[:, order], weights.dequantise())
    with pytest.raises(UnsupportedModel, match="do not fit"):
        replace(weights, order=np.zeros(96, np.int32))
    joined = side_by_side([weights, ordered])
    assert isinstance(joined, JoinedWeights)
    both = np.concatenate([multiply(weights, x), multiply(ordered, x)], axis=1)
    np.testing.assert_array_equal(multiply(joined, x), both)


def test_int8_weights_with_scales_of_outputs_are_laid_out_as_they_are() -> None:
    """Weights below 127 and at -128 keep their codes, which rounding them again would not."""
    rng = np.random.default_rng(6)
    codes = rng.integers(-60, 61, (40, 96)).astype(np.int8)
    codes[3, 5] = -128
    weights = ChannelWeights(codes, (rng.random(40) + 0.5).astype(np.float32))
    x = rng.standard_normal((5, 96)).astype(np.float32)
    held = NativeWeights(native.INT8)
    product = channel_product(held, weights, None)
    y = np.full((5, 40), np.nan, np.float32)
    native.kernels().multiply(product, x.ctypes.data, 5, y.ctypes.data, 1)
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    whole = np.rint(x / scale).astype(np.int64) @ codes.astype(np.int64).T
    np.testing.assert_allclose(y, whole * scale * weights.scales, rtol=1e-5)
