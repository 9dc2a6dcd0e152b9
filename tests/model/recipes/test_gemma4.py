"""What Gemma 4 alone has: layers without a cache, a table of inputs, sizes that differ from layer to layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.families import TOKENS, VOCAB, config_of, random_model
from support.gguf_files import Q, write
from torch import Tensor
from transformers import AutoModelForCausalLM

from headstart.base.errors import UnsupportedModel
from headstart.model import int4, native, probe
from headstart.model.cache import LayerShape
from headstart.model.decoders import parts
from headstart.model.decoders.grouped import GroupedEmbedding
from headstart.model.gguf import checkpoint
from headstart.model.int4 import eight_bits
from headstart.model.loading import adopt, cache_bytes
from headstart.model.packed import Segment
from headstart.model.recipes import recipe_of
from headstart.model.recipes.recipe import Attention
from headstart.model.runner import ModelRunner
from headstart.train.head_layer import HeadShape

E2B, WITHOUT_VALUES = "gemma4_text", "gemma4_text, keys as values"
TEXT = tuple(torch.randint(3, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(0)).tolist())
needs_kernels = pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
decoders = pytest.mark.parametrize("decoder", [pytest.param("fused", marks=needs_kernels), "lean"])


def mixture() -> Any:
    config = config_of(WITHOUT_VALUES)
    config.enable_moe_block, config.num_experts, config.top_k_experts, config.moe_intermediate_size = True, 4, 2, 32
    return config


def logits_of(runner: ModelRunner, **options: Any) -> Tensor:
    cache = runner.new_cache(1)
    return runner.forward([Segment(cache.acquire(), TEXT, judged=TOKENS)], cache, **options).logits


@decoders
def test_layers_that_share_keys_take_no_cache(decoder: Any) -> None:
    """The last four of eight attend to the keys of the third and the fourth."""
    runner = ModelRunner(adopt(random_model(config_of(E2B))), max_length=64, decoder=decoder)
    small, large = LayerShape(2, 16, 16), LayerShape(2, 32, 32)
    assert runner.shapes == {0: small, 1: large, 2: small, 3: large}
    assert [layer.attention.keys_of for layer in recipe_of(config_of(E2B)).layers] == [None] * 4 + [2, 3, 2, 3]
    assert set(runner.new_cache(2).keys) == {0, 1, 2, 3}
    wanted = 2 * 64 * 4 * 2 * (2 * 2 * 16 + 2 * 2 * 32)
    assert runner.cache_bytes(2) == cache_bytes(config_of(E2B), torch.float32, slots=2, length=64) == wanted


def test_a_cache_is_counted_layer_by_layer() -> None:
    """The mixture's full layers have one key head of 32, its others two of 16."""
    config = mixture()
    assert cache_bytes(config, torch.bfloat16, slots=3, length=10) == 3 * 10 * 2 * 2 * 2 * (2 * 16 + 1 * 32)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention='all'"),
        ({"vocab_size_per_layer_input": VOCAB - 1}, f"vocab_size_per_layer_input={VOCAB - 1}"),
        ({"hidden_activation": "silu"}, "hidden_activation='silu'"),
        ({"per_layer_config": {0: {"intermediate_size": 64}}}, "per_layer_config=.'intermediate_size'"),
        ({"per_layer_config": {0: {"skip": ["mlp"]}}}, "per_layer_config=.'skip'"),
        ({"num_kv_shared_layers": 7}, "num_kv_shared_layers=7"),
    ],
)
def test_what_the_recipe_cannot_say_is_refused(fields: dict[str, Any], named: str) -> None:
    config = config_of(E2B)
    for name, value in fields.items():
        setattr(config, name, value)
    with pytest.raises(UnsupportedModel, match=named):
        recipe_of(config)


def test_a_head_for_it_is_shaped_as_its_first_layer() -> None:
    shape = HeadShape.of(config_of(WITHOUT_VALUES), VOCAB)
    assert (shape.kv_heads, shape.head_dim) == (2, 16)


@decoders
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_table_of_inputs_stays_as_it_is(dtype: torch.dtype, decoder: Any) -> None:
    """It is larger than all else in a small model: no copy of it, in this dtype or another."""
    config = config_of(E2B)
    config.vocab_size_per_layer_input = 1 << 12
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    table = model.model.embed_tokens_per_layer.weight
    runner = ModelRunner(adopt(model), max_length=64, decoder=decoder)
    large = [held for held in runner.decoder_weights() if held.numel() >= table.numel()]
    assert [held.data_ptr() for held in large] == [table.data_ptr()]


