"""Files of mixtures of experts, written as llama.cpp's converter writes them, against the models that they were made
of."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from support.gguf_files import Q, quantised, write
from support.gguf_mixtures import MIXTURES, whole_latent
from support.gguf_models import IDS, LENGTH, made, off, run
from torch import Tensor

from headstart.base.errors import DamagedModel, HeadstartError, UnsupportedModel
from headstart.model import native
from headstart.model.gguf import checkpoint
from headstart.model.gguf.config import make_config
from headstart.model.gguf.files import open_gguf
from headstart.model.longrope import fix_rotation
from headstart.model.packed import Segment

_NOT_STATED = (
    "architectures", "dtype", "head_dim", "initializer_range", "max_position_embeddings", "mtp_num_hidden_layers",
    "num_nextn_predict_layers", "pad_token_id", "bos_token_id", "eos_token_id", "vocab_size_per_layer_input",
)  # fmt: skip
_READ_AS_ANOTHER = {
    "qwen3_next": ("model_type", "norm_topk_prob", "decoder_sparse_step", "intermediate_size", "mlp_only_layers"),
    "glm4_moe_lite": ("model_type", "mlp_layer_types"),
    "youtu": ("model_type", "embedding_initializer_range"),
}
"""What configs say and those of the models that their files are read as do not: Qwen3.5's, and DeepSeek V3's."""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same(value, other.get(key)) for key, value in one.items())
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


@pytest.mark.parametrize("name", MIXTURES)
def test_the_config_is_the_originals(name: str, tmp_path: Path) -> None:
    model = made(MIXTURES[name]())
    found = make_config(open_gguf(write(tmp_path / "m.gguf", model))).to_dict()
    original = model.config.to_dict()
    left_out = _NOT_STATED + _READ_AS_ANOTHER.get(name, ())
    assert {key for key in original.keys() - set(left_out) if not _same(original[key], found.get(key))} == set()


def _logits(model: Any) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(IDS).logits[0]
    return found


@pytest.mark.parametrize("name", MIXTURES)
def test_floats_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    """The file's numbers are the model's, and so is what its config makes of them."""
    model = made(MIXTURES[name]())
    path = write(tmp_path / "m.gguf", model)
    found = checkpoint.load_model(str(path), checkpoint.load_config(str(path)), torch.float32)
    fix_rotation(found, LENGTH)
    for parameter, values in model.named_parameters():
        if name != "qwen3_next":  # which is read as a model of another class
            torch.testing.assert_close(found.get_parameter(parameter), values, rtol=0, atol=3e-7, msg=parameter)
    right = _logits(model)
    assert off(_logits(found), right) < 3e-6
    assert off(run(path, packed=False)[0], right) < 1e-5


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
@pytest.mark.parametrize(
    ("name", "kind"), [(name, (Q.Q8_0, Q.Q4_0, Q.MXFP4)[place % 3]) for place, name in enumerate(MIXTURES)]
)
def test_codes_are_those_of_the_original(name: str, kind: Q, tmp_path: Path) -> None:
    """transformers' modules give the same on codes as on floats of the same numbers. The row kernels round each row to
    8 bits, and give the same bits at any width: most rows are near the right ones, and some, near the border between
    two experts, take another one."""
    model = made(MIXTURES[name]())
    path = write(tmp_path / "m.gguf", model, kind=kind)
    twin = quantised(model, kind)
    fix_rotation(twin, LENGTH)
    on_modules = checkpoint.load_packed(str(path), checkpoint.load_config(str(path)), torch.float32)
    fix_rotation(on_modules, LENGTH)
    right = _logits(twin)
    assert off(_logits(on_modules), right) < 1e-5
    found, runner = run(path)
    assert (runner.decoder, runner.blocks) == ("fused", (kind.name,))
    errors = (found - right).abs().amax(1) / (right.max() - right.min())
    assert 0 < errors.median() < 0.05
    cache = runner.new_cache(1)
    slot, ids = cache.acquire(), tuple(IDS[0].tolist())
    for first in range(len(ids)):
        row = runner.forward([Segment(slot, ids[first : first + 1], judged=1)], cache).logits
        assert torch.equal(row[0], found[first])
        cache.lengths[slot] = first + 1


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
def test_gate_and_up_of_experts_may_be_one_tensor(tmp_path: Path) -> None:
    """As they are in some files of Qwen3.5."""
    model = made(MIXTURES["qwen3_moe"]())
    apart = run(write(tmp_path / "a.gguf", model, kind=Q.Q4_0))[0]
    blocks, left_out = {}, []
    for index, layer in enumerate(model.model.layers):
        joined = layer.mlp.experts.gate_up_proj.numpy()
        blocks[f"blk.{index}.ffn_gate_up_exps.weight"] = gguf.quantize(joined, Q.Q4_0), Q.Q4_0
        left_out += [f"blk.{index}.ffn_{each}_exps.weight" for each in ("gate", "up")]
    path = write(tmp_path / "b.gguf", model, kind=Q.Q4_0, leave_out=tuple(left_out), blocks=blocks)
    assert torch.equal(run(path)[0], apart)


LATENT = ["deepseek_v2", "deepseek_v3", "glm4_moe_lite", "mistral4", "youtu"]


@pytest.mark.parametrize("name", LATENT)
def test_what_makes_keys_and_values_of_a_latent_may_be_one_matrix(name: str, tmp_path: Path) -> None:
    """As older converters wrote it; and the numbers are the same."""
    model = made(MIXTURES[name]())
    apart, whole = write(tmp_path / "a.gguf", model), write(tmp_path / "b.gguf", model, **whole_latent(model))
    assert torch.equal(run(apart, packed=False)[0], run(whole, packed=False)[0])
    if native.available():
        kind = Q.Q8_0
        held = whole_latent(model)
        blocks = {stored: (gguf.quantize(values, kind), kind) for stored, values in held.pop("tensors").items()}
        path = write(tmp_path / "c.gguf", model, kind=kind, blocks=blocks, **held)
        found, runner = run(path)
        assert (runner.decoder, runner.blocks) == ("fused", ("Q8_0",))
        errors = (found - run(path, packed=False)[0]).abs().amax(1) / (found.max() - found.min())
        assert 0 < errors.median() < 0.05


def test_a_file_of_glm_that_does_not_say_how_scores_are_made_has_sigmoids(tmp_path: Path) -> None:
    """It is known by its vocabulary; others without it are DeepSeek V2."""
    config = MIXTURES["glm4_moe_lite"]()
    config.vocab_size = 154880
    said = {"expert_gating_func": None}
    found = make_config(open_gguf(write(tmp_path / "m.gguf", made(config), metadata=said)))
    assert found.model_type == "deepseek_v3"
    path = write(tmp_path / "v2.gguf", made(MIXTURES["deepseek_v2"]()), metadata=said)
    assert make_config(open_gguf(path)).model_type == "deepseek_v2"


@pytest.mark.parametrize(
    ("name", "said", "error", "message"),
    [
        ("deepseek_v2", {"expert_gating_func": 4}, UnsupportedModel, "expert_gating_func is 4, and 1 is known"),
        ("deepseek_v2", {"expert_weights_norm": True}, UnsupportedModel, "expert_weights_norm is true, and scores"),
        ("deepseek_v2", {"rope.scaling.yarn_log_multiplier": None}, DamagedModel, "does not say 'deepseek2.rope"),
        ("deepseek_v2", {"attention.kv_lora_rank": 0}, DamagedModel, "kv_lora_rank' is 0, not a whole number above 0"),
        ("deepseek_v2", {"attention.kv_lora_rank": 64}, DamagedModel, r"and \[80, 64\] is needed"),
        ("deepseek_v3", {"attention.q_lora_rank": None}, DamagedModel, "'blk.0.attn_q.weight' is missing"),
        ("deepseek_v3", {"attention.q_lora_rank": 32}, DamagedModel, r"and \[32, 64\] is needed"),
        ("deepseek_v3", {"attention.value_length_mla": 32}, DamagedModel, r"and \[64, 128\] is needed"),
        ("deepseek_v3", {"attention.key_length_mla": 64}, DamagedModel, r"and \[256, 64\] is needed"),
        ("deepseek_v3", {"attention.head_count": 8}, DamagedModel, r"and \[64, 512\] is needed"),
        ("deepseek_v3", {"rope.dimension_count": 48}, DamagedModel, "48 wide, of which 48 numbers"),
        ("deepseek_v3", {"expert_group_count": 3}, DamagedModel, "8 experts in 3 groups"),
        ("nemotron_h, experts", {"expert_feed_forward_length": 16}, DamagedModel, r"and \[8, 64, 16\] is needed"),
        ("nemotron_h, experts", {"moe_latent_size": 32}, UnsupportedModel, "moe_latent_size is 32, which is not known"),
        ("nemotron_h, experts", {"expert_gating_func": 1}, UnsupportedModel, "is 1, and 2 is known"),
        ("nemotron_h, experts", {"expert_count": None}, DamagedModel, "needed|missing"),
        ("qwen3_moe", {"expert_count": None}, DamagedModel, "'blk.0.ffn_down.weight' is missing"),
        ("lfm2_moe", {"expert_count": None}, DamagedModel, "'blk.1.ffn_down.weight' is missing"),
        ("qwen3_moe", {"expert_count": 9}, DamagedModel, r"'blk.0.ffn_down_exps.weight' is \[8, 64, 32\], and \[9,"),
        ("qwen3_moe", {"expert_count": 2**31 - 1}, DamagedModel, "and \\[2147483647, 64, 32\\] is needed"),
        ("qwen3_moe", {"expert_used_count": 9}, DamagedModel, "9 of 8 experts are used"),
        ("qwen3_moe", {"expert_used_count": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("qwen3_moe", {"expert_feed_forward_length": 48}, DamagedModel, r"and \[8, 64, 48\] is needed"),
        ("qwen3_moe", {"expert_gating_func": 2}, UnsupportedModel, "qwen3moe.expert_gating_func is 2"),
        ("glm4_moe", {"expert_gating_func": 1}, UnsupportedModel, "expert_gating_func is 1, and 2 is known"),
        ("glm4_moe", {"expert_group_count": 3}, DamagedModel, "8 experts in 3 groups"),
        ("glm4_moe", {"leading_dense_block_count": 3}, DamagedModel, "in all but 3 of 3 layers"),
        ("ernie4_5_moe", {"interleave_moe_layer_step": 2}, UnsupportedModel, "interleave_moe_layer_step is 2"),
        ("gpt_oss", {"expert_feed_forward_length": 16}, DamagedModel, r"and \[8, 64, 16\] is needed"),
        ("granitemoe", {"rope.scaling.finetuned": False}, UnsupportedModel, "it has no positions"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, said: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "m.gguf", made(MIXTURES[name]()), metadata=said)
    with pytest.raises(error, match=message):
        checkpoint.load_config(str(path))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((7, 64, 32), r"'blk.1.ffn_down_exps.weight' is \[7, 64, 32\], and \[8, 64, 32\] is needed"),
        ((8, 32, 64), r"is \[8, 32, 64\]"),
        ((64, 8, 32), r"is \[64, 8, 32\]"),
        ((512, 32), r"is \[512, 32\]"),
        ((2, 4, 64, 32), r"is \[2, 4, 64, 32\]"),
    ],
)
def test_tensors_of_another_shape_are_refused(shape: tuple[int, ...], message: str, tmp_path: Path) -> None:
    name = "blk.1.ffn_down_exps.weight"
    path = write(
        tmp_path / "m.gguf", made(MIXTURES["qwen3_moe"]()), leave_out=(name,), tensors={name: np.zeros(shape, "f")}
    )
    with pytest.raises(DamagedModel, match=message):
        checkpoint.load_config(str(path))


@pytest.mark.parametrize(
    ("name", "parts"),
    [("qwen3_moe", ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")), ("deepseek_v3", ("attn_k_b", "attn_v_b"))],
)
def test_three_dimensions_that_lie_are_refused(name: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    """The head of a file with random numbers where the shapes of experts stand, or of what makes keys and values of
    latents: an error that names what is wrong, or the same shapes, and never a model of other ones."""
    data = bytearray(write(tmp_path / "m.gguf", made(MIXTURES[name]())).read_bytes())
    rng = np.random.default_rng(0)
    names = [f"blk.{layer}.{part}.weight".encode() for layer in range(3) for part in parts]
    refused = 0
    for number in range(60):
        damaged, tensor = bytearray(data), names[number % len(names)]
        at = damaged.index(tensor) + len(tensor)
        kind = number // len(names) % 3
        if kind == 0:  # how many there are
            struct.pack_into("<I", damaged, at, int(rng.integers(0, 9)))
        else:
            field = at + 4 + 8 * int(rng.integers(0, 3))
            wrong = int(rng.integers(0, 200)) if kind == 1 else int(rng.integers(0, 2**63))
            struct.pack_into("<Q", damaged, field, wrong)
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(damaged)
        if damaged == data:
            continue
        try:
            checkpoint.load_config(str(path))
        except HeadstartError:
            refused += 1
        path.unlink()
    assert refused > 50
