"""A file's model computes what the transformers model that it was made from computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from support.gguf_files import Q, architecture_of, quantised, write
from support.tiny import ARCHITECTURES, random_model
from transformers import AutoModelForCausalLM

from headstart.base.errors import DamagedModel, HeadstartError, UnsupportedModel
from headstart.model import coded
from headstart.model.gguf import checkpoint
from headstart.model.gguf.architectures import ARCHITECTURES as ARCHITECTURES_OF_FILES
from headstart.model.gguf.files import open_gguf
from headstart.model.gguf.names import Names
from headstart.model.gguf.weights import grouped_matrix

SLIDES = "sliding_attention"
IDS = torch.arange(3, 40)[None]


def loaded(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    return checkpoint.load_model(str(path), checkpoint.load_config(str(path)), dtype)


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(IDS).logits
    return found


def model_of(name: str, seed: int = 0, **changes: Any) -> Any:
    """A tiny random model with other settings, random biases and gains."""
    config = ARCHITECTURES[name]()
    for key, value in {"use_sliding_window": False, **changes}.items():
        setattr(config, key, value)
    if name == "qwen2":
        config.layer_types, config.sliding_window = ["full_attention"] * config.num_hidden_layers, None
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1])
def test_the_numbers_are_the_files(kind: Q, tmp_path: Path) -> None:
    model = random_model("llama")
    found = loaded(write(tmp_path / "m.gguf", model, kind=kind))
    for name, parameter in quantised(model, kind).named_parameters():
        assert torch.equal(found.get_parameter(name), parameter), name


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_the_original(name: str, tied: bool, tmp_path: Path) -> None:
    model = model_of(name, tie_word_embeddings=tied)
    found = loaded(write(tmp_path / "m.gguf", model))
    assert type(found) is type(model)
    assert (found.lm_head.weight is found.model.embed_tokens.weight) == tied
    assert torch.equal(logits(found), logits(model))


def gemma(name: str, **changes: Any) -> Any:
    """A tiny Gemma whose windows, caps and gains matter."""
    more = {"gemma3": {"num_hidden_layers": 7, "layer_types": [*["sliding_attention"] * 5, "full_attention", SLIDES]}}
    return model_of(name, **{**more.get(name, {}), **changes})


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_of_gemma_are_those_of_the_original(name: str, tied: bool, tmp_path: Path) -> None:
    model = gemma(name, tie_word_embeddings=tied)
    path = write(tmp_path / "m.gguf", model)
    found = loaded(path)
    assert type(found) is type(model)
    assert (found.config.layer_types, found.config.sliding_window) == (model.config.layer_types, 7)
    assert torch.equal(logits(found), logits(model))
    assert checkpoint.blocks(str(path), found.config, torch.float32, torch.device("cpu")) == ()


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("gemma2", "attn_logit_softcapping"), ("gemma2", "final_logit_softcapping"),
        ("gemma2", "attention.sliding_window"),
        ("gemma3", "rope.freq_base"), ("gemma3", "attention.sliding_window"),
    ],
)  # fmt: skip
def test_each_setting_of_gemma_matters(name: str, left_out: str, tmp_path: Path) -> None:
    """So the test above would fail if one were not read."""
    model = gemma(name)
    found = loaded(write(tmp_path / "m.gguf", model, metadata={left_out: None}))
    assert (logits(found) - logits(model)).abs().max() > 1e-3


def test_the_layers_with_a_window_and_their_rotation_may_be_stated(tmp_path: Path) -> None:
    kinds = ["full_attention", SLIDES, SLIDES, "full_attention"]
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        SLIDES: {"rope_type": "default", "rope_theta": 333.0},
    }
    model = model_of("gemma3", layer_types=kinds, rope_parameters=rope, final_logit_softcapping=5.0)
    stated = {
        "attention.sliding_window_pattern": [kind == SLIDES for kind in kinds], "rope.freq_base_swa": 333.0,
        "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
    }  # fmt: skip
    assert torch.equal(logits(loaded(write(tmp_path / "m.gguf", model, metadata=stated))), logits(model))
    model = model_of("gemma3", layer_types=[SLIDES, "full_attention"] * 2)
    stated = {"attention.sliding_window_pattern": 2}
    assert torch.equal(logits(loaded(write(tmp_path / "p.gguf", model, metadata=stated))), logits(model))
    with pytest.raises(DamagedModel, match="has 3 entries for 4 layers"):
        loaded(write(tmp_path / "b.gguf", model, metadata={"attention.sliding_window_pattern": [True, False, True]}))


def test_scores_of_the_largest_gemma_are_divided_by_its_width(tmp_path: Path) -> None:
    model = model_of("gemma2", num_hidden_layers=46, layer_types=[SLIDES, "full_attention"] * 23, head_dim=16)
    assert loaded(write(tmp_path / "m.gguf", model)).config.query_pre_attn_scalar == 8


def test_gemma_with_rope_freqs_is_refused(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.ones(4, np.float32)}
    with pytest.raises(UnsupportedModel, match=r"'rope_freqs.weight' \(and 0 more\), which gemma2 models have not"):
        loaded(write(tmp_path / "m.gguf", random_model("gemma2"), tensors=factors))


def test_biases_of_llama(tmp_path: Path) -> None:
    model = model_of("llama", attention_bias=True, mlp_bias=True)
    assert torch.equal(logits(loaded(write(tmp_path / "m.gguf", model))), logits(model))


def test_a_missing_output_bias_is_zero(tmp_path: Path) -> None:
    model = model_of("llama", attention_bias=True)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.bias.zero_()
    names = tuple(f"blk.{index}.attn_output.bias" for index in range(4))
    assert torch.equal(logits(loaded(write(tmp_path / "m.gguf", model, leave_out=names))), logits(model))


def test_rope_freqs_are_the_scaling_of_llama_3(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    model = model_of("llama", rope_parameters=rope)
    plain = 1 / 500.0 ** (torch.arange(0, 16, 2) / 16)
    factors = plain / model.model.rotary_emb.inv_freq
    assert factors.max() == 8
    path = write(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": factors.numpy()})
    torch.testing.assert_close(logits(loaded(path)), logits(model), rtol=1e-4, atol=1e-4)
    ignored = logits(loaded(write(tmp_path / "without.gguf", model, leave_out=("rope_freqs.weight",))))
    assert (ignored - logits(model)).abs().max() > 0.1


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32},
    ],
)
def test_rope_scaling(rope: dict[str, Any], tmp_path: Path) -> None:
    model = model_of("qwen3", rope_parameters=rope)
    said = {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": 4.0}
    if "original_max_position_embeddings" in rope:
        said["rope.scaling.original_context_length"] = 32
    assert torch.equal(logits(loaded(write(tmp_path / "m.gguf", model, metadata=said))), logits(model))


def test_types_of_256_inputs_in_a_model(tmp_path: Path) -> None:
    """Random blocks of Q4_K and Q6_K, as a Q4_K_M file mixes them; keys are turned by whole rows."""
    model = model_of("llama", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    rng = np.random.default_rng(0)
    blocks = {  # small bytes make no infinite halves
        name: (rng.integers(0, 60, (32, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
        for name, kind in (("blk.0.attn_k.weight", Q.Q4_K), ("blk.0.attn_v.weight", Q.Q6_K))
    }
    attention = loaded(write(tmp_path / "m.gguf", model, blocks=blocks)).model.layers[0].self_attn
    keys, values = (gguf.dequantize(*each) for each in blocks.values())
    keys = keys.reshape(2, 8, 2, 256).swapaxes(1, 2).reshape(32, 256)
    np.testing.assert_array_equal(attention.k_proj.weight.detach(), keys)
    np.testing.assert_array_equal(attention.v_proj.weight.detach(), values)


def test_matrices_as_codes_have_the_rows_of_the_model(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_1)
    model, file = loaded(path), open_gguf(path)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            stored, some = grouped_matrix(file, Names.of(file, model.config), name), np.array([5, 0, 7])
            assert stored.shape == parameter.shape
            np.testing.assert_array_equal(stored.read().dequantise(), parameter.detach())
            np.testing.assert_array_equal(stored.read(some).dequantise(), parameter.detach()[some])


def test_large_matrices_are_filled_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.model.gguf.weights._AT_ONCE", 5 * 32)
    model = model_of("llama")
    assert torch.equal(logits(loaded(write(tmp_path / "m.gguf", model))), logits(model))


def test_bfloat16_rounds_each_number_once(tmp_path: Path) -> None:
    model = random_model("qwen3")
    found = loaded(write(tmp_path / "m.gguf", model, kind=Q.Q8_0), torch.bfloat16)
    twin = quantised(model, Q.Q8_0).to(torch.bfloat16)
    assert all(torch.equal(found.get_parameter(name), each) for name, each in twin.named_parameters())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"rope.scaling.type": "longrope", "rope.scaling.factor": 2.0}, "rope.scaling.type is 'longrope'"),
        ({"logit_scale": 0.5}, "llama.logit_scale is 0.5, which is not known"),
        ({"attention.causal": False}, "attention.causal is false"),
        ({"rope.dimension_count": 8}, "rope.dimension_count is 8, and heads are 16 wide"),
        ({"attention.value_length": 8}, "attention.value_length is 8"),
    ],
)
def test_what_is_not_known_is_refused_by_key(said: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        loaded(write(tmp_path / "m.gguf", random_model("llama"), metadata=said))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"block_count": "four"}, "'llama.block_count' is 'four', not a whole number"),
        ({"block_count": None}, "does not say 'llama.block_count'"),
        ({"expert_count": 8}, "does not say 'llama.expert_used_count'"),
        ({"block_count": 3_000_000_000}, "it claims 3000000000 layers"),
        ({"embedding_length": 64}, r"is \[97, 32\], and \[97, 64\] is needed"),
        ({"attention.head_count": 0}, "0 heads"),
        ({"attention.head_count_kv": 3}, "4 heads cannot share 3"),
        ({"attention.head_count": 260}, r"'blk.0.attn_output.weight' is \[32, 64\], and \[32, 4160\] is needed"),
        ({"vocab_size": 98}, "claims 98 tokens"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "not a number"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "is -1.0, not a number above 0"),
        ({"rope.freq_base": 0.0}, "is 0.0, not a number above 0"),
    ],
)
def test_what_contradicts_itself_is_refused(said: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DamagedModel, match=message):
        loaded(write(tmp_path / "m.gguf", random_model("llama"), metadata=said))


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 2**32 - 1), ("block_count", 100_000), ("block_count", 2**40), ("feed_forward_length", 2**62),
        ("embedding_length", 2**62), ("attention.head_count", 2**62), ("attention.key_length", 2**62),
        ("attention.head_count_kv", 2**62), ("vocab_size", 2**62),
    ],
)  # fmt: skip
def test_absurd_sizes_take_neither_time_nor_memory(
    name: str, key: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the file has a tensor in what it says is its last layer: nothing of such a size is ever made."""
    config = ARCHITECTURES[name]()
    said = {key: np.uint64(value)}
    if key == "attention.key_length":
        said |= {"attention.value_length": np.uint64(value), "rope.dimension_count": np.uint64(value)}
    last = {f"blk.{value - 1}.attn_norm.weight": np.ones(config.hidden_size, np.float32)}
    file = write(tmp_path / "m.gguf", random_model(name), metadata=said, tensors=last if key == "block_count" else {})
    made: list[object] = []
    monkeypatch.setattr(coded, "model_class", lambda config: made.append(config))
    architecture = replace(ARCHITECTURES_OF_FILES[architecture_of(config)], config=made.append)
    monkeypatch.setitem(ARCHITECTURES_OF_FILES, architecture_of(config), architecture)
    with pytest.raises(HeadstartError):
        checkpoint.load_config(str(file))
    assert not made