@needs_kernels
def test_a_table_of_codes_is_looked_up_as_it_is() -> None:
    """The logits are those of the numbers that the codes stand for."""
    if not int4.can_run(torch.device("cpu")):
        pytest.skip("this processor has no codes in groups")
    codes = eight_bits(random_model(config_of(E2B)).model.embed_tokens_per_layer.weight)
    coded, plain = random_model(config_of(E2B)), random_model(config_of(E2B))
    plain.model.embed_tokens_per_layer.weight.copy_(torch.from_numpy(codes.dequantise()))
    want = logits_of(ModelRunner(adopt(plain), max_length=64, decoder="fused"))
    coded.model.embed_tokens_per_layer = _Scaled(codes)
    got = logits_of(ModelRunner(adopt(coded), max_length=64, decoder="fused"))
    assert torch.equal(got, want)


class _Scaled(GroupedEmbedding):
    """As transformers' own table of inputs, on codes."""

    def __init__(self, codes: Any) -> None:
        super().__init__(codes, torch.float32)

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * 32**0.5


@decoders
def test_a_forward_that_ends_early_takes_the_inputs_of_its_layers(decoder: Any) -> None:
    """After six of eight layers, of which the last two share keys, against the hidden state that transformers gives."""
    model = random_model(config_of(E2B))
    states = model(torch.tensor([TEXT]), use_cache=False, output_hidden_states=True).hidden_states[6][0]
    want = model.lm_head(model.model.norm(states))
    want = torch.tanh(want / 5.0) * 5.0
    runner = ModelRunner(adopt(model), max_length=64, decoder=decoder)
    torch.testing.assert_close(logits_of(runner, layers=6), want, atol=2e-4, rtol=0)
    tapped = runner.new_cache(1)
    out = runner.forward([Segment(tapped.acquire(), TEXT)], tapped, taps=(6,))
    torch.testing.assert_close(out.hidden[6], states, atol=2e-4, rtol=1e-4)


# -- rounding at load -------------------------------------------------------------------------------------------------


@cache
def _magnifying() -> Any:
    """A random model in bfloat16 whose scores are far apart, since nothing scales them: each layer magnifies what the
    one before it rounded."""
    made = transformers.Gemma4TextConfig(
        vocab_size=1000, vocab_size_per_layer_input=1000, hidden_size=256, intermediate_size=512, head_dim=256,
        global_head_dim=512, num_attention_heads=4, num_key_value_heads=2, hidden_size_per_layer_input=32,
        num_hidden_layers=15, layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 3, num_kv_shared_layers=7,
    )  # fmt: skip
    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(made, attn_implementation="eager", dtype=torch.bfloat16).eval()


def magnifying() -> Any:
    """One's own."""
    return copy.deepcopy(_magnifying())


def test_what_a_model_makes_of_rounding_is_measured() -> None:
    """More than the usual tolerance of the probe, of this one alone."""
    assert probe.Probe(adopt(magnifying()))._rounding() > 0.1
    assert probe.Probe(adopt(random_model(config_of(E2B), torch.bfloat16)))._rounding() < 0.05


@decoders
def test_a_model_that_magnifies_rounding_is_judged_by_what_it_makes_of_it(decoder: Any) -> None:
    assert ModelRunner(adopt(magnifying()), max_length=64, decoder=decoder).decoder == decoder


@needs_kernels
def test_one_on_codes_is_judged_by_what_it_makes_of_rows_of_8_bits(tmp_path: Path) -> None:
    """Which is more than any model is allowed that magnifies nothing."""
    path = str(write(tmp_path / "m.gguf", magnifying(), kind=Q.Q4_0))
    model = adopt(checkpoint.load_packed(path, checkpoint.load_config(path), torch.bfloat16))
    assert probe.Probe(model)._rounding() > 0.25
    assert ModelRunner(model, max_length=64, blocks=("Q4_0",)).decoder == "fused"


WRONG: dict[str, Callable[[Attention], Attention]] = {
    "scores are scaled": lambda found: replace(found, scaling=found.dim**-0.5),
    "nothing turns": lambda found: replace(found, rope=None),
    "a window of 2": lambda found: replace(found, window=2),
}


@decoders
@pytest.mark.parametrize("wrong", WRONG)
def test_what_such_a_model_gives_by_a_wrong_recipe_is_refused(
    wrong: str, decoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = recipe_of(_magnifying().config)
    layers = tuple(replace(layer, mixer=WRONG[wrong](layer.attention)) for layer in right.layers)
    monkeypatch.setattr(parts, "recipe_of", lambda _: replace(right, layers=layers))
    with pytest.raises(UnsupportedModel, match="magnifies what bfloat16 rounds"):
        ModelRunner(adopt(magnifying()), max_length=64, decoder=decoder)
