"""`describe`: what it says of a model is what loading finds out, and no weight is read for it."""

from __future__ import annotations

import copy
import functools
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import families, gguf_files, quantised
from support.model_types import tiny_model
from support.tiny import ARCHITECTURES, CONTEXT, byte_tokenizer, random_model
from transformers import LlamaConfig, Qwen3MoeConfig

from headstart.base.errors import DamagedModel, InvalidOption, ModelNotFound, UnsupportedModel
from headstart.loading.info import Info, describe, refusal
from headstart.loading.options import InfoOptions, TargetOptions
from headstart.model import loading, native
from headstart.model.coded import without_memory
from headstart.model.native import Unavailable
from headstart.model.recipes import recipe_of
from headstart.model.recipes.words import kinds_of
from headstart.model.runner import ModelRunner

FLOAT32 = TargetOptions(dtype="float32", device="cpu")


def runner(source: str, dtype: torch.dtype, quantize: str | None) -> ModelRunner:
    config = loading.load_config(source, trust_remote_code=False)
    model = loading.load_weights(source, config, dtype, torch.device("cpu"), trust_remote_code=False)
    return ModelRunner(model, max_length=CONTEXT, quantize=quantize)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_forwards_that_are_promised_are_those_that_run(name: str, tiny: Callable[..., str]) -> None:
    source = tiny(name)
    found = describe(source, FLOAT32)
    assert found.model_type == loading.load_config(source, trust_remote_code=False).get_text_config().model_type
    assert found.parameters == sum(each.numel() for each in set(random_model(name).parameters()))
    assert (found.kinds == ()) == bool(found.no_recipe)
    for each in found.formats:
        if each.decoder is None:
            with pytest.raises(InvalidOption):
                runner(source, torch.float32, each.quantize)
            continue
        made = runner(source, torch.float32, each.quantize)
        assert made.decoder == each.decoder
        assert (each.why == "") == (made.decoder == "fused")
    assert found.cache == runner(source, torch.float32, None).cache_bytes(1)


def test_a_class_that_passes_over_its_config_runs_on_its_modules(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrower(config: Any) -> Any:
        other = copy.deepcopy(config)
        other.intermediate_size //= 2
        model = without_memory(other)
        model.config = config
        return model

    monkeypatch.setattr("headstart.loading.info.without_memory", narrower)
    found = describe(tiny("llama"), FLOAT32)
    assert "outputs, and by the config" in found.no_recipe
    assert found.formats[0].decoder == "modules"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_memory_of_a_model_that_is_not_tiny(dtype: str) -> None:
    found = describe("bundled", TargetOptions(dtype=dtype, device="cpu"))
    for each in found.formats:
        made = runner(loading.resolve("bundled", "target"), getattr(torch, dtype), each.quantize)
        assert each.weights == pytest.approx(made.memory(), rel=0.02)
    assert found.needed == found.formats[0].weights + 8 * found.cache + found.rows
    assert found.decoder == "fused"


def test_the_memory_of_a_mixture_counts_its_experts_as_what_they_run_as(tmp_path: Path) -> None:
    """They are no linear layers in transformers, and are rounded like those; routers are not."""
    config = Qwen3MoeConfig(
        hidden_size=256, moe_intermediate_size=128, intermediate_size=256, num_experts=16, num_experts_per_tok=2,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64, vocab_size=512,
    )  # fmt: skip
    families.random_model(config, torch.bfloat16).save_pretrained(tmp_path)
    for each in describe(tmp_path, TargetOptions(dtype="bfloat16", device="cpu")).formats:
        made = runner(str(tmp_path), torch.bfloat16, each.quantize)
        assert each.decoder == made.decoder == "fused"
        assert each.weights == pytest.approx(made.memory(), rel=0.05)


def test_layers_in_words(tiny: Callable[..., str]) -> None:
    first, second = describe(tiny("gemma3"), FLOAT32).kinds
    assert (first.count, first.span, second.count, second.span) == (2, "window 7", 2, "full attention")
    assert first.attention == "4 heads on 2 of keys, 8 wide; queries and keys normed by head"
    assert first.positions == "rotary; angles of sliding_attention"
    assert second.positions == "rotary; angles of full_attention"
    assert first.norms == ("RMS norm (gain + 1) before attention, after attention, before the MLP and after the MLP")
    assert first.mlp == "GELU (tanh), gated, 64 wide"
    (only,) = describe(tiny("llama"), FLOAT32).kinds
    assert (only.count, only.span, only.norms) == (
        4, "full attention", "RMS norm before attention and before the MLP"
    )  # fmt: skip
    assert "scores capped at 2" in describe(tiny("gemma2"), FLOAT32).kinds[0].attention
    assert describe(tiny("gemma2"), FLOAT32).rest == "embeddings x 5.657; logits capped at 8"


def drafters(found: Info) -> dict[str, bool]:
    return {each.name: each.fits for each in found.drafters}


def test_drafters_that_fit(tiny: Callable[..., str]) -> None:
    assert all(drafters(describe("bundled", FLOAT32)).values())
    assert "medusa" in drafters(describe("bundled", FLOAT32))
    here = drafters(describe(tiny("llama"), FLOAT32))
    assert here["early-exit"]
    assert here["self-int4"]
    assert "eagle3" not in here
    others = describe(tiny("persimmon"), FLOAT32)
    assert not drafters(others)["early-exit"]
    assert not drafters(others)["self-int4"]
    assert drafters(others)["ngram"]
    assert others.auto == ("suffix", "ngram")
    assert "persimmon" in others.no_recipe


def test_a_head_is_known_by_the_config_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, eos_token_id=2,
        architectures=["LlamaForCausalLM"], tie_word_embeddings=True,
    ).save_pretrained(tmp_path)  # fmt: skip
    save_file({f"model.layers.{i}.x": torch.zeros(1) for i in range(30)}, tmp_path / "model.safetensors")
    with pytest.raises(DamagedModel, match="its files hold 30"):
        describe(tmp_path, FLOAT32)
    monkeypatch.setattr("headstart.loading.info.check_amount", lambda *_: None)
    found = describe(tmp_path, FLOAT32)
    assert drafters(found)["eagle3"]
    assert found.auto == ("ngram", "eagle3")


