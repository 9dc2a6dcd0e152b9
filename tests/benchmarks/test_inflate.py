"""benchmarks/inflate.py: a larger Llama with the same function."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headstart.model.recipes import find_recipe

SMALL = {"hidden": 32, "layers": 2, "intermediate": 48, "heads": 4, "kv_heads": 2}


@pytest.fixture(scope="module")
def inflate() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "inflate.py"
    spec = importlib.util.spec_from_file_location("inflate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["inflate"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def write_source(path: Path, *, tied: bool = True, dtype: torch.dtype = torch.bfloat16, bias: bool = False) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=SMALL["hidden"],
        num_hidden_layers=SMALL["layers"],
        intermediate_size=SMALL["intermediate"],
        num_attention_heads=SMALL["heads"],
        num_key_value_heads=SMALL["kv_heads"],
        head_dim=8,
        rms_norm_eps=1e-3,  # large enough that forgetting to scale it shows
        tie_word_embeddings=tied,
        attention_bias=bias,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.to(dtype).save_pretrained(path)
    vocabulary = {token: i for i, token in enumerate(["<unk>", *map(chr, range(32, 127))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(path)
    return path


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "larger",
    [
        {"hidden": 80},
        {"hidden": 128, "layers": 5, "intermediate": 200, "heads": 16, "kv_heads": 8},
        {"layers": 3},
        {"heads": 8, "kv_heads": 4},
        {},
    ],
)
def test_the_function_is_kept(inflate: ModuleType, tmp_path: Path, tied: bool, larger: dict[str, int]) -> None:
    source = write_source(tmp_path / "source", tied=tied)
    size = inflate.Size(**{**SMALL, **larger})
    parameters, difference = inflate.inflate_checkpoint(source, tmp_path / "out", size)
    assert difference <= 1e-4
    small = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    large = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert sum(p.numel() for p in large.parameters()) == parameters
    assert inflate.Size.of(large.config) == size
    assert large.config.inflated_from == {"name": "source", **SMALL}
    assert find_recipe(large.config) is not None, "it runs on the decoders on which its source runs"
    ids = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(large(ids).logits, small(ids).logits, atol=1e-4, rtol=0)


def test_what_is_added_is_silent_but_not_empty(inflate: ModuleType, tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    inflate.inflate_checkpoint(source, tmp_path / "out", inflate.Size(64, 3, 96, 8, 4))
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    for name, weight in weights.items():
        silent = ("embed_tokens" in name) or ("lm_head" in name) or ("o_proj" in name) or ("down_proj" in name)
        added = weight[32:] if weight.dim() == 1 else weight[weight.shape[0] // 2 :]
        if "embed_tokens" in name or "lm_head" in name:
            added = weight[:, 32:]
        assert bool((added == 0).all()) == silent, name
    assert not weights["model.layers.2.self_attn.o_proj.weight"].any()
    assert not weights["model.layers.2.mlp.down_proj.weight"].any()
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= files


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 16}, "hidden=16 is below"),
        ({"layers": 1}, "layers=1 is below"),
        ({"heads": 8}, "ratio of query"),
        ({"heads": 6, "kv_heads": 3}, "not a multiple of heads=6"),
    ],
)
def test_sizes_that_cannot_be(inflate: ModuleType, change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inflate.Size(**{**SMALL, **change}).check_from(inflate.Size(**SMALL))


def test_models_that_cannot_be(inflate: ModuleType, tmp_path: Path) -> None:
    size = inflate.Size(64, 2, 96, 8, 4)
    with pytest.raises(ValueError, match="without biases"):
        inflate.inflate_checkpoint(write_source(tmp_path / "bias", bias=True), tmp_path / "out", size)
    with pytest.raises(ValueError, match="not exact in bf16"):
        inflate.inflate_checkpoint(write_source(tmp_path / "f32", dtype=torch.float32), tmp_path / "out", size)


def test_the_command(inflate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = write_source(tmp_path / "source"), tmp_path / "out"
    sizes = ["--hidden", "64", "--layers", "3", "--intermediate", "96", "--heads", "8", "--kv-heads", "4"]
    inflate.main([str(source), str(out), *sizes])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["hidden"] == 64
    assert printed["largest_logit_difference"] <= 1e-4
    with pytest.raises(SystemExit):
        inflate.main([str(source), str(out), *sizes])
    assert "already holds a model" in capsys.readouterr().err
