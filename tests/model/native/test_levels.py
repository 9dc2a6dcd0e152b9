"""Levels against each other: products of whole sums have the same bits at all that are here, and floats agree.

The libraries are those that the package or the user's cache directory holds, or they are compiled, which takes some 20
seconds of one core for each level. The fast tests compare one level, the process's own, with twins in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support import emulated
from support import grouped_twin as twin
from support.families import VOCAB, config_of, own, random_model
from support.grouped_weights import TABLED, multiply, rows, weights_of

from headstart.base import compiling
from headstart.base.files import cache_directory
from headstart.base.levels import architecture, usable
from headstart.model import native
from headstart.model.decoders.linears import linear_of
from headstart.model.grouped import GROUPS
from headstart.model.int4 import eight_bits, four_bits
from headstart.model.loading import adopt
from headstart.model.native.weights import NativeWeights
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

F32 = NDArray[np.float32]
Each = Callable[[Callable[[], F32 | None]], dict[str, F32]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not native.available(), reason="no row kernels"),
]

COUNTS = (1, 2, 3, 7, 13, 40)
"""Rows of a product: those that are multiplied alone, together, and in several parts."""
ACTIVATIONS = range(7)
"""The enum Activation of activations.h."""


@pytest.fixture(scope="module")
def levels() -> dict[str, native.Kernels]:
    """The kernels of all levels that this processor has, and of AArch64's where they can be emulated."""
    found = usable(compiling.features(), architecture())
    made = {each.name: compiling.at_level(native.MAIN, each, cache_directory("kernels")) for each in found}
    emulated_here = () if emulated.lacking() else emulated.LEVELS
    return {
        **{name: native.Kernels(library) for name, library in made.items()},
        **{f"{name}, emulated": emulated.kernels(name) for name in emulated_here},
    }


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


def test_activations_agree(each: Each) -> None:
    x, numbers = rows(1, 640).ravel() * 4, np.array([0.8, 0.9, 0.5, -1e-6], np.float32)
    for activation in ACTIVATIONS:

        def activated(activation: int = activation) -> F32:
            y = np.empty_like(x)
            native.kernels().activate(activation, x.ctypes.data, numbers.ctypes.data, y.ctypes.data, len(x))
            return y

        results = each(activated)
        first = next(iter(results.values()))
        for name, result in results.items():
            np.testing.assert_allclose(result, first, atol=1e-6, rtol=1e-5, err_msg=f"{activation} at {name}")


def with_heads_of_32(config: Any) -> Any:
    """Its rows of keys are whole steps of the processor's tiles."""
    if hasattr(config, "kv_lora_rank"):
        config.kv_lora_rank = 32 - config.qk_rope_head_dim
    else:
        config.head_dim = 32
    return config


def with_all_experts(config: Any) -> Any:
    """A router that chooses every expert: no rounding can decide for another one."""
    [count] = {
        getattr(config, each)
        for each in ("n_routed_experts", "num_experts", "num_local_experts")
        if hasattr(config, each)
    }
    config.num_experts_per_tok = count
    if hasattr(config, "n_group"):
        config.topk_group = config.n_group
    return config


LIMITS = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.02, "int4": 0.02}
"""Of the largest logit. Where the last bit of a sum differs, an activation may be rounded to the next code."""
BY_TILES = 0.05
"""The same where tiles attend: they take queries and weights in bf16, and what follows is rounded to other codes."""
SAME_BITS = ("avx2", "avx-vnni", "avx512", "avx512-bf16", "amx")
"""Levels whose forwards in int8 and int4 have the same bits, where no tiles attend."""


@pytest.mark.parametrize(
    ("weights", "heads_of_32"),
    [("float32", False), ("bfloat16", True), ("int8", False), ("int8", True), ("int4", False)],
)
@pytest.mark.parametrize("name", ["deepseek_v3, experts", "gpt_oss", "glm4_moe", "qwen3_next"])
def test_forwards_agree_and_rows_have_the_same_bits_in_any_company(
    name: str, weights: str, heads_of_32: bool, each: Each
) -> None:
    """Latent attention and mixtures of every kind of choice: numbers between levels, bits within each.

    Of two experts that are as good but for rounding, bf16 may choose either, and the row is another from there on. So
    levels choose among experts in float32, where they agree, and in fewer bits they are compared with all experts.
    """
    dtype, quantize = ("bfloat16", weights) if "int" in weights else (weights, None)
    text = tuple(torch.randint(3, VOCAB, (40,), generator=torch.Generator().manual_seed(5)).tolist())
    config = with_heads_of_32(config_of(name)) if heads_of_32 else config_of(name)

    def logits(model: Any, *pieces: int) -> F32:
        runner = ModelRunner(adopt(own(model)), max_length=64, quantize=quantize, decoder="fused")
        cache, begin, found = runner.new_cache(2), 0, []
        slot, stranger = cache.acquire(), cache.acquire()
        for piece in pieces:
            segments = [Segment(slot, text[begin : begin + piece], judged=piece), Segment(stranger, text[:3])]
            found.append(runner.forward(segments, cache).logits[:piece].float())
            cache.keep(slot, piece)
            begin += piece
        return torch.cat(found).numpy()

    torch.manual_seed(0)  # some parameters are drawn by transformers
    model = random_model(config, getattr(torch, dtype))
    results, company = each(lambda: logits(model, 40)), each(lambda: logits(model, 1, 2, 20, 17))
    for level, result in results.items():
        np.testing.assert_array_equal(company[level], result, err_msg=level)
    if weights != "float32":
        model = random_model(with_all_experts(config), getattr(torch, dtype))
        results = each(lambda: logits(model, 40))
    first = results["avx2"] if "avx2" in results else next(iter(results.values()))
    for level, result in results.items():
        by_tiles = heads_of_32 and level == "amx"
        if "int" in weights and level in SAME_BITS and not by_tiles:
            np.testing.assert_array_equal(result, first, err_msg=level)
        limit = BY_TILES if by_tiles else LIMITS[weights]
        np.testing.assert_allclose(result, first, rtol=0, atol=limit * np.abs(first).max(), err_msg=level)


@pytest.mark.parametrize("name", ["mistral", "gpt_oss"])
def test_attention_over_rounded_keys_agrees(name: str, each: Each) -> None:
    """By tiles and by vectors, on keys and values in int8, of a model in bf16."""
    text = tuple(torch.randint(3, VOCAB, (60,), generator=torch.Generator().manual_seed(5)).tolist())
    config = with_heads_of_32(config_of(name))
    model = random_model(with_all_experts(config) if name == "gpt_oss" else config, torch.bfloat16)

    def logits() -> F32:
        runner = ModelRunner(adopt(own(model)), max_length=64, decoder="fused", cache_dtype=torch.int8)
        cache = runner.new_cache(1)
        return runner.forward([Segment(cache.acquire(), text, judged=60)], cache).logits.float().numpy()

    results = each(logits)
    first = results["avx2"] if "avx2" in results else next(iter(results.values()))
    for level, result in results.items():
        # Levels multiply bf16 in different orders; a key between two multiples of its scale is then rounded up by one
        # and down by another
        limit = 2 * (BY_TILES if level == "amx" else LIMITS["bfloat16"])
        np.testing.assert_allclose(result, first, rtol=0, atol=limit * np.abs(first).max(), err_msg=level)
