"""Levels against each other: products of whole sums have the same bits at all that are here, and floats agree.

The libraries are those that the package or the user's cache directory holds, or they are compiled, which takes some 20
seconds of one core for each level. The fast tests compare one level, the process's own, with twins in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support import grouped_twin as twin
from test_grouped import TABLED, multiply, rows, weights_of

from headstart.base import compiling
from headstart.base.files import cache_directory
from headstart.base.levels import architecture, usable
from headstart.model import native
from headstart.model.decoders.linears import linear_of
from headstart.model.grouped import GROUPS
from headstart.model.int4 import eight_bits, four_bits
from headstart.model.native.weights import NativeWeights

F32 = NDArray[np.float32]
Each = Callable[[Callable[[], F32 | None]], dict[str, F32]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not native.available(), reason="no row kernels"),
]

COUNTS = (1, 2, 3, 7, 13, 40)
"""Rows of a product: those that are multiplied alone, together, and in several parts."""


@pytest.fixture(scope="module")
def levels() -> dict[str, native.Kernels]:
    """The kernels of all levels that this processor has."""
    found = usable(compiling.features(), architecture())
    made = {each.name: compiling.at_level(native.MAIN, each, cache_directory("kernels")) for each in found}
    return {name: native.Kernels(library) for name, library in made.items()}


@pytest.fixture
def each(levels: dict[str, native.Kernels], monkeypatch: pytest.MonkeyPatch) -> Each:
    """Calls a function with the kernels of each level in place of this process's: its results by level."""

    def call(make: Callable[[], F32 | None]) -> dict[str, F32]:
        found = {}
        for name, kernels in levels.items():
            monkeypatch.setattr(native, "kernels", lambda kernels=kernels: kernels)
            if (result := make()) is not None:
                found[name] = result
        return found

    return call


def are_the_same(results: dict[str, F32], what: object) -> None:
    first = next(iter(results.values()))
    for name, result in results.items():
        np.testing.assert_array_equal(result, first, err_msg=f"{what} at {name}")


def plain(linear: torch.nn.Linear, kind: int, x: F32) -> F32 | None:
    """A product of a kind that is not grouped; None where the level has none."""
    if not native.kernels().supported(kind):
        return None
    held = NativeWeights(kind)
    y = np.full((len(x), linear.out_features), np.nan, np.float32)
    native.kernels().multiply(held.product(linear), x.ctypes.data, len(x), y.ctypes.data, 1)
    return y


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8, TABLED])
def test_grouped_products_have_the_same_bits(bits: int, group: int, each: Each) -> None:
    """At all levels, which lay the same weights out by themselves; and those of the twin."""
    for form, middle in (("halves", True), ("units", False), ("floats", False), ("powers", True)):
        weights = weights_of((49, 400), bits, group, form, middle=middle)
        for count in COUNTS:
            x = rows(count, 400)
            results = each(lambda x=x, weights=weights: multiply(weights, x))
            are_the_same({"the twin": twin.product(weights, x), **results}, (form, count))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs", [16, 400, 1040])
def test_int8_products_have_the_same_bits(inputs: int, bias: bool, each: Each) -> None:
    torch.manual_seed(inputs)
    linear = torch.nn.Linear(inputs, 81, bias=bias)
    for count in COUNTS:
        x = rows(count, inputs)
        are_the_same(each(lambda x=x: plain(linear, native.INT8, x)), count)


@pytest.mark.parametrize("number", [-127, 127])
def test_the_largest_int8_numbers_overflow_nowhere(number: int, each: Each) -> None:
    linear = linear_of(torch.full((16, 1040), float(number)))
    for sign in (-1.0, 1.0):
        x = np.full((3, 1040), sign * 127, np.float32)
        results = each(lambda x=x: plain(linear, native.INT8, x))
        are_the_same({"exactly": np.full((3, 16), sign * number * 127 * 1040, np.float32), **results}, number)


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_are_rounded_to_the_same_codes(bits: int, each: Each) -> None:
    weight = torch.randn(64, 4 * 32, generator=torch.Generator().manual_seed(bits)) * 0.02
    made = {4: four_bits, 8: eight_bits}[bits]
    are_the_same(each(lambda: made(weight).codes.astype(np.float32)), "codes")
    are_the_same(each(lambda: made(weight).scales), "scales")
    are_the_same(each(lambda: made(weight).minimums), "minimums")


@pytest.mark.parametrize("kind", [native.FLOAT32, native.BF16_WIDE, native.BF16_PAIRS])
def test_float_products_agree(kind: int, each: Each) -> None:
    """To within what the order of a sum makes; pairs of bf16 there are where the processor multiplies them."""
    linear = torch.nn.Linear(400, 81)
    for count in COUNTS:
        x = rows(count, 400)
        results = each(lambda x=x: plain(linear, kind, x))
        first = next(iter(results.values()))
        for name, result in results.items():
            np.testing.assert_allclose(result, first, atol=2e-5, rtol=1e-4, err_msg=f"{count} rows at {name}")


@pytest.mark.parametrize("kind", [native.FLOAT32, native.BF16_WIDE, native.BF16_PAIRS, native.INT8])
def test_a_row_has_the_same_bits_at_every_width(kind: int, each: Each) -> None:
    """Within each level. Grouped products have those of the twin at every width."""
    linear, x = torch.nn.Linear(208, 81), rows(40, 208)
    alone = each(lambda: plain(linear, kind, x[:1]))
    for count in (2, 3, 4, 5, 6, 7, 12, 13, 40):
        for name, result in each(lambda count=count: plain(linear, kind, x[:count])).items():
            np.testing.assert_array_equal(result[:1], alone[name], err_msg=f"{count} rows at {name}")
