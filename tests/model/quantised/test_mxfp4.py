"""GPT-OSS as it is published, its experts in MXFP4: read as floats, and run on its codes."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.gguf_mixtures import MIXTURES
from support.gguf_models import IDS, made, off
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import headstart as hs
from headstart.base.errors import DamagedModel
from headstart.loading.load import Target
from headstart.model import int4, native
from headstart.model.decoders.grouped import GroupedExperts, GroupedLinear
from headstart.model.grouped import StoredWeights
from headstart.model.loading import read_model
from headstart.model.native.weights import NativeWeights
from headstart.model.packed import Segment
from headstart.model.quantised.checkpoint import load_packed, packed_bytes

needs_codes = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")
EXPERTS = ("gate_up_proj", "down_proj")


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path: Path) -> tuple[Path, Any]:
    """A folder, and the model in floats that it holds, by transformers' own reading of its blocks."""
    model = made(MIXTURES["gpt_oss"]())
    generator = torch.Generator().manual_seed(5)
    stored: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if not name.endswith(EXPERTS):
            stored[name] = parameter.detach().clone()
            continue
        count, inputs, outputs = parameter.shape
        shape = (count, outputs, inputs // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 124, shape, generator=generator, dtype=torch.uint8)
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        floats = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        parameter.data.copy_(floats.reshape(count, outputs, inputs).mT if floats.shape != parameter.shape else floats)
    save_file(stored, tmp_path / "model.safetensors")
    config = {**model.config.to_dict(), "architectures": ["GptOssForCausalLM"], "dtype": "float32"}
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path, model


def test_floats_are_those_of_transformers(checkpoint: tuple[Path, Any]) -> None:
    path, twin = checkpoint
    model = read_model(str(path), Target(str(path), quantize="none", max_length=64).checkpoint.config, torch.float32)
    for name, parameter in twin.named_parameters():
        assert torch.equal(model.get_parameter(name), parameter), name


@needs_codes
def test_experts_run_on_their_codes(checkpoint: tuple[Path, Any]) -> None:
    """The modules on codes give what they give on floats of the same numbers; the row kernels round rows to 8 bits, and
    give the same bits at any width."""
    path, twin = checkpoint
    target = Target(str(path), dtype="float32", max_length=64)
    assert (target.runner.decoder, target.runner.blocks) == ("fused", ("MXFP4; rows rounded to int8 by 32",))
    with torch.inference_mode():
        right = twin(IDS).logits[0]
        on_modules = load_packed(path, target.checkpoint.config, torch.float32)
        assert sum(isinstance(each, GroupedExperts) for each in on_modules.modules()) == 6
        assert off(on_modules(IDS).logits[0], right) < 1e-5
    cache, ids = target.runner.new_cache(1), tuple(IDS[0].tolist())
    slot = cache.acquire()
    found = target.runner.forward([Segment(slot, ids, judged=len(ids))], cache).logits.clone()
    errors = (found - right).abs().amax(1) / (right.max() - right.min())
    assert 0 < errors.median() < 0.05
    for first in range(len(ids)):
        row = target.runner.forward([Segment(slot, ids[first : first + 1], judged=1)], cache).logits
        assert torch.equal(row[0], found[first])
        cache.lengths[slot] = first + 1
    need = packed_bytes(str(path), target.checkpoint.config, torch.float32)
    assert 0.8 * target.runner.memory() < need < 1.2 * target.runner.memory()


@needs_codes
def test_the_kernels_pack_what_numpy_reads(checkpoint: tuple[Path, Any]) -> None:
    """The blocks in which an expert is handed to the kernels give the bits that its codes, scales and table give."""
    path, _ = checkpoint
    model = load_packed(path, Target(str(path), max_length=64).checkpoint.config, torch.float32)
    for experts in (each for each in model.modules() if isinstance(each, GroupedExperts)):
        for held in experts.held:
            assert isinstance(held, StoredWeights)
            fast, plain = (NativeWeights(native.FLOAT32) for _ in range(2))
            one = fast.products([GroupedLinear(held)], 1)[0]
            other = plain.products([GroupedLinear(replace(held, blocks=None))], 1)[0]
            size = native.kernels().grouped_bytes(one)
            assert size == native.kernels().grouped_bytes(other)
            assert ctypes.string_at(one.weights, size) == ctypes.string_at(other.weights, size)


@needs_codes
def test_text_with_drafts_is_the_text_without(checkpoint: tuple[Path, Any]) -> None:
    path, _ = checkpoint
    greedy = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
    prompt = list(range(3, 20)) * 2
    texts = [
        hs.load(str(path), drafter=each, max_length=96).generate(prompt, greedy).tokens for each in ("none", "ngram")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("down_proj_scales", None, "down_proj_scales' is missing"),
        ("down_proj_scales", lambda each: each[:7].clone(), r"is U8 \[7, 64, 1\], and U8 \[8, 64, 1\] is needed"),
        ("gate_up_proj_blocks", lambda each: each.to(torch.int32), r"is I32 \[8, 64, 2, 16\]"),
        ("gate_up_proj_scales", lambda each: torch.full_like(each, 255), "holds an exponent of no finite number"),
    ],
)
def test_damaged_experts_are_refused(checkpoint: tuple[Path, Any], name: str, change: Any, message: str) -> None:
    path, _ = checkpoint
    stored = load_file(path / "model.safetensors")
    full = f"model.layers.1.mlp.experts.{name}"
    tensor = stored.pop(full)
    if change is not None:
        stored[full] = change(tensor)
    save_file(stored, path / "model.safetensors")
    with pytest.raises(DamagedModel, match=message):
        _ = Target(str(path), max_length=64, quantize="none").runner
