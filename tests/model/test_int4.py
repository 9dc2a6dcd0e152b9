"""Rounding to 4-bit codes: how near it stays, what runs it, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from support import families
from support.tiny import VOCAB
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.loading.checkpoint import check_quantize
from headstart.model import int4, native
from headstart.model.decoders.grouped import GroupedExperts, GroupedLinear
from headstart.model.decoders.parts import recipe_for
from headstart.model.loading import adopt
from headstart.model.native.grouping import HALVES, STORED, form_of
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

needs_int4 = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")


def runner_of(path: str, quantize: str | None, dtype: torch.dtype = torch.float32) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=dtype)), quantize=quantize)


def error_of(weight: torch.Tensor, dense: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    return float((torch.from_numpy(dense) - weight).norm() / weight.norm())


@needs_int4
@pytest.mark.parametrize("inputs", [64, 80, 16])
def test_rounding_stays_near(inputs: int) -> None:
    """Normal weights: 4 bits lose at most a tenth, 8 bits a hundredth; the forms are the short ones."""
    weight = torch.randn(600, inputs, generator=torch.Generator().manual_seed(1)) * 0.02
    four, eight = int4.four_bits(weight), int4.eight_bits(weight)
    assert 0.02 < error_of(weight, four.dequantise()) < 0.1
    assert error_of(weight, eight.dequantise()) < 0.01
    assert form_of(four) == (HALVES, STORED)
    assert form_of(eight) == (HALVES, 128)


@needs_int4
@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 1e-7, 1e30])
def test_weights_all_alike_come_through(value: float) -> None:
    weight = torch.full((3, 48), value)
    for rounded in (int4.four_bits(weight), int4.eight_bits(weight)):
        torch.testing.assert_close(torch.from_numpy(rounded.dequantise()), weight, rtol=1e-3, atol=1e-12)


def test_nothing_is_rounded_without_kernels_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int4, "can_run", lambda device: False)
    with pytest.raises(native.Unavailable, match="no codes in groups"):
        int4.four_bits(torch.ones(2, 64))


@needs_int4
def test_a_weight_that_is_not_finite_is_not_hidden() -> None:
    weight = torch.ones(2, 64)
    weight[1, 40] = float("nan")
    for rounded in (int4.four_bits(weight), int4.eight_bits(weight)):
        assert np.isnan(rounded.dequantise()).any(axis=1).tolist() == [False, True]


@needs_int4
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_quantised_model_stays_near_the_plain_one(name: str, tiny: Callable[..., str]) -> None:
    plain, rounded = (runner_of(tiny(name), quantize) for quantize in (None, "int4"))
    assert (rounded.quantize, rounded.decoder, rounded.width_invariant) == ("int4", "fused", True)
    assert not any(isinstance(module, GroupedLinear) for module in rounded.model.modules())
    prompt = tuple(range(3, 27))
    logits = []
    for runner in (plain, rounded):
        cache = runner.new_cache(1)
        logits.append(runner.forward([Segment(cache.acquire(), prompt, judged=24)], cache).logits)
    assert logits[0].shape == (24, VOCAB)
    assert 0 < (logits[0] - logits[1]).norm() / logits[0].norm() < 0.8  # random weights: nothing is redundant in them


@needs_int4
def test_the_kernels_stay_near_the_layers_that_carry_the_weights(tiny: Callable[..., str]) -> None:
    """The same codes as floats, in transformers' modules: what differs is that rows are rounded."""
    path, prompt = tiny("llama"), tuple(range(3, 27))
    model = adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32))
    int4.round_matrices(model)
    modules = ModelRunner(model, decoder="modules")
    assert modules.decoder == "modules"
    logits = []
    for runner in (runner_of(path, "int4"), modules):
        cache = runner.new_cache(1)
        logits.append(runner.forward([Segment(cache.acquire(), prompt, judged=24)], cache).logits)
    assert 0 < (logits[0] - logits[1]).norm() / logits[1].norm() < 0.05


@needs_int4
@pytest.mark.parametrize("kind", int4.KINDS)
@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe", "hunyuan_v1_moe", "gemma4_text, experts"])
def test_all_experts_are_rounded_and_no_router_is(name: str, kind: str) -> None:
    """Some routers are linear layers, as is what weighs a shared expert; others are parameters of their own."""
    model = adopt(families.random_model(families.config_of(name)))
    int4.round_matrices(model, kind)
    recipe = recipe_for(model)  # which refuses a router that is codes
    floats = {name for name, each in model.named_parameters() if each.dim() > 1 and "embed_tokens" not in name}
    layers = [(i, layer.experts) for i, layer in enumerate(recipe.layers) if layer.experts is not None]
    routers = {f"{recipe.stack}.{i}.{each}.weight" for i, experts in layers for each in experts.floats}
    assert floats == routers
    assert sum(isinstance(module, GroupedExperts) for module in model.modules()) == 2 * len(layers)


def test_what_cannot_run_it_is_refused(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="do not run this persimmon"):
        runner_of(tiny("persimmon"), "int4")
    none = native.Unavailable("there is no C++ compiler on this machine")
    monkeypatch.setattr(native, "_outcome", functools.cache(lambda: none))
    with pytest.raises(InvalidOption, match="needs the row kernels"):
        runner_of(tiny("llama"), "int4")


@needs_int4
def test_other_forwards_leave_grouped_layers_to_the_modules(tiny: Callable[..., str]) -> None:
    model = adopt(AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32))
    int4.round_matrices(model)
    with pytest.raises(UnsupportedModel, match="lean decoder"):
        ModelRunner(model, decoder="lean")


@needs_int4
def test_greedy_text_is_the_plain_text_bit_for_bit(tiny: Callable[..., str]) -> None:
    """Target and draft on 4 bits, in a batch; log-probabilities included."""
    prompts = [[5, 6, 7, 8], [9, 3, 11], list(range(3, 24))]
    sampling = hs.Sampling(max_tokens=16, ignore_eos=True, logprobs=0)
    engine = hs.load(
        tiny("llama"), tiny("llama"), quantize="int4", draft_quantize="int4", num_speculative_tokens=5, pacing="fixed"
    )
    assert (engine.describe()["quantize"], engine.describe()["width_invariant"]) == ("int4", True)
    drafted = engine.generate(prompts, sampling)
    assert sum(out.stats.accepted for out in drafted) > 0
    for out, prompt in zip(drafted, prompts, strict=True):
        alone = engine.plain().generate(prompt, sampling)
        assert out.tokens == alone.tokens
        assert out.logprobs == alone.logprobs


def test_another_device_is_refused() -> None:
    with pytest.raises(InvalidOption, match="int4"):
        check_quantize("quantize", "int4", torch.device("meta"))
