"""`drafter/` is right for every reader: layers, biases, names and numbers, from every form that there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import eagle_heads
from transformers import AutoConfig

from headstart.base.errors import PickleCheckpoint, UnsupportedModel
from headstart.fleet.export.drafter_folder import write_drafter
from headstart.fleet.export.subject import Drafter, Subject, Target, find, read_json
from headstart.model.heads import eagle_checkpoint
from headstart.model.heads.stored_tensors import SCALE, rounded

TOP = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(eagle_heads.target(tmp_path_factory.mktemp("target")))


def subject(target: Path, head: Path, kind: Any = "eagle3") -> Subject:
    found = Target(str(target), str(target), target, None, AutoConfig.from_pretrained(target))
    return Subject(found, Drafter(str(head), kind, str(head), read_json(head / "config.json")))


def written(folder: Path, target: Path, form: str, **more: Any) -> tuple[Path, dict[str, Any]]:
    head = eagle_heads.write(folder / "head", form, **more)
    out = folder / "drafter"
    write_drafter(out, subject(target, head))
    return out, json.loads((out / "config.json").read_text())


@pytest.mark.parametrize("form", ["eagle3", "speculators"])
def test_every_reader_finds_the_same_layers(form: str, target: Path, tmp_path: Path) -> None:
    more = {"eagle_config": {TOP: [0, 1, 2]}} if form == "eagle3" else {TOP: [1, 2, 3]}
    out, config = written(tmp_path, target, form, draft_vocab=11, **more)
    vllm_1 = config.get(TOP) or config["eagle_config"][TOP]
    vllm_2 = config.get(TOP)
    sglang = [i + 1 for i in config["eagle_config"][TOP]]
    ours = eagle_checkpoint.read(out, AutoConfig.from_pretrained(target)).config.layer_ids
    assert vllm_1 == vllm_2 == sglang == list(ours) == [1, 2, 3]


@pytest.mark.parametrize("form", ["eagle3", "speculators"])
def test_the_form_is_flat_and_the_numbers_are_kept(form: str, target: Path, tmp_path: Path) -> None:
    out, config = written(tmp_path, target, form, draft_vocab=11)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert not {"transformer_layer_config", "speculators_config", "speculators_model_type"} & set(config)
    assert config["norm_before_residual"] is False
    assert config["draft_vocab_size"] == 11
    assert config["hidden_size"] == eagle_heads.D
    before, after = load_file(tmp_path / "head" / "model.safetensors"), load_file(out / "model.safetensors")
    assert {name for name in after if name.startswith("layers.")} == set()
    assert any(name.startswith("midlayer.self_attn") for name in after)
    renamed = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in before.items()}
    assert set(renamed) == set(after)
    assert all(torch.equal(renamed[name], after[name]) for name in after)


@pytest.mark.parametrize("form", ["eagle3", "speculators"])
def test_a_parallel_head_is_written_as_vllm_reads_it(form: str, target: Path, tmp_path: Path) -> None:
    """Its layers by number, the mask under every name that engines look for, and nothing that vLLM would raise on."""
    out, config = written(tmp_path, target, form, draft_vocab=11, layers=2, masked=True, rank=3)
    assert config["num_hidden_layers"] == 2
    assert {config[name] for name in ("mask_token_id", "pard_token", "ptd_token_id")} == {eagle_heads.MASK}
    assert not {"selector_rank", "selector_top_k", "norm_output", "speculators_model_type"} & set(config)
    stored = load_file(out / "model.safetensors")
    assert stored["mask_hidden"].shape == (1, 1, 3 * eagle_heads.D)
    assert {name.split(".")[1] for name in stored if name.startswith("layers.")} == {"0", "1"}
    assert not any("midlayer" in name or "selector" in name for name in stored)
    ours = eagle_checkpoint.read(out, AutoConfig.from_pretrained(target)).config
    assert (ours.parallel, ours.layers, ours.selector_rank) == (True, 2, 0)


def test_what_a_head_was_trained_with_is_said(target: Path, tmp_path: Path) -> None:
    _, config = written(tmp_path, target, "speculators", norm_before_residual=True)
    assert config["norm_before_residual"] is True


def test_a_draft_token_outside_the_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "head", "eagle3", draft_vocab=11)
    stored = load_file(head / "model.safetensors")
    stored["d2t"] += 23
    save_file(stored, head / "model.safetensors")
    with pytest.raises(UnsupportedModel, match="d2t"):
        write_drafter(tmp_path / "drafter", subject(target, head))


def test_a_head_of_another_target_is_refused(target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "head", "eagle3", vocab=29)
    with pytest.raises(UnsupportedModel, match="vocab_size is 29 there and 23 here"):
        write_drafter(tmp_path / "drafter", subject(target, head))


def test_a_pickle_is_refused(target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "head", "eagle3")
    (head / "model.safetensors").rename(head / "pytorch_model.bin")
    with pytest.raises(PickleCheckpoint):
        write_drafter(tmp_path / "drafter", subject(target, head))


@pytest.mark.parametrize("prefix", ["", "medusa_heads.", "medusa_head."])
def test_medusa_says_what_vllm_must_know(prefix: str, target: Path, tmp_path: Path) -> None:
    head, out = tmp_path / "head", tmp_path / "drafter"
    head.mkdir()
    d, v = eagle_heads.D, 23
    tensors = {}
    for number in range(2):
        tensors |= {
            f"{prefix}{number}.0.linear.weight": torch.randn(d, d),
            f"{prefix}{number}.0.linear.bias": torch.randn(d),
            f"{prefix}{number}.1.weight": torch.randn(v, d),
        }
    save_file(tensors, head / "medusa_lm_head.safetensors")
    # Two counts of one meaning, and a wrong one: vLLM would take whichever comes last
    raw = {"medusa_num_heads": 5, "num_medusa_layers": 7, "base_model_name_or_path": "x"}
    (head / "config.json").write_text(json.dumps(raw))
    write_drafter(out, subject(target, head, "medusa"))
    config = json.loads((out / "config.json").read_text())
    counts = {name: value for name, value in config.items() if "num" in name and ("heads" in name or "layers" in name)}
    assert counts == {"medusa_num_heads": 2, "medusa_num_layers": 1}
    assert config["medusa_fc_bias"] is True
    assert (config["hidden_size"], config["vocab_size"]) == (d, v)
    assert set(load_file(out / "model.safetensors")) == {name.removeprefix(prefix) for name in tensors}


@pytest.mark.parametrize(("kind", "file"), [("eagle3", "model"), ("medusa", "medusa_lm_head")])
def test_a_head_on_int8_is_written_in_numbers(kind: str, file: str, target: Path, tmp_path: Path) -> None:
    """Other engines know nothing of codes and scales."""
    if kind == "eagle3":
        head = eagle_heads.write(tmp_path / "head", "eagle3")
    else:
        head = tmp_path / "head"
        head.mkdir()
        tensors = {
            "0.0.linear.weight": torch.randn(eagle_heads.D, eagle_heads.D),
            "0.1.weight": torch.randn(23, eagle_heads.D),
        }
        save_file({**tensors, "0.0.linear.bias": torch.zeros(eagle_heads.D)}, head / "medusa_lm_head.safetensors")
        (head / "config.json").write_text(json.dumps({"medusa_num_heads": 1}))
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    stored = load_file(head / f"{file}.safetensors")
    save_file(rounded(stored), head / f"{file}.safetensors")
    write_drafter(tmp_path / "drafter", subject(target, head, kind))
    written = load_file(tmp_path / "drafter" / "model.safetensors")
    assert not any(name.endswith(SCALE) or tensor.dtype == torch.int8 for name, tensor in written.items())
    for name, tensor in written.items():
        if tensor.is_floating_point():
            assert tensor.dtype == torch.bfloat16
            numbers = stored[name].float()
            assert (tensor.float() - numbers).abs().max() <= numbers.abs().max() / 100


def test_what_was_rounded_is_not_rounded_again() -> None:
    """As where a head is installed that was installed before."""
    once = rounded({"0.0.linear.weight": torch.randn(8, 8), "0.0.linear.bias": torch.randn(8)})
    assert once["0.0.linear.weight"].dtype == torch.int8
    twice = rounded({name: once[name] for name in sorted(once, reverse=True)})
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_floats_that_were_not_rounded_keep_their_dtype(target: Path, tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    tensors = {
        "0.0.linear.weight": torch.randn(eagle_heads.D, eagle_heads.D),
        "0.0.linear.bias": torch.zeros(eagle_heads.D),
    }
    save_file({**tensors, "0.1.weight": torch.randn(23, eagle_heads.D)}, head / "medusa_lm_head.safetensors")
    (head / "config.json").write_text(json.dumps({"medusa_num_heads": 1, "dtype": "bfloat16"}))
    write_drafter(tmp_path / "drafter", subject(target, head, "medusa"))
    assert {tensor.dtype for tensor in load_file(tmp_path / "drafter" / "model.safetensors").values()} == {
        torch.float32
    }


def test_a_draft_model_is_copied_whole(tmp_path: Path) -> None:
    found = find("bundled", "bundled")
    assert write_drafter(tmp_path / "drafter", found) is None
    names = {file.name for file in (tmp_path / "drafter").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


@pytest.mark.parametrize(("name", "kind"), [
    ("eagle3", "eagle3"), ("medusa", "medusa"), ("bundled", "draft_model"), ("ngram", "ngram"), ("suffix", "suffix"),
])  # fmt: skip
def test_names_are_those_of_every_command(name: str, kind: str) -> None:
    found = find("bundled", name)
    assert found.drafter.kind == kind
    assert found.target.layers == 8
    assert (found.drafter.local is None) == (kind in ("ngram", "suffix"))
