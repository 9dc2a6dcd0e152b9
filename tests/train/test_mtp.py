"""Heads for targets with recurrent layers: an MTP head and an EAGLE-3 head learn, are read back, and draft exactly."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import config_of
from support.hybrids import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import UnsupportedModel
from headstart.model.heads.eagle import TensorHead, complete
from headstart.model.heads.mtp_checkpoint import has_head, read
from headstart.model.heads.stored_tensors import HeadCheckpoint
from headstart.model.recipes import recipe_of
from headstart.train import Eagle3Training, MtpTraining, train_eagle3, train_mtp
from headstart.train.harness import Material, load_target
from headstart.train.head_layer import HeadShape
from headstart.train.hidden import ModulesReader, make_reader
from headstart.train.mtp import MtpStudent, _go_on, _layer, folder_of
from headstart.train.unrolled_head import MtpHead
from headstart.train.windows import Windows

STILL: dict[str, Any] = {"matrix_rate": 1e-9, "other_rate": 1e-9}
PUBLISHED = {f"mtp.{name}.weight" for name in ("fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")} | {
    f"mtp.layers.0.{name}.weight"
    for name in (
        "input_layernorm", "post_attention_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj",
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
        "self_attn.k_norm",
    )
}  # fmt: skip
"""What the Qwen3.5 checkpoints call a head's tensors, which other engines look for."""
ASKED = hs.Sampling(max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Qwen3.5 over bytes, without a head."""
    return checkpoint(tmp_path_factory.mktemp("hybrid"), "qwen3_5", noise=0.1, chat=True)


def run(target: str | Path, output: Path, texts: Path, **more: Any) -> dict[str, Any]:
    """Options of a run of a second."""
    return {
        "target": target, "output": output, "data": (texts,), "steps": 1, "batch_size": 2, "sequence_length": 32,
        "validation": 0.2, "validation_windows": 4, "dtype": "float32", "device": "cpu", **more,
    }  # fmt: skip


def same_text(target: str | Path, plain: str | Path, drafter: str | Path) -> int:
    """Tokens drafted while the text came out as that of plain decoding."""
    drafted = hs.load(target, drafter, dtype="float32", max_length=96, pacing="fixed").generate("def f(x):", ASKED)
    assert drafted.tokens == hs.load(plain, "none", dtype="float32", max_length=96).generate("def f(x):", ASKED).tokens
    return drafted.stats.drafted


def test_a_head_is_written_into_a_checkpoint_and_drafts_exactly(hybrid: str, texts: Path, tmp_path: Path) -> None:
    begun = train_mtp(MtpTraining(**run(hybrid, tmp_path / "begun", texts, **STILL)))
    assert begun.used == (str(begun.path), "mtp")
    assert has_head(begun.path)
    assert not has_head(hybrid)
    assert same_text(begun.path, hybrid, "mtp") > 0
    assert "mtp" in hs.load(begun.path, dtype="float32", max_length=64).drafter.name
    index = json.loads((begun.path / "model.safetensors.index.json").read_text())["weight_map"]
    stored = {name for file in begun.path.glob("*.safetensors") for name in load_file(file)}
    assert index.keys() == stored
    assert {name for name, file in index.items() if file == "mtp.safetensors"} == PUBLISHED
    assert {name for name in stored if name.startswith("mtp.")} == PUBLISHED
    again = train_mtp(MtpTraining(**run(begun.path, tmp_path / "again", texts, **STILL)))  # goes on with that head
    assert again.acceptance == begun.acceptance


def test_the_head_computes_what_it_learnt_to(hybrid: str, texts: Path, tmp_path: Path) -> None:
    """The module in training and the head that drafts, on the same states and tokens, and on the head's own states."""
    noise = train_mtp(MtpTraining(**run(hybrid, tmp_path / "noise", texts, init="random", **STILL)))
    options = MtpTraining(**run(hybrid, tmp_path / "head", texts, init="random", steps=30))
    result = train_mtp(options)
    assert result.acceptance.kl < noise.acceptance.kl - 0.1
    target, tokenizer = load_target(options, torch.device("cpu"))
    windows = Windows.plain(torch.randint(256, (3, 32)).int())
    material = Material(target, tokenizer, windows, windows, torch.device("cpu"), torch.float32)
    begun = MtpTraining(**run(hybrid, tmp_path / "none", texts, begin_with=result.path))
    trained = MtpStudent(begun, material).head
    assert isinstance(trained, MtpHead)
    with torch.no_grad():  # gains that are far from 1 show an offset that is missed
        stored = read(result.path, AutoModelForCausalLM.from_pretrained(result.path).config)
        table = target.get_input_embeddings().weight
        ids, states = torch.randint(256, (10,)), torch.randn(10, table.shape[1])
        weights = complete(
            stored,
            embedding=table,
            head=target.get_output_embeddings().weight,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        made = TensorHead(weights, 64)
        first = made.read(ids.tolist(), states)
        (wanted,) = trained.unroll(states[None], table[ids][None], 1)
        wanted = trained.norm(wanted)[0]
    assert (first.states - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_an_older_head_is_replaced(hybrid: str, texts: Path, tmp_path: Path) -> None:
    """Also where it lies in one file with the model, whose other tensors stay as they are."""
    first = train_mtp(MtpTraining(**run(hybrid, tmp_path / "first", texts, **STILL)))
    joined = tmp_path / "joined"
    joined.mkdir()
    for file in first.path.glob("*.json"):
        if "index" not in file.name and file.name != "provenance.json":
            (joined / file.name).write_bytes(file.read_bytes())
    model = load_file(first.path / "model.safetensors")
    save_file(model | load_file(first.path / "mtp.safetensors"), joined / "model.safetensors", {"format": "pt"})
    anew = train_mtp(MtpTraining(**run(joined, tmp_path / "anew", texts, init="random")))
    kept = load_file(anew.path / "model.safetensors")
    assert kept.keys() == model.keys()
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.items())
    heads = [load_file(each.path / "mtp.safetensors") for each in (first, anew)]
    assert heads[0].keys() == heads[1].keys()
    assert not torch.equal(heads[0]["mtp.fc.weight"], heads[1]["mtp.fc.weight"])


def test_a_family_without_such_heads_is_refused(target: Path, texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="checkpoints of llama hold no MTP head"):
        train_mtp(MtpTraining(**run(target, tmp_path / "head", texts)))


def test_a_head_with_experts_is_not_trained() -> None:
    config = config_of("qwen3_5_moe_text")
    with pytest.raises(UnsupportedModel, match="hold no MTP head that headstart can train"):
        _layer(recipe_of(config), config)


def test_what_no_head_can_be_written_into_or_begun_from_is_refused(hybrid: str, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModel, match="is a GGUF file"):
        folder_of(MtpTraining(**run(tmp_path / "model.gguf", tmp_path / "head", texts)))
    begun: Any = HeadCheckpoint(SimpleNamespace(name="other"), {}, None)
    shape = HeadShape(
        hidden=16, intermediate=24, heads=4, kv_heads=2, head_dim=4, draft_vocab=11, rope_theta=100.0, eps=1e-5
    )
    config = AutoConfig.from_pretrained(hybrid)
    layer = _layer(recipe_of(config), config.get_text_config())
    with pytest.raises(UnsupportedModel, match="other has no embedding_norm"):
        _go_on(MtpHead(shape), begun, layer)


@pytest.mark.parametrize(
    "kind", ["qwen3_5", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lfm2", "granite4h"))]
)
def test_an_eagle3_head_learns_from_a_hybrid(kind: str, texts: Path, tmp_path: Path) -> None:
    target = checkpoint(tmp_path, kind, noise=0.1, chat=True)
    options = Eagle3Training(**run(target, tmp_path / "head", texts, format="both"))
    result = train_eagle3(options)
    assert same_text(target, target, result.path) > 0
    assert same_text(target, target, result.path / "speculators") > 0
    # its states are those of transformers' modules, which run each recurrence in chunks
    frozen, _ = load_target(options, torch.device("cpu"))
    own = make_reader(frozen, target, 32, device=torch.device("cpu"), dtype=torch.float32, quantize=None)
    assert not isinstance(own, ModulesReader)
    ids = torch.randint(256, (2, 32))
    for found, wanted in zip(own.read(ids, range(4)), ModulesReader(frozen).read(ids, range(4)), strict=True):
        assert (found - wanted).abs().max() < 1e-4 * (wanted.max() - wanted.min())
