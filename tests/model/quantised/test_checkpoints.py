"""Quantised checkpoints against the same weights in floats: read as floats, and run on their codes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support import quantised as made
from support.processor import needs_int8
from support.quantised import AWQ, FP8, GPTQ, W8A8, Matrices, w4a16, write
from support.tiny import random_model
from torch import nn

import headstart as hs
from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.loading.load import Target
from headstart.model import int4, native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.quantised.checkpoint import load_packed
from headstart.model.runner import ModelRunner

PROMPT = tuple(range(3, 27))
GREEDY = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=0)

needs_codes = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")

GPTQ_V2 = GPTQ | {"bits": 8, "group_size": 16, "checkpoint_format": "gptq_v2"}

CASES: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "gptq": (Matrices().gptq, GPTQ),
    "gptq-v2": (partial(Matrices(8, 16).gptq, version=2), GPTQ_V2),
    "gptq-desc-act": (partial(Matrices(4, 16).gptq, shuffled=True), GPTQ | {"group_size": 16, "desc_act": True}),
    "gptq-whole": (Matrices(4, -1).gptq, GPTQ | {"group_size": -1}),
    "awq": (Matrices().awq, AWQ),
    "w4a16": (Matrices(zeros=False).compressed, w4a16()),
    "w4a16-zeros": (Matrices(4, 64).compressed, w4a16(64, symmetric=False)),
    "w4a16-actorder": (partial(Matrices(4, 16, zeros=False).compressed, shuffled=True), w4a16(16, actorder="group")),
    "w8a16": (Matrices(8, -1, zeros=False).compressed, w4a16(-1, bits=8)),
    "w8a8": (Matrices().channels, W8A8),
    "w8a8-tensor": (partial(Matrices().channels, whole=True), W8A8),
}  # fmt: skip

EIGHT = ("gptq-v2", "w8a16", "w8a8", "w8a8-tensor")
"""The cases of eight bits."""


def logits(runner: ModelRunner) -> torch.Tensor:
    cache = runner.new_cache(1)
    return runner.forward([Segment(cache.acquire(), PROMPT, judged=len(PROMPT))], cache).logits


@pytest.fixture(params=[pytest.param(name, marks=needs_int8 if name.startswith("w8a8") else ()) for name in CASES])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, str]:
    """A checkpoint, its twin in floats, and the name of the case."""
    make, settings = CASES[request.param]
    return tmp_path, write(tmp_path, random_model("qwen2"), make, settings), request.param


@needs_codes
def test_weights_are_the_files_and_products_run_on_their_codes(case: tuple[Path, Any, str]) -> None:
    """As floats they are the twin's to the bit; the layers of codes hold the same; the kernels differ by the rows'
    rounding alone."""
    path, twin, name = case
    floats = Target(path, quantize="none")
    model = floats.checkpoint
    read = load_packed(path, model.config, torch.float32)
    layers = {name: module for name, module in read.named_modules() if isinstance(module, GroupedLinear)}
    assert len(layers) == 4 * 7
    for layer, module in twin.named_modules():
        if layer in layers:
            held = layers[layer].held.read(slice(3, 30)).dequantise()
            torch.testing.assert_close(torch.from_numpy(held), module.weight[3:30], rtol=1e-6, atol=1e-7)
    right = logits(ModelRunner(adopt(twin)))
    torch.testing.assert_close(logits(floats.runner), right, rtol=1e-4, atol=1e-4)
    packed = Target(path)
    ours = logits(packed.runner)
    assert packed.runner.decoder == "fused"
    assert packed.runner.quantize == ("int8" if name in EIGHT else "int4")
    assert "rows rounded to int8" in packed.runner.weights_in_words
    assert 0 < (ours - right).norm() / right.norm() < 0.1  # a wrong order of inputs is beyond 1
    assert packed.runner.memory() < floats.runner.memory()


@needs_codes
@pytest.mark.parametrize("name", ["gptq-desc-act", pytest.param("w8a8", marks=needs_int8)])
def test_greedy_text_is_the_plain_text_bit_for_bit(name: str, tmp_path: Path) -> None:
    make, settings = CASES[name]
    write(tmp_path, random_model("llama"), make, settings)
    target = Target(tmp_path)
    prompts = [[5, 6, 7, 8], [9, 3, 11], list(range(3, 24))]
    plain = target.engine("none")
    alone = [plain.generate(prompt, GREEDY) for prompt in prompts]
    engine = target.engine(str(tmp_path), num_speculative_tokens=4, pacing="fixed", draft_quantize="int4")
    drafted = engine.generate(prompts, GREEDY)
    assert sum(out.stats.accepted for out in drafted) > 0
    assert [(out.tokens, out.logprobs) for out in drafted] == [(out.tokens, out.logprobs) for out in alone]
    assert "rows rounded to int8" in engine.describe()["weights"]


@needs_codes
def test_what_runs_and_what_it_takes_is_said(tmp_path: Path) -> None:
    write(tmp_path, random_model("llama"), *CASES["gptq"])
    target = Target(tmp_path)
    assert target.engine("none").describe()["weights"] == "GPTQ 4-bit, groups of 32; rows rounded to int8 by 32"
    assert target.checkpoint.need(0, None).weights == 0
    need = Target(tmp_path).checkpoint.need(0, None).weights
    assert 0.5 * target.runner.memory() < need < 1.1 * target.runner.memory()
    assert target.advised_by[-1] != Target(tmp_path, quantize="none").advised_by[-1]


def test_layers_of_one_input_in_different_orders_become_floats(tmp_path: Path) -> None:
    make, settings = CASES["gptq-desc-act"]
    name = "model.layers.0.self_attn.q_proj.g_idx"
    turned = (torch.arange(32) % 2).to(torch.int32)
    write(tmp_path, random_model("llama"), make, settings, change={name: turned})
    read = load_packed(tmp_path, Target(tmp_path).checkpoint.config, torch.float32)
    first, second = (layer.self_attn for layer in read.model.layers[:2])
    floats, codes = (first.q_proj, first.k_proj, first.v_proj), (second.q_proj, first.o_proj)
    assert {type(each) for each in floats} == {nn.Linear}
    assert {type(each) for each in codes} == {GroupedLinear}


def test_without_kernels_they_run_in_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = write(tmp_path, random_model("llama"), *CASES["awq"])
    none = native.Unavailable("there is no C++ compiler on this machine")
    monkeypatch.setattr(native, "_outcome", functools.cache(lambda: none))
    runner = Target(tmp_path).runner
    assert (runner.blocks, runner.quantize) == ((), None)
    torch.testing.assert_close(logits(runner), logits(ModelRunner(adopt(twin))), rtol=1e-4, atol=1e-4)


def test_other_architectures_run_in_floats(tmp_path: Path) -> None:
    twin = write(tmp_path, random_model("gemma2"), *CASES["w4a16"])
    runner = Target(tmp_path).runner
    assert runner.blocks == ()
    torch.testing.assert_close(logits(runner), logits(ModelRunner(adopt(twin))), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blocks", [True, False])
def test_fp8_is_made_into_floats_when_asked(blocks: bool, tmp_path: Path) -> None:
    settings = FP8 if blocks else made.compressed("float-quantized", {"num_bits": 8, "type": "float"})
    twin = write(tmp_path, random_model("llama"), partial(Matrices().fp8, blocks=blocks), settings)
    with pytest.raises(UnsupportedModel, match="FP8, which does not run as it is\nhint: quantize='none'"):
        Target(tmp_path).runner  # noqa: B018
    right = logits(ModelRunner(adopt(twin)))
    torch.testing.assert_close(logits(Target(tmp_path, quantize="none").runner), right, rtol=1e-4, atol=1e-4)


REFUSED = {
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantised by bitsandbytes.*hint: give the orig"),
    "torchao": ({"quant_method": "torchao"}, "quantised by torchao"),
    "unnamed": ({}, "an unnamed method, which cannot be run: it is not known here"),
    "bits": (GPTQ | {"bits": 3}, "GPTQ with bits=3"),
    "marlin": (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format=marlin"),
    "rotation": (GPTQ | {"rotation": "hadamard"}, "GPTQ with rotation=hadamard"),
    "group": (GPTQ | {"group_size": 40}, "group_size=40"),
    "no-group": ({"quant_method": "gptq", "bits": 4}, "group_size=None"),
    "gemv": (AWQ | {"version": "gemv"}, "AWQ with version=gemv"),
    "static": (
        made.compressed("int-quantized", {"num_bits": 8, "strategy": "channel"}, made.BY_ROW | {"dynamic": False}),
        "input_activations.dynamic=False",
    ),
    "nvfp4": (made.compressed("nvfp4-pack-quantized", {"num_bits": 4, "type": "float"}), "format=nvfp4"),
    "rotated": (W8A8 | {"transform_config": {"R1": {}}}, "transform_config"),
    "cache": (W8A8 | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
    "groups": (W8A8 | {"config_groups": {"a": {}, "b": {}}}, "config_groups"),
    "nonsense": (W8A8 | {"config_groups": [1]}, "config_groups"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_exactly_is_refused_by_name(name: str, tmp_path: Path) -> None:
    settings, message = REFUSED[name]
    write(tmp_path, random_model("llama"), Matrices().gptq, settings)
    with pytest.raises(UnsupportedModel, match=f"(?s){message}"):
        Target(tmp_path)


Q = "model.layers.1.mlp.up_proj"
DAMAGED: dict[str, tuple[str, torch.Tensor | None, str]] = {
    "missing": (f"{Q}.scales", None, r"up_proj.scales' is missing"),
    "no-matrix": (f"{Q}.qweight", None, r"up_proj.weight' is missing"),
    "shape": (f"{Q}.qweight", torch.zeros(3, 64, dtype=torch.int32), r"is I32 \[3, 64\], and I32 \[4, 64\] is needed"),
    "type": (f"{Q}.scales", torch.zeros(1, 64, dtype=torch.int32), "and F16 or BF16 or F32"),
    "norm": ("model.norm.weight", torch.zeros(31), r"floats \[32\] are needed"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_checkpoint_is_refused_before_weights_are_read(name: str, tmp_path: Path) -> None:
    tensor, value, message = DAMAGED[name]
    write(tmp_path, random_model("llama"), *CASES["gptq"], change={tensor: value})
    with pytest.raises(DamagedModel, match=message):
        Target(tmp_path)


def test_numbers_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    make, settings = CASES["gptq"]
    model = random_model("llama")
    write(tmp_path / "nan", model, make, settings, change={f"{Q}.scales": torch.full((1, 64), torch.nan).half()})
    write(tmp_path / "zero", model, make, settings, change={f"{Q}.qzeros": torch.full((1, 8), -1, dtype=torch.int32)})
    write(tmp_path / "groups", model, make, settings, change={f"{Q}.g_idx": torch.full((32,), -7, dtype=torch.int32)})
    write(tmp_path / "bias", model, make, settings, change={f"{Q}.bias": torch.ones(64)})
    for name, error, message in (
        ("nan", DamagedModel, "not finite"),
        ("zero", UnsupportedModel, "in different ways"),
        ("groups", UnsupportedModel, "not all of 32"),
        ("bias", UnsupportedModel, "holds 'model.layers.1.mlp.up_proj.bias'"),
    ):
        with pytest.raises(error, match=message):
            Target(tmp_path / name, quantize="none").runner  # noqa: B018


def test_biases_of_zeros_are_let_pass(tmp_path: Path) -> None:
    write(tmp_path, random_model("llama"), *CASES["gptq"], change={f"{Q}.bias": torch.zeros(64)})
    Target(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_file_that_was_cut_is_refused(keep: int, tmp_path: Path) -> None:
    write(tmp_path, random_model("llama"), *CASES["w8a8"])
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DamagedModel, match="cannot be read"):
        Target(tmp_path)


def test_a_config_of_a_billion_layers_takes_no_time(tmp_path: Path) -> None:
    model = write(tmp_path, random_model("llama"), *CASES["w8a8"])
    config = model.config.to_dict() | {"num_hidden_layers": 10**9, "quantization_config": W8A8}
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_types": None}))
    with pytest.raises(DamagedModel, match="claims 1000000000 layers"):
        Target(tmp_path)
