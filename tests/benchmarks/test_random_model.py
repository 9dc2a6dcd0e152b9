"""tools/random_model.py: random models of real shapes, as folders and as GGUF files."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import headstart as hs
from headstart.model.gguf import checkpoint
from headstart.model.recipes import find_recipe, recipe_of

IDS = list(range(3, 60))
HYBRIDS = (
    "lfm2-350m",
    "lfm2-1.2b",
    "qwen3.5-0.8b",
    "qwen3.5-2b",
    "granite-4-h-350m",
    "granite-4-h-1b",
    "qwen3.5-4b",
    "falcon-h1-0.5b",
)
MIXTURES = ("qwen3-30b-a3b", "qwen3.6-35b-a3b", "lfm2-8b-a1b", "granite-4-tiny", "gpt-oss-20b")
SHAPES = (
    "llama-3.2-1b", "qwen3-0.6b", "qwen3-1.7b", "gemma-3-1b", "gemma-4-e2b", "phi-4-mini", "smollm3-3b", *HYBRIDS,
    *MIXTURES,
)  # fmt: skip
NATIVE = ("llama-3.2-1b", "qwen3-0.6b", "gemma-3-1b")
"""Shapes of families that headstart's own decoder runs, whatever else it comes to run."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "random_model.py"
    spec = importlib.util.spec_from_file_location("random_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_model"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("gemma-3-1b", 999_885_952),
        ("phi-4-mini", 3_836_021_760),
        ("smollm3-3b", 3_075_098_624),
        ("lfm2-350m", 354_483_968),
        ("lfm2-1.2b", 1_170_340_608),
        ("falcon-h1-0.5b", 521_411_104),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("granite-4-tiny", 6_939_037_248),
        ("gpt-oss-20b", 20_914_757_184),
    ],
)
def test_a_shape_has_as_many_weights_as_the_published_model(tool: ModuleType, shape: str, weights: int) -> None:
    assert sum(map(math.prod, tool.tensors_of(tool.config_of(shape)).values())) == weights


def test_gemma_4_has_the_weights_that_its_name_and_card_tell_of(tool: ModuleType) -> None:
    named = tool.tensors_of(tool.config_of("gemma-4-e2b"))
    table = math.prod(named["model.embed_tokens_per_layer.weight"])
    assert (sum(map(math.prod, named.values())) - table) / 1e9 == pytest.approx(2.3, abs=0.05)


