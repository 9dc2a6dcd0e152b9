"""Model directories that are damaged, incomplete or of two models: one typed line each, and never a random text."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.base.errors import DamagedModel, HeadstartError, ModelNotFound, UnsupportedModel
from headstart.model import loading
from headstart.model.reading import reading

Tensors = dict[str, torch.Tensor]
DEEP = "[" * 100_000 + "]" * 100_000
UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(tiny: Callable[..., str], tmp_path: Path) -> Path:
    """A whole model with a tokenizer, to be damaged."""
    path = tmp_path / "model"
    shutil.copytree(tiny("llama"), path)
    byte_tokenizer().save_pretrained(path)
    return path


def stated(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def stored(folder: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def text(folder: Path) -> tuple[int, ...]:
    engine = hs.load(folder, "none", dtype="float32", max_length=64, pacing="fixed")
    return engine.generate([5, 6, 7], hs.Sampling(max_tokens=4, ignore_eos=True)).tokens


def refused(folder: Path) -> HeadstartError:
    """The error, which is typed, of one line, and says what to do."""
    with pytest.raises(HeadstartError) as caught:
        hs.load(folder, "none", dtype="float32", max_length=64, pacing="fixed")
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


MISSING: dict[str, tuple[Callable[[Path], object], type[HeadstartError], str]] = {
    "nothing": (lambda f: save_file({}, f / "model.safetensors"), DamagedModel, "its files hold 0"),
    "a tensor": (lambda f: stored(f, lambda t: t.pop(UP)), DamagedModel, f"{UP} is missing"),
    "layers": (lambda f: stated(f, num_hidden_layers=5), DamagedModel, "layers.4.input_layernorm.weight is missing"),
    "most": (lambda f: stated(f, num_hidden_layers=20), DamagedModel, "its config means a model of"),
    "untied": (lambda f: stored(f, lambda t: t.pop("lm_head.weight")), DamagedModel, "lm_head.weight is missing"),
    "a width": (
        lambda f: stated(f, vocab_size=98),
        DamagedModel,
        "its config means [98, 32] (vocab_size is 98) (and 1 more)",
    ),
    "other norms": (lambda f: stated(f, model_type="qwen3"), DamagedModel, "k_norm.weight is missing"),
    "another type": (lambda f: stated(f, model_type="bert"), DamagedModel, "is missing"),
    "layers left": (lambda f: stated(f, num_hidden_layers=3), UnsupportedModel, "holds model.layers.3."),
    "a bias left": (
        lambda f: stored(f, lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(64)})),
        UnsupportedModel,
        "holds model.layers.0.self_attn.q_proj.bias",
    ),
    "scales left": (
        lambda f: stored(f, lambda t: t.update({"model.layers.0.mlp.up_proj.weight_scale": torch.ones(1)})),
        UnsupportedModel,
        "holds model.layers.0.mlp.up_proj.weight_scale",
    ),
    "codes": (
        lambda f: stored(f, lambda t: t.update({UP: t[UP].to(torch.int8)})),
        DamagedModel,
        f"{UP} is I8, and config.json names no quantisation",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_weights_and_config_must_be_of_one_model(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damage, kind, message = MISSING[name]
    damage(folder)
    error = refused(folder)
    assert isinstance(error, kind)
    assert message in error.message
    assert "LOAD REPORT" not in capfd.readouterr().err, "the one line is enough"


def test_the_same_for_a_draft_and_for_models_that_are_trained(tiny: Callable[..., str], folder: Path) -> None:
    stored(folder, lambda tensors: tensors.pop(UP))
    with pytest.raises(DamagedModel, match="is missing"):
        hs.load(tiny("llama"), folder, dtype="float32", max_length=64)
    config = loading.load_config(str(folder), trust_remote_code=False)
    with pytest.raises(DamagedModel, match="is missing"):
        loading.read_model(str(folder), config, torch.float32)


HARMLESS: dict[str, dict[str, torch.Tensor]] = {
    "frequencies": {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)},
    "layers that guess further tokens": {"mtp.layers.0.fc.weight": torch.ones(3), "model.mtp.0.w": torch.ones(3)},
    "other heads": {"v_head.summary.weight": torch.ones(3), "medusa_head.0.0.linear.weight": torch.ones(3)},
    "scales of a cache": {
        "model.layers.0.self_attn.k_scale": torch.ones(1),
        "model.layers.0.self_attn.attn.v_scale": torch.ones(1),
    },
    "zeros": {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_stands_beside_a_model_changes_nothing(name: str, folder: Path) -> None:
    whole = text(folder)
    stored(folder, lambda tensors: tensors.update(HARMLESS[name]))
    assert text(folder) == whole


def test_a_layer_after_the_last_may_be_one_that_guesses_further_tokens(folder: Path) -> None:
    whole = text(folder)
    stored(folder, lambda tensors: tensors.update({"model.layers.4.enorm.weight": torch.ones(3)}))
    refused(folder)
    stated(folder, num_nextn_predict_layers=1)
    assert text(folder) == whole


def test_tied_weights_are_not_missing(tiny: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "tied"
    shutil.copytree(tiny("gemma3"), path)
    assert "lm_head.weight" not in load_file(path / "model.safetensors")
    text(path)


def cut(folder: Path, share: float) -> None:
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])


def flipped(folder: Path, at: int) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[at] ^= 128
    file.write_bytes(bytes(content))


def overlapping(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + size])
    head[UP]["data_offsets"] = head["model.norm.weight"]["data_offsets"]
    new = json.dumps(head).encode()
    file.write_bytes(struct.pack("<Q", len(new)) + new + content[8 + size :])


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: cut(f, 0), lambda f: cut(f, 0.3), lambda f: cut(f, 0.99), lambda f: flipped(f, 0),
        lambda f: flipped(f, 7), lambda f: flipped(f, 20), overlapping,
    ],
)  # fmt: skip
def test_damaged_files_of_weights(damage: Callable[[Path], None], folder: Path) -> None:
    damage(folder)
    error = refused(folder)
    assert isinstance(error, DamagedModel)
    assert error.__cause__ is not None, "the original is kept"


CONFIGS: list[dict[str, Any]] = [
    {"num_hidden_layers": 0}, {"num_hidden_layers": 2**40}, {"num_hidden_layers": "x"}, {"num_attention_heads": 0},
    {"num_key_value_heads": 0}, {"num_key_value_heads": 3}, {"hidden_size": -32}, {"hidden_size": 2**62},
    {"intermediate_size": -1}, {"intermediate_size": 2**62}, {"vocab_size": 0}, {"vocab_size": 2**62},
    {"max_position_embeddings": -5}, {"head_dim": 0}, {"dtype": "evil"}, {"hidden_act": "evil"}, {"hidden_act": 5},
    {"rope_parameters": {"rope_type": "evil"}}, {"rope_parameters": 5}, {"quantization_config": 5},
    {"quantization_config": {"quant_method": "gptq", "bits": "x"}},
    {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": 5}}},
    {"model_type": []}, {"pad_token_id": 10**9}, {"eos_token_id": {"a": 1}}, {"num_labels": 10**12},
    {"text_config": {"num_hidden_layers": 2**40}}, {"return_dict": False}, {"layer_types": ["full_attention"] * 3},
]  # fmt: skip


@pytest.mark.parametrize("fields", CONFIGS, ids=str)
def test_configs_of_wrong_shapes_and_absurd_sizes(fields: dict[str, Any], folder: Path) -> None:
    """None of them takes time or memory either."""
    stated(folder, **fields)
    refused(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["", "[]", "5", "{", DEEP, '{"a": ' + DEEP + "}"], ids=lambda text: text[:8])
def test_json_files_that_are_something_else(name: str, content: str, folder: Path) -> None:
    (folder / name).write_text(content)
    refused(folder)


def tokenizer(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = json.loads((folder / "tokenizer.json").read_text())
        edit(found)
        (folder / "tokenizer.json").write_text(json.dumps(found))

    return damage


def no_id(found: dict[str, Any]) -> None:
    single = [{"SpecialToken": {"id": "nobody", "type_id": 0}}]
    found["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}


@pytest.mark.parametrize(
    "damage",
    [
        tokenizer(lambda found: found.pop("model")),
        tokenizer(lambda found: found.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}})),
        tokenizer(no_id),
    ],
    ids=["no model", "a pattern", "a panic"],
)
def test_damaged_tokenizers(damage: Callable[[Path], None], folder: Path) -> None:
    damage(folder)
    assert isinstance(refused(folder), UnsupportedModel)


@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": []}', '{"metadata": {}, "weight_map": {}}', DEEP])
def test_damaged_indices(index: str, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    refused(folder)


def test_the_boundary_keeps_the_cause_and_lets_interrupts_through() -> None:
    for error in (KeyError("a"), RecursionError(), TypeError("b"), RuntimeError("c\nd")):
        with pytest.raises(UnsupportedModel) as caught, reading("model"):
            raise error
        assert caught.value.__cause__ is error
        assert type(error).__name__ in caught.value.message
    with pytest.raises(ModelNotFound), reading("model"):
        raise FileNotFoundError("a")
    with pytest.raises(KeyboardInterrupt), reading("model"):
        raise KeyboardInterrupt
    with pytest.raises(SystemExit), reading("model"):
        raise SystemExit
