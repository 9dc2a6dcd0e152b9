"""Mixtures of experts: who is chosen, what a forward says of it, and routers that no model has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.families import FAMILIES, VOCAB, config_of, own, random_model

from headstart.base.errors import UnsupportedModel
from headstart.model import int4, native
from headstart.model.decoders.experts import chosen_by
from headstart.model.decoders.fused import FusedDecoder
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.decoders.linears import linear_of
from headstart.model.decoders.parts import part
from headstart.model.loading import adopt
from headstart.model.packed import Packed, Segment
from headstart.model.recipes import recipe_of
from headstart.model.recipes.experts import Router
from headstart.model.runner import ModelRunner

needs_kernels = pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")

WRONG: dict[str, dict[str, Any]] = {
    "more than there are": {"num_experts_per_tok": 9},
    "none": {"num_experts_per_tok": 0},
    "no experts": {"num_experts": 0},
    "a width of nothing": {"moe_intermediate_size": 0},
    "words": {"num_experts_per_tok": "three"},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_routers_that_no_model_has_are_refused(changes: dict[str, Any]) -> None:
    config = config_of("qwen3_moe")
    for name, value in changes.items():
        object.__setattr__(config, type(config).attribute_map.get(name, name), value)  # past its class's checks
    with pytest.raises(UnsupportedModel, match=r"experts|chosen|expert_width"):
        recipe_of(config)


@pytest.mark.parametrize(
    "changes",
    [{"n_group": 5}, {"topk_group": 5}, {"topk_group": 0}, {"n_group": 12}, {"num_experts_per_tok": 7}],
    ids=str,
)
def test_groups_that_no_model_has_are_refused(changes: dict[str, Any]) -> None:
    config = config_of("glm4_moe")
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(UnsupportedModel, match=r"groups|experts are chosen"):
        recipe_of(config)


def test_parameters_of_another_shape_are_refused() -> None:
    model = adopt(random_model(config_of("qwen3_moe")))
    experts = part(model, "model.layers.0.mlp.experts")
    experts.down_proj = torch.nn.Parameter(experts.down_proj[:, :, :16].contiguous(), requires_grad=False)
    with pytest.raises(UnsupportedModel):
        ModelRunner(model, max_length=64, decoder="fused")


def test_of_equal_scores_the_first_experts_are_chosen() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    ids, weights = chosen_by(logits, Router(2, normalised=True), None)
    assert ids.tolist() == [[1, 2], [0, 1]]
    assert torch.allclose(weights, torch.full((2, 2), 0.5))


def logits_of(runner: ModelRunner, tokens: tuple[int, ...]) -> torch.Tensor:
    cache = runner.new_cache(1)
    return runner.forward([Segment(cache.acquire(), tokens, judged=len(tokens))], cache).logits


@needs_kernels
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "glm4_moe"])
def test_kernels_choose_as_tensors_do_where_scores_are_equal(name: str) -> None:
    """Every expert has the router's row of another one. transformers' own choice is another then."""
    model = random_model(config_of(name))
    for owner, layer in zip(model.model.layers, recipe_of(model.config).layers, strict=True):
        if layer.experts is not None:
            router = layer.experts.router
            for each in (router.weight, router.bias, router.choice_bias):
                if each is not None:
                    part(owner, each)[1::2] = part(owner, each)[::2]
    made, tokens = [], tuple(range(3, 23))
    for kind in (FusedDecoder, LeanDecoder):
        decoder = kind.build(adopt(own(model)), {}, length=64, quantize=None)
        assert decoder is not None
        cache = decoder.new_cache(1, 64)
        packed = Packed([Segment(cache.acquire(), tokens, judged=len(tokens))], cache, model.dtype, model.device)
        with torch.inference_mode():
            made.append((decoder.run(packed).logits, decoder.experts_touched))
    assert float((made[0][0] - made[1][0]).abs().max()) < 1e-4
    assert made[0][1] == made[1][1]


@needs_kernels
@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_a_forward_says_how_many_experts_it_touched(quantize: str | None) -> None:
    runner = ModelRunner(adopt(random_model(config_of("qwen3_moe"))), max_length=64, quantize=quantize)
    recipe = recipe_of(config_of("qwen3_moe"))
    layers = sum(layer.experts is not None for layer in recipe.layers)
    chosen, count = recipe.experts[0].router.chosen, recipe.experts[0].count
    logits_of(runner, (5,))
    assert runner.experts_touched == layers * chosen
    logits_of(runner, (5, 5))
    assert runner.experts_touched is not None
    assert layers * chosen <= runner.experts_touched <= layers * min(count, 2 * chosen)


def test_models_without_experts_say_nothing() -> None:
    runner = ModelRunner(adopt(random_model(config_of("llama"))), max_length=64)
    logits_of(runner, (5,))
    assert runner.experts_touched is None


@needs_kernels
@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "nemotron_h, experts"])
def test_rows_have_the_same_bits_beside_rows_that_choose_the_same_and_others(name: str, quantize: str | None) -> None:
    """A row alone, beside copies of itself, beside strangers, and among so many that experts get tiles of rows."""
    runner = ModelRunner(adopt(random_model(config_of(name), torch.bfloat16)), max_length=256, quantize=quantize)
    text = tuple(torch.randint(3, VOCAB, (6,), generator=torch.Generator().manual_seed(2)).tolist())
    strangers = tuple(torch.randint(3, VOCAB, (150,), generator=torch.Generator().manual_seed(3)).tolist())
    alone = logits_of(runner, text)
    for company in ([text], [text] * 3, [strangers[:9]], [strangers], [strangers[:40], text, strangers[40:100]]):
        cache = runner.new_cache(len(company) + 1)
        segments = [Segment(cache.acquire(), tokens, judged=1) for tokens in company]
        mine = Segment(cache.acquire(), text, judged=len(text))
        got = runner.forward([*segments, mine], cache).logits[-len(text) :]
        assert torch.equal(got, alone)


MIXED = [name for name, config in FAMILIES.items() if recipe_of(config()).experts]


@needs_kernels
@pytest.mark.parametrize("quantize", ["int8", "int4"])
@pytest.mark.parametrize("name", MIXED)
def test_every_mixture_runs_on_codes(name: str, quantize: str) -> None:
    """Most rows are near those of transformers' modules on the numbers that the codes stand for; some, near the border
    between two experts, take another one, since the kernels round each row to 8 bits. And a row has the same bits
    beside strangers."""
    model = random_model(config_of(name))
    text = tuple(torch.randint(3, VOCAB, (24,), generator=torch.Generator().manual_seed(4)).tolist())
    rounded = own(model)
    if quantize == "int4":
        int4.round_matrices(rounded, quantize)
        for owner in list(rounded.modules()):
            for path, child in owner.named_children():
                if isinstance(child, GroupedLinear):
                    setattr(owner, path, linear_of(torch.from_numpy(child.weights.dequantise()), child.bias))
    want = rounded(torch.tensor([text]), use_cache=False).logits[0]
    runner = ModelRunner(adopt(model), max_length=128, quantize=quantize)
    assert (runner.decoder, runner.quantize) == ("fused", quantize)
    got = logits_of(runner, text)
    errors = (got - want).abs().amax(1) / (want.max() - want.min())
    assert 1e-5 < errors.median() < 0.1, errors.median()
    cache = runner.new_cache(2)
    segments = [Segment(cache.acquire(), text[::-1], judged=1), Segment(cache.acquire(), text, judged=len(text))]
    assert torch.equal(runner.forward(segments, cache).logits[1:], got)


def damaged(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """The same numbers, or some of them, in another shape."""
    axis = int(rng.integers(tensor.dim()))
    made = [
        tensor.narrow(axis, 0, tensor.shape[axis] - 1),
        torch.cat((tensor, tensor.narrow(axis, 0, 1)), axis),
        tensor[None, None],
        tensor.reshape(-1)[:-1],
        tensor.transpose(0, -1),
    ]
    return made[int(rng.integers(len(made)))].contiguous().clone()


@needs_kernels
@pytest.mark.parametrize("name", MIXED)
def test_parameters_of_any_other_shape_are_refused(name: str) -> None:
    """Routers, their biases, all experts' matrices and the gate of the shared one: kernels would read what is not
    there. One that decoders reshape anyway may come with more axes of 1."""
    rng, model, recipe = np.random.default_rng(1), random_model(config_of(name)), recipe_of(config_of(name))
    index = next(i for i, layer in enumerate(recipe.layers) if layer.experts is not None)
    experts = recipe.layers[index].experts
    assert experts is not None
    router = experts.router
    names = (
        *experts.parameters, router.weight, router.bias, router.choice_bias, router.gain, router.expert_factors,
        experts.shared_gate,
    )  # fmt: skip
    refused = 0
    for parameter in (each for each in names if each is not None):
        for decoder in ("fused", "lean"):
            copy = adopt(own(model))
            path, _, last = parameter.rpartition(".")
            owner = part(part(copy, recipe.stack)[index], path)
            held = getattr(owner, last)
            wrong = damaged(held.detach(), rng)
            if wrong.shape == held.shape or (parameter == router.choice_bias and wrong.numel() == held.numel()):
                continue
            if last in owner._parameters:
                owner._parameters[last] = torch.nn.Parameter(wrong, requires_grad=False)
            else:
                owner._buffers[last] = wrong
            with pytest.raises(UnsupportedModel):
                ModelRunner(copy, max_length=64, decoder=decoder)  # type: ignore[arg-type]
            refused += 1
    assert refused >= 6


ROUTER_FIELDS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_k",
    "moe_topk", "top_k_experts", "moe_intermediate_size", "n_group", "topk_group", "n_shared_experts",
    "routed_scaling_factor", "first_k_dense_replace", "shared_expert_intermediate_size", "num_dense_layers",
    "decoder_sparse_step", "moe_layer_interval", "moe_shared_expert_intermediate_size", "mlp_layer_types",
)  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_router_fields_of_any_value_are_read_or_refused(name: str) -> None:
    """One typed error, or a recipe whose router chooses some of its experts; never another error."""
    refused = 0
    for field in ROUTER_FIELDS:
        for value in (-1, 0, 1, 2, 7, 10**9, 2.5, float("nan"), "many", None, [3], True):
            config = config_of(name)
            stored = type(config).attribute_map.get(field, field)
            if not hasattr(config, stored):
                continue
            object.__setattr__(config, stored, value)  # past its class's checks
            try:
                recipe = recipe_of(config)
            except UnsupportedModel:
                refused += 1
                continue
            for experts in recipe.experts:
                assert 0 < experts.router.chosen <= experts.count, (field, value)
    assert refused > 10


def test_a_recipe_with_experts_is_kept_as_it_is() -> None:
    from headstart.model.kept.recipes import recipe_from, recipe_to

    for name in ("glm4_moe", "gemma4_text, experts", "gpt_oss"):
        recipe = recipe_of(config_of(name))
        assert recipe_from(recipe_to(recipe)) == replace(recipe, ignored=())