def test_every_shape_is_tried(tool: ModuleType) -> None:
    assert set(SHAPES) == set(tool.SHAPES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_reads_the_folder(tool: ModuleType, tmp_path: Path, shape: str) -> None:
    tool.main([shape, "--tiny", "--folder", str(tmp_path)])
    model, said = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(said[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.bfloat16
    with torch.inference_mode():
        logits = model(torch.tensor([IDS])).logits.float()
    assert logits.isfinite().all()
    assert 0.05 < float(logits.std()) < 30  # neither silent nor blown up
    stored = {name: each for name, each in model.named_parameters() if each.dim() > 1}
    assert all(float(each.std()) == pytest.approx(0.02, rel=0.1) for each in stored.values())
    rows = {name: each for name, each in model.named_parameters() if each.dim() == 1 and not name.endswith(".bias")}
    norms = {float(each[0]) for each in rows.values()}
    added = {"gemma-3": {0.0}, "qwen3.5": {0.0, 1.0}, "qwen3.6": {0.0, 1.0}}
    assert norms == next((each for name, each in added.items() if shape.startswith(name)), {1.0})


@pytest.mark.parametrize("shape", SHAPES)
def test_headstart_runs_the_folder_on_the_decoder_of_its_family(tool: ModuleType, tmp_path: Path, shape: str) -> None:
    tool.main([shape, "--tiny", "--folder", str(tmp_path), "--dtype", "float32"])
    native = find_recipe(AutoConfig.from_pretrained(tmp_path)) is not None
    assert native or shape not in NATIVE
    if not native and shape == "gemma-4-e2b":
        pytest.skip("neither headstart's decoder nor, here, its modules know this family")
    engine = hs.load(str(tmp_path), "none", max_length=128)
    assert (engine.target.decoder == "fused") == native
    out = engine.generate(IDS, hs.Sampling(max_tokens=4, ignore_eos=True))
    assert out.error is None
    assert len(out.tokens) == 4
    assert engine.tokenizer.decode(engine.tokenizer("ab  c\n")["input_ids"]) == "ab  c\n"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_says_what_the_folder_says(tool: ModuleType, tmp_path: Path, shape: str) -> None:
    path = tmp_path / "model.gguf"
    config = tool.config_of(shape, tiny=True)
    for name in ("rms_norm_eps", "norm_eps", "residual_multiplier"):
        if hasattr(config, name):
            setattr(config, name, float(np.float32(getattr(config, name))))  # files hold it so
    tool.write_gguf(path, config, "F16")
    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in reader.tensors}
    wanted = sum(map(math.prod, tool.tensors_of(config).values()))
    assert sum(math.prod(s) for name, s in stored.items() if not name.startswith("rope_")) == wanted
    found = checkpoint.load_config(str(path))
    assert recipe_of(found) == recipe_of(config)
    assert found.max_position_embeddings == (2**20 if "granite" in shape else config.max_position_embeddings)
    assert found.tie_word_embeddings == config.tie_word_embeddings


def test_a_folder_with_an_mtp_head_drafts_with_it(tool: ModuleType, tmp_path: Path) -> None:
    tool.main(["qwen3.5-0.8b", "--tiny", "--mtp", "--folder", str(tmp_path)])
    engine = hs.load(str(tmp_path), "mtp", max_length=128, pacing="fixed")
    assert engine.generate(IDS, hs.Sampling(max_tokens=4, ignore_eos=True)).error is None
    with pytest.raises(SystemExit):
        tool.main(["lfm2-350m", "--tiny", "--mtp", "--folder", str(tmp_path / "other")])


def test_the_file_of_llama_turns_as_the_folder_does(tool: ModuleType, tmp_path: Path) -> None:
    """The scaling of Llama 3 stands in a tensor of the file."""
    tool.main(["llama-3.2-1b", "--tiny", "--folder", str(tmp_path), "--gguf", str(tmp_path / "m.gguf")])
    path = str(tmp_path / "m.gguf")
    model = checkpoint.load_model(path, checkpoint.load_config(path), torch.float32)
    other = AutoModelForCausalLM.from_pretrained(tmp_path)
    wanted = other.model.rotary_emb.inv_freq
    assert torch.allclose(model.model.rotary_emb.inv_freq, wanted, rtol=1e-4)
    plain = 500000.0 ** -(torch.arange(0, 64, 2) / 64)
    assert not torch.allclose(wanted, plain, rtol=0.5)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        pytest.param(shape, kind, marks=() if (row + column) % 6 == 0 else pytest.mark.slow)
        for row, shape in enumerate(["llama-3.2-1b", "qwen3-0.6b", "gemma-4-e2b", *HYBRIDS[1:], *MIXTURES])
        for column, kind in enumerate(["Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "F16"])
    ],
)
def test_headstart_runs_the_file_on_its_blocks(tool: ModuleType, tmp_path: Path, shape: str, kind: str) -> None:
    path = tmp_path / "model.gguf"
    tool.main([shape, "--tiny", "--gguf", str(path), "--type", kind])
    engine = hs.load(str(path), "none", max_length=128)
    assert engine.target.decoder == "fused"
    assert (engine.target.quantize is None) == (kind == "F16")
    out = engine.generate(IDS, hs.Sampling(max_tokens=4, ignore_eos=True))
    assert out.error is None
    assert engine.tokenizer.decode(engine.tokenizer("ab  c\n")["input_ids"]) == "ab  c\n"


def test_every_type_has_the_same_spread(tool: ModuleType, tmp_path: Path) -> None:
    config = tool.config_of("llama-3.2-1b", tiny=True, layers=1)
    for kind in (*tool.DRAWN, *tool.SCALES):
        path = tmp_path / f"{kind}.gguf"
        counts = tool.write_gguf(path, config, kind)
        (tensor,) = (each for each in gguf.GGUFReader(path).tensors if each.name == "blk.0.ffn_up.weight")
        assert tensor.tensor_type.name == kind
        assert counts[kind] > 10**5
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(numbers).all()
        assert float(numbers.std()) == pytest.approx(tool.SPREAD, rel=0.1), kind
        assert abs(float(numbers.mean())) < tool.SPREAD / (10 if kind.startswith("IQ") else 40), kind


def test_rows_that_are_no_multiple_of_a_block_have_another_type(tool: ModuleType) -> None:
    """As llama.cpp does it: the rows of Gemma 3 1B are 1152 wide."""
    q = tool.Q
    assert tool.fitting(q.Q4_K, (512, 1152)) == q.Q5_0
    assert tool.fitting(q.Q4_K, (512, 6912)) == q.Q4_K
    assert tool.fitting(q.Q4_0, (512, 1152)) == q.Q4_0
    assert tool.fitting(q.Q4_0, (512, 40)) == q.F16
    assert tool.fitting(q.Q4_0, (512,)) == q.F32


def test_the_mix_of_llama_cpp(tool: ModuleType, tmp_path: Path) -> None:
    """Of 16 layers, the first and the last two and every third between them have more bits, and so has the head."""
    q = tool.Q
    more = [i for i in range(16) if tool.mixed_type(f"blk.{i}.ffn_down.weight", 16, True) == q.Q6_K]
    assert more == [0, 1, 4, 7, 10, 13, 14, 15]
    assert tool.mixed_type("blk.0.attn_q.weight", 16, True) == q.Q4_K
    assert tool.mixed_type("blk.0.attn_qkv.weight", 16, True) == q.Q5_K
    assert tool.mixed_type("token_embd.weight", 16, True) == q.Q6_K
    assert tool.mixed_type("token_embd.weight", 16, False) == q.Q4_K
    assert tool.mixed_type("output.weight", 16, False) == q.Q6_K
    counts = tool.write_gguf(tmp_path / "m.gguf", tool.config_of("llama-3.2-1b", tiny=True), "Q4_K_M")
    assert counts.keys() == {"Q4_K", "Q6_K", "F32"}
    assert hs.load(str(tmp_path / "m.gguf"), "none", max_length=64).target.decoder == "fused"


def test_no_piece_is_large(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn at once does not grow with the model, and the pieces are the whole."""
    monkeypatch.setattr(tool, "AT_ONCE", 5000)
    seen = []
    rows = tool.Numbers.rows

    def watched(self: object, name: str, shape: tuple[int, ...]) -> object:
        for piece in rows(self, name, shape):
            seen.append(piece.numel())
            yield piece

    monkeypatch.setattr(tool.Numbers, "rows", watched)
    config = tool.config_of("qwen3-0.6b", tiny=True, layers=1)
    tool.write_folder(tmp_path / "folder", config)
    weights = sum(map(math.prod, tool.tensors_of(config).values()))
    assert sum(seen) == weights
    assert max(seen) <= 5000
    _, said = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not said["missing_keys"]
    assert tool.write_gguf(tmp_path / "m.gguf", config, "Q4_K")["Q4_K"] > 10**5
    assert hs.load(str(tmp_path / "m.gguf"), "none", max_length=64).target.decoder == "fused"


def test_fewer_layers_and_tokens(tool: ModuleType) -> None:
    config = tool.config_of("gemma-4-e2b", layers=10, vocabulary=300)
    assert config.layer_types == [*["sliding_attention"] * 4, "full_attention"] * 2
    assert config.num_kv_shared_layers == 5
    assert (config.vocab_size, config.vocab_size_per_layer_input) == (300, 300)
    assert tool.config_of("gemma-4-e2b").num_kv_shared_layers == 20
    assert tool.config_of("gemma-4-e2b", layers=3).num_kv_shared_layers == 0
    assert tool.config_of("smollm3-3b", layers=4).no_rope_layers == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "say where to"),
        (["--folder", "x", "--layers", "0"], "--layers must be at least 1"),
        (["--folder", "x", "--vocabulary", "257"], "--vocabulary must be at least 258"),
    ],
)
def test_wrong_lines(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        tool.main(["llama-3.2-1b", "--tiny", *line])
    assert not list(tmp_path.iterdir())
    assert message in capsys.readouterr().err


def test_nothing_is_written_over(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"mine")
    with pytest.raises(SystemExit):
        tool.main(["llama-3.2-1b", "--tiny", "--gguf", str(tmp_path / "m.gguf")])
    assert "already" in capsys.readouterr().err
    assert (tmp_path / "m.gguf").read_bytes() == b"mine"