def test_why_nothing_faster_runs(tiny: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = describe(tiny("gemma2"), FLOAT32)
    assert narrow.decoder == "lean"
    assert "multiples of 16, and one is 8" in narrow.formats[0].why
    half = describe(tiny("llama"), TargetOptions(dtype="float16", device="cpu"))
    assert half.decoder == "lean"
    assert "float16" in half.formats[0].why
    monkeypatch.setattr(native, "_outcome", functools.cache(lambda: Unavailable("there is no C++ compiler")))
    without = describe(tiny("llama"), FLOAT32)
    assert without.decoder == "lean"
    assert "there is no C++ compiler" in without.formats[0].why
    assert {each.quantize: each.decoder for each in without.formats}["int4"] is None


def test_memory_at_a_context(tiny: Callable[..., str]) -> None:
    long, short = (describe(tiny("llama"), FLOAT32, InfoOptions(context=n, slots=2)) for n in (128, 32))
    assert long.cache == 4 * short.cache
    assert (short.context, long.context_limit) == (32, 128)
    assert long.needed - short.needed == 2 * (long.cache - short.cache) + long.rows - short.rows
    with pytest.raises(InvalidOption, match="above the 128 positions"):
        describe(tiny("llama"), FLOAT32, InfoOptions(context=129))


def test_a_gguf_file(tmp_path: Path) -> None:
    model = random_model("qwen3")
    path = gguf_files.write(tmp_path / "model.gguf", model)
    found = describe(path, FLOAT32)
    assert (found.stored, found.types, found.model_type) == ("GGUF", {"F32": found.parameters}, "qwen3")
    assert found.file_bytes == 4 * found.parameters
    assert found.decoder == "fused"


def test_no_weight_is_read(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import torch as read

    def fail(*args: Any, **options: Any) -> Any:
        raise AssertionError("weights were read")

    monkeypatch.setattr(read, "load_file", fail)
    monkeypatch.setattr(loading, "load_weights", fail)
    source = tiny("qwen2")
    allocated = describe(source, FLOAT32)
    assert allocated.file_bytes == 4 * allocated.parameters


def damaged(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.fixture
def folder(tiny: Callable[..., str], tmp_path: Path) -> Path:
    path = tmp_path / "model"
    shutil.copytree(tiny("llama"), path)
    byte_tokenizer().save_pretrained(path)
    return path


def test_a_hybrid_in_words(tmp_path: Path) -> None:
    """Its layers, the memory of its states, and that the modules of transformers do not run it."""
    tiny_model("qwen3_5_text").save_pretrained(tmp_path)
    found = describe(tmp_path, FLOAT32, InfoOptions(context=128))
    recurrent, attends = found.kinds
    assert (recurrent.count, recurrent.span, attends.count, attends.span) == (
        3, "gated delta rule", 1, "full attention",
    )  # fmt: skip
    assert "each with a state of" in recurrent.attention
    assert "gated" in attends.attention
    assert recurrent.positions == "the order of the text"
    assert recurrent.norms == "RMS norm (gain + 1) before the recurrence and before the MLP"
    assert 0 < found.states < found.cache
    assert "modules" not in {each.decoder for each in found.formats}
    kinds = kinds_of(recipe_of(tiny_model("nemotron_h").config))
    assert [(each.span, each.mlp == "none") for each in kinds] == [
        ("Mamba-2", True), ("MLP alone", False), ("full attention", True), ("MLP alone", False),
    ]  # fmt: skip
    (both,) = kinds_of(recipe_of(tiny_model("falcon_h1").config))
    assert both.span == "full attention beside Mamba-2"
    assert "wide; beside it " in both.attention


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot roll back") as refused:
        describe(damaged(folder, model_type="mamba"))
    assert refusal(refused.value)
    with pytest.raises(DamagedModel, match="its config means a model of") as caught:
        describe(damaged(folder, model_type="llama", num_hidden_layers=20))
    assert refusal(caught.value)
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:2000])
    with pytest.raises(DamagedModel, match="cannot be read"):
        describe(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"no \*\.safetensors") as missing:
        describe(folder)
    assert not refusal(missing.value)
    with pytest.raises(ModelNotFound) as absent:
        describe("someone/a-model-that-does-not-exist")
    assert not refusal(absent.value)


@pytest.mark.parametrize("method", ["gptq", "fp8"])
def test_a_quantised_checkpoint(method: str, tmp_path: Path) -> None:
    matrices = quantised.Matrices()
    make = matrices.gptq if method == "gptq" else partial(matrices.fp8, blocks=True)
    settings = {"gptq": quantised.GPTQ, "fp8": quantised.FP8}[method]
    model = quantised.write(tmp_path, random_model("llama"), make, settings)
    found = describe(tmp_path, FLOAT32)
    assert found.parameters == sum(each.numel() for each in set(model.parameters()))
    as_it_is, floats = found.formats[:2]
    assert (floats.name, floats.quantize, floats.decoder) == ("float32", "none", "fused")
    if method == "fp8":
        assert as_it_is.decoder is None
        assert "quantize='none'" in as_it_is.why
    else:
        assert as_it_is.decoder == "fused"
        assert as_it_is.weights < floats.weights
