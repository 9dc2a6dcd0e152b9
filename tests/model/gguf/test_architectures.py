"""Files of each architecture, written as llama.cpp's converter writes them, against the models that they were made of.

The names of tensors come from the table of the package `gguf` that the converter uses. Weights are random, no gain is
1 and no bias 0, windows are shorter than the text, and rotations are scaled from a length below it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from support.families import TOKENS, random_model
from support.gguf_files import Q, architecture_of, quantised, write
from support.gguf_mixtures import MIXTURES
from support.gguf_models import IDS, KINDS, LENGTH, MODELS, made, off, run
from support.hybrids import HYBRIDS
from torch import Tensor

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model import native
from headstart.model.gguf import checkpoint
from headstart.model.gguf.architectures import ARCHITECTURES
from headstart.model.gguf.names import Names
from headstart.model.longrope import fix_rotation
from headstart.model.packed import Segment
from headstart.model.recipes import recipe_of


def logits(model: Any) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(IDS).logits[0]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_floats_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    """The file's numbers are the model's, and so is what its config makes of them."""
    model = made(MODELS[name]())
    path = write(tmp_path / "m.gguf", model)
    found = checkpoint.load_model(str(path), checkpoint.load_config(str(path)), torch.float32)
    fix_rotation(found, LENGTH)
    assert type(found) is type(model)
    for parameter, values in model.named_parameters():
        torch.testing.assert_close(found.get_parameter(parameter), values, rtol=0, atol=3e-7, msg=parameter)
    assert off(logits(found), logits(model)) < 3e-6
    assert off(run(path, packed=False)[0], logits(model)) < 1e-5


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
@pytest.mark.parametrize(("name", "kind"), [(name, (Q.Q8_0, Q.Q4_0)[place % 2]) for place, name in enumerate(MODELS)])
def test_codes_are_those_of_the_original(name: str, kind: Q, tmp_path: Path) -> None:
    """transformers' modules give the same on codes as on floats of the same numbers; the row kernels round each row to
    8 bits, and give the same bits at any width."""
    model = made(MODELS[name]())
    path = write(tmp_path / "m.gguf", model, kind=kind)
    twin = quantised(model, kind)
    fix_rotation(twin, LENGTH)
    on_modules = checkpoint.load_packed(str(path), checkpoint.load_config(str(path)), torch.float32)
    fix_rotation(on_modules, LENGTH)
    assert off(logits(on_modules), logits(twin)) < 1e-5
    found, runner = run(path)
    assert (runner.decoder, runner.blocks) == ("fused", (kind.name,))
    most = 0.1 if name.startswith("qwen3_5") else 0.05  # queries and keys are made to length 1, whatever they were
    assert 0 < off(found, logits(twin)) < most
    cache = runner.new_cache(1)
    slot, ids = cache.acquire(), tuple(IDS[0].tolist())
    for first in range(TOKENS):
        row = runner.forward([Segment(slot, ids[first : first + 1], judged=1)], cache).logits
        assert torch.equal(row[0], found[first])
        cache.lengths[slot] = first + 1


def test_every_architecture_is_tested() -> None:
    assert {architecture_of(config()) for config in (*MODELS.values(), *MIXTURES.values())} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", [*MODELS, *(name for name in MIXTURES if name != "qwen3_next")])
def test_names_are_those_of_the_converter(name: str) -> None:
    """Each matrix is called as one that the package lists for the architecture."""
    config = (MODELS | MIXTURES)[name]()
    architecture = {called: each for each, called in gguf.MODEL_ARCH_NAMES.items()}[architecture_of(config)]
    listed = {gguf.TENSOR_NAMES[each].replace("{bid}", "0") for each in gguf.MODEL_TENSORS[architecture]} | {"output"}
    names = Names(recipe_of(config), ARCHITECTURES[architecture_of(config)])
    assert {stored.removesuffix(".weight") for _, stored in names.matrices() if "blk.0." in stored} <= listed


@pytest.mark.parametrize(
    ("name", "said", "error", "message"),
    [
        ("granite", {"rope.scaling.finetuned": False}, UnsupportedModel, "it has no positions"),
        ("granite", {"logit_scale": 0.0}, DamagedModel, "granite.logit_scale' is 0.0, not a number above 0"),
        ("seed_oss", {"attention.sliding_window": 8}, UnsupportedModel, "attention.sliding_window is 8"),
        ("nemotron", {"attention.sliding_window": 8}, UnsupportedModel, "attention.sliding_window is 8"),
        ("nemotron", {"rope.dimension_count": 3}, UnsupportedModel, "nemotron.rope.dimension_count is 3"),
        ("seed_oss", {"rope.dimension_count": 8}, UnsupportedModel, "seed_oss.rope.dimension_count is 8"),
        ("smollm3", {"logit_scale": 2.0}, UnsupportedModel, "smollm3.logit_scale is 2.0, which is not known"),
        ("ministral3", {"rope.scaling.type": "none"}, UnsupportedModel, "no length to count from"),
        ("exaone4", {"attention.sliding_window_pattern": [True, False]}, DamagedModel, "has 2 entries for 4 layers"),
        ("cohere2", {"attention.sliding_window": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("gemma2", {"attention.sliding_window": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("qwen3", {"rope.scaling.original_context_length": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("phi3", {"rope.scaling.original_context_length": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("cohere2", {"logit_scale": "a"}, DamagedModel, "logit_scale' is 'a', not a number"),
        ("glm4", {"nextn_predict_layers": 1}, UnsupportedModel, "glm4.nextn_predict_layers is 1"),
        ("phi3", {"rope.scaling.type": "linear"}, UnsupportedModel, "rope.scaling.type is 'linear', and the file has"),
        ("lfm2", {"attention.sliding_window": 8}, UnsupportedModel, "attention.sliding_window is 8"),
        ("lfm2", {"shortconv.l_cache": 0}, DamagedModel, "shortconv.l_cache' is 0, not a whole number above 0"),
        ("lfm2", {"shortconv.l_cache": 4}, DamagedModel, r"shortconv.conv.weight' is .64, 3., and .64, 1, 4. is"),
        ("lfm2", {"attention.head_count_kv": 2}, DamagedModel, "'blk.0.attn_output.weight' is missing"),
        ("lfm2", {"attention.head_count_kv": [0] * 5}, UnsupportedModel, "no layer has attention"),
        ("lfm2", {"attention.head_count_kv": [0, 0, 2, 0, 1]}, UnsupportedModel, "not one number for all layers with"),
        ("lfm2", {"attention.head_count_kv": [0, 0, 3, 0, 3]}, DamagedModel, "4 heads cannot share 3 heads of keys"),
        ("qwen3_5", {"attention.recurrent_layers": [True]}, DamagedModel, "not true or false for each of 5 layers"),
        ("qwen3_5", {"ssm.group_count": 3}, DamagedModel, "4 heads of 128 numbers cannot share 3 heads of keys"),
        ("qwen3_5", {"ssm.state_size": None}, DamagedModel, "does not say 'qwen35.ssm.state_size'"),
        ("qwen3_5", {"ssm.dt_b_c_rms": True}, UnsupportedModel, "qwen35.ssm.dt_b_c_rms is True, which is not known"),
        ("qwen3_5", {"rope.dimension_sections": [4]}, DamagedModel, "an array of 1 entries, not 4 whole numbers"),
        ("qwen3_5", {"nextn_predict_layers": 5}, DamagedModel, "5 of its 5 layers draft"),
        ("falcon_h1", {"ssm.inner_size": 100}, DamagedModel, "ssm.inner_size is 100 for 6 heads"),
        ("nemotron_h", {"feed_forward_length": [0, 96, 0, 64, 0, 96]}, UnsupportedModel, "not one number for all MLPs"),
        ("nemotron_h", {"attention.layer_norm_epsilon": None}, DamagedModel, "does not say .nemotron_h.attention"),
        ("qwen3", {"expert_count": 4}, UnsupportedModel, "of this architecture have no experts"),
        ("granite4h", {"expert_shared_feed_forward_length": 64}, UnsupportedModel, "is 64, and feed_forward_length 96"),
        ("granite4h", {"ssm.inner_size": 100}, DamagedModel, "ssm.inner_size is 100 for 8 heads and rows of 64"),
        ("granite4h", {"ssm.group_count": 4}, DamagedModel, "is .* is needed"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    name: str, said: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        checkpoint.load_config(str(write(tmp_path / "m.gguf", made(MODELS[name]()), metadata=said)))


def test_queries_of_mistral3_need_no_scale(tmp_path: Path) -> None:
    model = made(MODELS["ministral3"]())
    found = checkpoint.load_config(
        str(write(tmp_path / "m.gguf", model, metadata={"attention.temperature_scale": None}))
    )
    assert found.model_type == "mistral"
    assert found.rope_parameters["factor"] == 8.0


def test_windows_that_old_files_do_not_state(tmp_path: Path) -> None:
    """The largest EXAONE 4, of 64 layers, is the only one with windows."""
    config = MODELS["exaone4, no windows"]()
    config.num_hidden_layers, config.layer_types = 64, ["full_attention"] * 64
    found = checkpoint.load_config(str(write(tmp_path / "m.gguf", random_model(config))))
    assert (found.sliding_window, found.layer_types) == (4096, KINDS * 16)
    stated = {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False] * 32}
    found = checkpoint.load_config(str(write(tmp_path / "s.gguf", random_model(config), metadata=stated)))
    assert (found.sliding_window, found.layer_types) == (8, ["sliding_attention", "full_attention"] * 32)


def test_keys_that_no_layer_of_gemma4_reads_are_left_where_they_are(tmp_path: Path) -> None:
    """Checkpoints hold them for the layers that attend to the keys of others, and so do files."""
    model = made(MODELS["gemma4"]())
    shared = {f"blk.7.{name}.weight": np.ones((64, 64), np.float32) for name in ("attn_k", "attn_v", "attn_k_norm")}
    path = write(tmp_path / "m.gguf", model, tensors=shared)
    assert off(run(path, packed=False)[0], logits(model)) < 1e-5
    with pytest.raises(UnsupportedModel, match=r"'blk.7.attn_q.bias' \(and 0 more\), which"):
        checkpoint.load_config(
            str(write(tmp_path / "q.gguf", model, tensors={"blk.7.attn_q.bias": np.ones(64, np.float32)}))
        )


def test_factors_of_falcon_h1_are_in_the_weights(tmp_path: Path) -> None:
    model = made(HYBRIDS["falcon_h1"](mamba_norm_before_gate=False, projectors_bias=False))
    assert off(run(write(tmp_path / "m.gguf", model), packed=False)[0], logits(model)) < 1e-5


def test_which_layers_of_qwen35_are_recurrent_may_be_a_period(tmp_path: Path) -> None:
    said = {"attention.recurrent_layers": None, "full_attention_interval": None}
    found = checkpoint.load_config(str(write(tmp_path / "m.gguf", made(MODELS["qwen3_5"]()), metadata=said)))
    assert found.layer_types == [*["linear_attention"] * 3, "full_attention", "linear_attention"]


def test_a_head_of_qwen35_that_drafts_is_left_where_it_is(tmp_path: Path) -> None:
    """It stands after the layers, and is counted among them."""
    model, norm = made(MODELS["qwen3_5"]()), np.ones(64, np.float32)
    said = {
        "block_count": 6,
        "nextn_predict_layers": 1,
        "attention.recurrent_layers": [*[True] * 3, False, True, False],
    }
    head = {f"blk.5.{name}.weight": norm for name in ("attn_norm", "nextn.enorm", "nextn.shared_head_norm")}
    path = write(tmp_path / "m.gguf", model, metadata=said, tensors=head)
    assert off(run(path, packed=False)[0], logits(model)) < 1e-5
    for other in ("blk.5.nextn.other.weight", "blk.6.attn_norm.weight"):
        path = write(tmp_path / "o.gguf", model, metadata=said, tensors={**head, other: norm})
        with pytest.raises(UnsupportedModel, match=rf"'{other}' \(and 0 more\), which"):
            checkpoint.load_config(str(path))


def test_a_decay_that_would_grow_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", made(MODELS["granite4h"]()), tensors={"blk.0.ssm_a": np.ones((8, 1), np.float32)},
                 leave_out=("blk.0.ssm_a",))  # fmt: skip
    with pytest.raises(DamagedModel, match=r"blk.0.ssm_a holds numbers that are not negative"):
        run(path, packed=False)


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
def test_halves_of_a_matrix_may_be_blocks_of_two_types(tmp_path: Path) -> None:
    """Gate and up of Granite 4 H, which transformers has as one matrix."""
    model = made(MODELS["granite4h"]())
    gate = model.model.layers[0].shared_mlp.input_linear.weight.detach().numpy()[:96]
    blocks = {"blk.0.ffn_gate.weight": (gguf.quantize(gate, Q.Q4_1), Q.Q4_1)}
    path = write(tmp_path / "m.gguf", model, kind=Q.Q8_0, blocks=blocks)
    found, runner = run(path)
    assert (runner.decoder, runner.blocks) == ("fused", ("Q8_0", "Q4_1"))
    assert 0 < off(found, run(path, packed=False)[0]) < 0.03


@pytest.mark.parametrize(
    ("said", "tensors", "error", "message"),
    [
        ({"attention.sliding_window_pattern": None}, {}, DamagedModel, "does not say 'gemma4.attention.sliding_window"),
        ({"attention.sliding_window_pattern": [True] * 8}, {}, UnsupportedModel, "ends with a layer that has a window"),
        ({"attention.head_count_kv": [2, 2, 1, 2] * 2}, {}, UnsupportedModel, "not one number for each kind of layer"),
        ({"attention.head_count_kv": [2, 2, 2, 3] * 2}, {}, DamagedModel, "4 heads cannot share 3 heads of keys"),
        ({"attention.head_count_kv": [2]}, {}, DamagedModel, "an array of 1 entries, not 8 whole numbers"),
        ({"feed_forward_length": [96] * 7 + [97]}, {}, UnsupportedModel, "which no model of transformers has"),
        ({"attention.value_length": 16}, {}, UnsupportedModel, "attention.value_length is 16, and heads are 32 wide"),
        ({"attention.value_length_swa": 32}, {}, UnsupportedModel, "value_length_swa is 32, and heads are 16 wide"),
        ({"attention.shared_kv_layers": 8}, {}, DamagedModel, "8 of its 8 layers attend to the keys of others"),
        ({"attention.shared_kv_layers": 3}, {}, UnsupportedModel, "feed_forward_length is"),
        ({"embedding_length_per_layer_input": 16}, {}, DamagedModel, "inp_gate.weight' is .32, 64., and .16, 64. is"),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, {}, UnsupportedModel, "scaling.type is 'linear'"),
        ({}, {"rope_freqs.weight": np.ones(15, np.float32)}, DamagedModel, r"is \[15\], and \[16\] is needed"),
        ({}, {"rope_freqs.weight": np.arange(1, 17, dtype=np.float32)}, UnsupportedModel, "other numbers than 1"),
        ({}, {"rope_freqs.weight": np.zeros(16, np.float32)}, DamagedModel, "numbers that are not positive"),
    ],
)  # fmt: skip
def test_layers_of_gemma4_that_are_not_known_are_refused_by_name(
    said: dict[str, Any], tensors: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        checkpoint.load_config(
            str(write(tmp_path / "m.gguf", made(MODELS["gemma4"]()), metadata=said, tensors=tensors))
        )


def test_layers_with_a_window_may_turn_by_another_base(tmp_path: Path) -> None:
    said = {"rope.freq_base_swa": 333.0}
    found = checkpoint.load_config(str(write(tmp_path / "m.gguf", made(MODELS["olmo3"]()), metadata=said)))
    assert found.rope_parameters["sliding_attention"]["rope_theta"] == 333.0
    assert found.rope_parameters["full_attention"]["rope_theta"] == 1e4
    for name in ("cohere2", "exaone4"):
        path = str(write(tmp_path / f"{name}.gguf", made(MODELS[name]()), metadata=said))
        with pytest.raises(UnsupportedModel, match=r"rope.freq_base_swa is 333, and rope.freq_base 10000"):
            checkpoint.load_config(path)


def test_damaged_factors_of_a_rotation_are_refused(tmp_path: Path) -> None:
    model = made(MODELS["phi3"]())
    for factors, message in (
        (np.ones(5, np.float32), r"'rope_factors_long.weight' is \[5\], and \[6\] is needed"),
        (np.zeros(6, np.float32), "rope_factors_long.weight holds numbers that are not positive"),
    ):
        path = write(tmp_path / "m.gguf", model, tensors={"rope_factors_long.weight": factors})
        with pytest.raises(DamagedModel, match=message):
            checkpoint.load_config(str(path))
    with pytest.raises(DamagedModel, match=r"'rope_factors_short.weight' is missing"):
        checkpoint.load_config(str(write(tmp_path / "s.gguf", model, leave_out=("rope_factors_short.weight",))))


def test_damaged_numbers_of_an_activation_are_refused(tmp_path: Path) -> None:
    model = made(MODELS["apertus"]())
    for damaged, message in (({"xielu.beta": None}, "does not say 'xielu.beta'"),
        ({"xielu.eps": [0.1]}, "xielu.eps' is an array of 1 entries, not 4 numbers"),
        ({"xielu.alpha_p": [1.0, 2.0, math.nan, 1.0]}, "not 4 numbers"),
        ({"xielu.alpha_p": "x"}, "not a number"),
    ):  # fmt: skip
        with pytest.raises(DamagedModel, match=message):
            checkpoint.load_config(str(write(tmp_path / "m.gguf", model, plain=damaged)))


def test_factors_of_frequencies_are_refused_where_no_file_has_them(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.ones(8, np.float32)}
    for name in ("cohere2", "ernie4_5", "glm4", "granite", "hunyuan", "olmo2", "seed_oss"):
        with pytest.raises(UnsupportedModel, match=r"'rope_freqs.weight' \(and 0 more\), which"):
            checkpoint.load_config(str(write(tmp_path / f"{name}.gguf", made(MODELS[name]()), tensors=factors)))
