"""Heads as GGUF files: names, keys, shapes and numbers as llama.cpp's sources ask for them, read by the gguf package;
what llama.cpp has no form for; and the same head read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support import dflash_heads, eagle_heads, gguf_files
from support.eagle_heads import DIM, HEADS, INNER, KV_HEADS, MASK, D
from support.parity import PAIR
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.commands.cli import app
from headstart.fleet.export.gguf_drafter import write_drafter
from headstart.fleet.export.manifest import read_manifest
from headstart.fleet.export.subject import find
from headstart.loading.choice import choose
from headstart.model.heads import dflash_checkpoint, eagle_checkpoint
from headstart.model.heads.gguf_heads import without_form
from headstart.model.loading import load_config

V = 23
TOKENS = {"ggml.model": "gpt2", "ggml.pre": "gpt-2", "ggml.tokens": [f"t{i}" for i in range(V)], "ggml.merges": ["t 1"]}
LAYER = {"attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("targets")
    model = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root, vocab=V))
    return gguf_files.write(root / "target.gguf", model, tokenizer=TOKENS)


def written(target: Path, head: Path, out: Path, dtype: str = "auto") -> gguf.GGUFReader:
    assert write_drafter(out, find(str(target), str(head), "llama.cpp"), dtype)
    return gguf.GGUFReader(out / "head.gguf")


def said(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


def numbers(reader: gguf.GGUFReader) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def run(*words: str | Path) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["export", "--engine", "llama.cpp", *map(str, words)])


@pytest.mark.parametrize("form", ["eagle3", "speculators"])
def test_an_eagle3_head(form: str, target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "h", form, vocab=V, draft_vocab=9, norm_before_residual=True)
    reader = written(target, head, tmp_path / "out")
    keys, found = said(reader), numbers(reader)
    layer = "midlayer" if form == "eagle3" else "layers.0"
    given = load_file(head / "model.safetensors")
    assert set(found) == {"fc.weight", "output.weight", "output_norm.weight", "blk.0.attn_norm_2.weight", "d2t"} | {
        f"blk.0.{name}.weight" for name in LAYER
    }
    assert found["d2t"].dtype == np.int64
    assert found["d2t"].tolist() == (given["d2t"] + torch.arange(9)).tolist()
    assert np.array_equal(found["fc.weight"], given["fc.weight"].numpy())
    assert np.array_equal(found["blk.0.attn_v.weight"], given[f"{layer}.self_attn.v_proj.weight"].numpy())
    assert np.array_equal(found["blk.0.attn_norm.weight"], given[f"{layer}.input_layernorm.weight"].numpy())
    assert np.array_equal(found["blk.0.attn_norm_2.weight"], given[f"{layer}.hidden_norm.weight"].numpy())
    queries = given[f"{layer}.self_attn.q_proj.weight"].numpy()
    for row in range(HEADS * DIM):  # pairs of a rotation lie beside each other there
        one, of = divmod(row, DIM)
        assert np.array_equal(
            found["blk.0.attn_q.weight"][one * DIM + 2 * (of % (DIM // 2)) + of // (DIM // 2)], queries[row]
        )
    assert keys["general.architecture"] == "eagle3"
    below = {key.removeprefix("eagle3."): value for key, value in keys.items() if key.startswith("eagle3.")}
    assert below.pop("attention.layer_norm_rms_epsilon") == pytest.approx(1e-5)
    assert below == {
        "block_count": 1, "context_length": eagle_heads.CONTEXT, "embedding_length": D, "feed_forward_length": INNER,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM,
        "attention.value_length": DIM, "rope.dimension_count": DIM, "rope.freq_base": 5000.0, "vocab_size": V,
        "target_layers": [1, 2, 3], "target_hidden_size": D, "norm_before_residual": True, "norm_before_fc": False,
    }  # fmt: skip
    theirs = said(gguf.GGUFReader(target))
    assert {key: keys[key] for key in theirs if key.startswith("tokenizer.")} == {
        key: value for key, value in theirs.items() if key.startswith("tokenizer.")
    }


@pytest.mark.parametrize(
    ("form", "kind", "draft_vocab", "name"),
    [("dflash", None, None, "dflash"), ("z-lab", None, None, "dflash"), ("dspark", "vanilla", 9, "dspark")],
)
def test_a_block_head(
    form: str, kind: str | None, draft_vocab: int | None, name: str, target: Path, tmp_path: Path
) -> None:
    head = dflash_heads.write(tmp_path / "h", form, vocab=V, draft_vocab=draft_vocab, kind=kind)
    assert find(str(target), str(head), "llama.cpp").drafter.kind == name
    reader = written(target, head, tmp_path / "out")
    keys, found = said(reader), numbers(reader)
    given = load_file(head / "model.safetensors")
    of_layers = {f"blk.{i}.{each}.weight" for i in range(2) for each in LAYER | {"attn_q_norm", "attn_k_norm"}}
    more = {"output.weight", "d2t", "markov_w1.weight", "markov_w2.weight"} if draft_vocab else set()
    assert set(found) == {"fc.weight", "enc.output_norm.weight", "output_norm.weight"} | of_layers | more
    assert np.array_equal(found["enc.output_norm.weight"], given["hidden_norm.weight"].numpy())
    for each, theirs in (
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.up_proj", "ffn_up"),
    ):
        assert np.array_equal(found[f"blk.1.{theirs}.weight"], given[f"layers.1.{each}.weight"].numpy())
    assert keys["dflash.target_layers"] == list(dflash_heads.INPUTS)
    assert keys["dflash.block_size"] == dflash_heads.BLOCK
    assert keys["tokenizer.ggml.mask_token_id"] == MASK
    assert keys["dflash.sample_from_anchor"] is (name == "dspark")
    assert keys["dflash.attention.causal"] is False
    assert keys["dflash.has_confidence_head"] is False  # nothing of it is written


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gains_stay_in_float32(dtype: str, target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "h", "eagle3", vocab=V)
    reader = written(target, head, tmp_path / "out", dtype)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["fc.weight"] == {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    assert {kinds[name] for name in kinds if "norm" in name} == {"F32"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "eagle1"}, "form of EAGLE-1"),
        ({"layers": 2, "num_hidden_layers": 2}, "2 layers"),
        ({"bias": True}, "fc.bias"),
        ({"norm_output": True}, "norm_output"),
        ({"masked": True, "mask_token_id": MASK}, "masked rows"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 8}, "window of 8"),
        (
            {
                "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.5},
                "max_position_embeddings": 64,
            },
            "attention_factor",
        ),
    ],
)
def test_what_llamacpp_has_no_form_for(changes: dict[str, Any], words: str, target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "h", changes.pop("form", "eagle3"), vocab=V, **changes)
    assert words in without_form(eagle_checkpoint.read(head, load_config(str(target), trust_remote_code=False)))


@pytest.mark.parametrize(("kind", "bias", "words"), [("gated", False, "'gated'"), (None, True, "bias")])
def test_what_its_blocks_have_no_form_for(
    kind: str | None, bias: bool, words: str, target: Path, tmp_path: Path
) -> None:
    head = dflash_heads.write(tmp_path / "h", "dspark" if kind else "dflash", vocab=V, kind=kind, bias=bias)
    assert words in without_form(dflash_checkpoint.read(head, load_config(str(target), trust_remote_code=False)))


def test_a_folder_for_llama_server(target: Path, tmp_path: Path) -> None:
    head = eagle_heads.write(tmp_path / "h", "eagle3", vocab=V)
    out = tmp_path / "out"
    words = ("--no-measure", "--k", "5", "--max-model-len", "64", "--set", "threads=2")
    result = run(target, head, "-o", out, *words)
    assert result.exit_code == 0, result.output
    assert {each.name for each in out.iterdir()} == {"manifest.json", "drafter", "README.md", "serve-llama-server.sh"}
    manifest = read_manifest(out)
    assert (manifest.engine, manifest.drafter.kind, manifest.drafter.layer_ids) == ("llama.cpp", "eagle3", (1, 2, 3))
    assert set(manifest.drafter.sha256) == {"head.gguf"}
    assert set(manifest.target.sha256) == {"target.gguf"}
    script = " ".join((out / "serve-llama-server.sh").read_text().replace("\\\n", " ").split())
    for words_ in (
        f"--model {target}", "--alias target.gguf", "--ctx-size=64", "--threads=2", "--spec-type draft-eagle3",
        "--spec-draft-n-max 5", '--spec-draft-model "$here"/drafter/head.gguf',
    ):  # fmt: skip
        assert words_.replace("=", " ") in script.replace("=", " ")
    assert "serve-llama-server.sh" in result.stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("bundled", "eagle3"), "no GGUF file"),
        (("TARGET", "ngram"), "is not written for llama.cpp"),
        (("TARGET", str(PAIR / "medusa")), "is not written for llama.cpp"),
        (("TARGET", "OTHER"), "vocab_size is 24 there and 23 here"),
        (("TARGET", "BIASED"), "fc.bias"),
        (("TARGET", "HEAD", "--dynamic"), "--dynamic is for"),
    ],
)
def test_what_is_refused_leaves_nothing(words: tuple[str, ...], error: str, target: Path, tmp_path: Path) -> None:
    eagle_heads.write(tmp_path / "HEAD", "eagle3", vocab=V)
    eagle_heads.write(tmp_path / "OTHER", "eagle3", vocab=V + 1)
    eagle_heads.write(tmp_path / "BIASED", "eagle3", vocab=V, bias=True)
    places = {"TARGET": target, **{name: tmp_path / name for name in ("HEAD", "OTHER", "BIASED")}}
    result = run(*(places.get(word, word) for word in words), "-o", tmp_path / "out", "--no-measure")
    assert result.exit_code == 2
    assert error in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["eagle3", "dspark"])
def test_a_file_is_the_head_that_it_was_written_from(form: str, target: Path, tmp_path: Path) -> None:
    config = load_config(str(target), trust_remote_code=False)
    if form == "eagle3":
        rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
        head = eagle_heads.write(tmp_path / "h", form, vocab=V, draft_vocab=9, rope_scaling=rope)
        read: Any = eagle_checkpoint.read
    else:
        head = dflash_heads.write(tmp_path / "h", form, vocab=V, draft_vocab=9, kind="vanilla")
        read = dflash_checkpoint.read
    written(target, head, tmp_path / "out")
    file = tmp_path / "out" / "head.gguf"
    assert choose(str(target), str(file)).drafters[0].kind == {"eagle3": "eagle", "dspark": "dflash"}[form]
    once, again = read(head, config), read(file, config)
    left = {"name", "rope", "eps"}
    assert again.config.eps == pytest.approx(once.config.eps)  # a float32 there
    fields = [name for name in once.config.__dataclass_fields__ if name not in left]
    assert [getattr(once.config, name) for name in fields] == [getattr(again.config, name) for name in fields]
    theirs, ours = (each.config.rope.rope_parameters for each in (once, again))
    assert {name: ours[name] for name in theirs} == theirs
    assert torch.equal(once.token_ids, again.token_ids)
    for name, tensor in again.tensors.items():
        assert torch.equal(tensor, once.tensors[name].to(tensor.dtype)), name
    assert set(once.tensors) - set(again.tensors) == {"t2d"}


def test_files_that_are_no_heads(target: Path, tmp_path: Path) -> None:
    config = load_config(str(target), trust_remote_code=False)
    with pytest.raises(UnsupportedModel, match="heads are of 'eagle3'"):
        eagle_checkpoint.read(target, config)
    head = eagle_heads.write(tmp_path / "h", "eagle3", vocab=V)
    written(target, head, tmp_path / "out")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((tmp_path / "out" / "head.gguf").read_bytes()[:-5000])
    with pytest.raises(DamagedModel):
        eagle_checkpoint.read(cut, config)