def test_many_incomplete_layers_are_refused_before_a_model_of_as_many_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = {f"blk.{index}.attn_norm.weight": np.ones(32, np.float32) for index in range(4, 500)}
    file = write(tmp_path / "m.gguf", random_model("llama"), metadata={"block_count": 500}, tensors=norms)
    made = []
    model_class = coded.model_class

    def noted(config: Any) -> Any:
        def make(given: Any) -> Any:
            made.append(given.num_hidden_layers)
            return model_class(config)(given)

        return make

    monkeypatch.setattr(coded, "model_class", noted)
    with pytest.raises(DamagedModel, match=r"'blk\.4\.\w+\.weight' is missing"):
        checkpoint.load_config(str(file))
    assert made == [1]


def test_tensors_must_be_those_of_the_model(tmp_path: Path) -> None:
    model = random_model("llama")
    with pytest.raises(DamagedModel, match=r"'blk.2.ffn_up.weight' is missing"):
        loaded(write(tmp_path / "less.gguf", model, leave_out=("blk.2.ffn_up.weight",)))
    more = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    with pytest.raises(UnsupportedModel, match=r"'blk.0.attn_sinks.weight'"):
        loaded(write(tmp_path / "more.gguf", model, tensors=more))
    factors = {"rope_freqs.weight": np.zeros(8, np.float32)}
    with pytest.raises(DamagedModel, match="not positive"):
        loaded(write(tmp_path / "zero.gguf", model, tensors=factors))


def test_an_architecture_that_is_not_known_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="'mamba'") as caught:
        loaded(tmp_path / "m.gguf")
    assert isinstance(caught.value, HeadstartError)
    assert caught.value.hint
