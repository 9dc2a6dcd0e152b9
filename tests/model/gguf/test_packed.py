"""A file runs on its own blocks: the same numbers, the same text with drafts, about the file's size in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.gguf_files import Q, random_blocks, stored_name, write
from support.tiny import ARCHITECTURES, VOCAB, random_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.loading.load import Target
from headstart.model import int4, probe
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedLinear
from headstart.model.gguf import checkpoint
from headstart.model.gguf.files import open_gguf
from headstart.model.gguf.packed import types
from headstart.model.loading import adopt
from headstart.model.native import grouping
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

pytestmark = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")

SIMPLE = (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.MXFP4)
RANDOM = (Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS)
GREEDY = hs.Sampling(max_tokens=16, temperature=0.0, ignore_eos=True, logprobs=0)
PROMPT = list(range(3, 20))
CPU = torch.device("cpu")


def wide_file(path: Path, kinds: Callable[[str], Q], *, tied: bool = True) -> Path:
    """A model of one layer, 256 wide, its matrices random blocks. kinds: of a tensor, by name."""
    config = ARCHITECTURES["llama"]()
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 256, 256, 1
    config.tie_word_embeddings = tied
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    rng, blocks = np.random.default_rng(0), {}
    rows = {"token_embd": VOCAB, "output": VOCAB, "attn_q": 64, "attn_k": 32, "attn_v": 32, "attn_output": 256}
    for name in (
        "token_embd",
        "output",
        *(f"blk.0.{each}" for each in (*list(rows)[2:], "ffn_gate", "ffn_up", "ffn_down")),
    ):
        if name == "output" and tied:
            continue
        inputs = 64 if name.endswith("attn_output") else 256
        outputs = rows.get(name.removeprefix("blk.0."), 256)
        kind = Q.Q8_0 if inputs < 256 else kinds(name)
        blocks[f"{name}.weight"] = random_blocks(rng, kind, outputs, inputs), kind
    return write(path, model, blocks=blocks)


def runner(
    path: Path, *, packed: bool = True, dtype: torch.dtype = torch.float32, decoder: str = "auto"
) -> ModelRunner:
    load = checkpoint.load_packed if packed else checkpoint.load_model
    model = adopt(load(str(path), checkpoint.load_config(str(path)), dtype))
    return ModelRunner(model, max_length=64, decoder=decoder, blocks=tuple(types(open_gguf(path))))  # type: ignore[arg-type]


def logits(of: ModelRunner, width: int = 24) -> Tensor:
    """Of 24 tokens, so many in a forward."""
    cache, ids, parts = of.new_cache(1), tuple(range(3, 27)), []
    slot = cache.acquire()
    for first in range(0, 24, width):
        parts.append(of.forward([Segment(slot, ids[first : first + width], judged=width)], cache).logits.clone())
        cache.lengths[slot] = first + width
    return torch.cat(parts)


def off(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


def test_the_logits_are_near_those_of_the_same_weights_in_floats(tmp_path: Path) -> None:
    """Rows are rounded to 8 bits, by 32, nine times in these two layers: an error of about half a percent each, which
    is all that differs. A wrong row, scale or minimum would be off by a tenth at least. Any width has the same bits."""
    for kind in SIMPLE:
        path = write(tmp_path / f"{kind.name}.gguf", random_model("llama"), kind=kind)
        packed, floats = runner(path), runner(path, packed=False)
        assert (packed.decoder, packed.width_invariant, packed.blocks) == ("fused", True, (kind.name,))
        right = logits(floats)
        assert 0 < off(logits(packed), right) < 0.04, kind.name
        for width in (1, 3, 8):
            assert torch.equal(logits(packed, width), logits(packed)), (kind.name, width)


@pytest.mark.parametrize("kind", RANDOM)
def test_types_that_the_package_gguf_cannot_round_to(kind: Q, tmp_path: Path) -> None:
    path = wide_file(tmp_path / "m.gguf", lambda _: kind)
    packed = runner(path)
    assert 0 < off(logits(packed), logits(runner(path, packed=False))) < 0.04
    assert torch.equal(logits(packed, 1), logits(packed))


@pytest.mark.parametrize(("most", "rest"), [(Q.Q4_K, Q.Q6_K), (Q.IQ4_XS, Q.Q5_K)])
def test_types_are_mixed_as_files_mix_them(most: Q, rest: Q, tmp_path: Path) -> None:
    """Other types for values, the down projection and a head of its own, as in Q4_K_M and in files of IQ4_XS. Each
    matrix takes the memory of its own type, and any width has the same bits."""
    mixed = wide_file(
        tmp_path / "m.gguf",
        lambda name: rest if name.endswith(("attn_v", "ffn_down", "output")) else most,
        tied=False,
    )
    packed = runner(mixed)
    assert packed.blocks == (most.name, rest.name, "Q8_0")
    assert 0 < off(logits(packed), logits(runner(mixed, packed=False))) < 0.04
    for width in (1, 3, 8):
        assert torch.equal(logits(packed, width), logits(packed)), width


@pytest.mark.parametrize(
    ("name", "tied"),
    [("llama", False), ("mistral", True), ("qwen2", False), ("qwen3", True), ("gemma2", False), ("gemma3", True)],
)
def test_the_modules_on_codes_are_the_twin(name: str, tied: bool, tmp_path: Path) -> None:
    """transformers' own modules on the file's codes give what they give on its floats: so names, rows, biases and
    rotation are right before any kernel runs."""
    config = ARCHITECTURES[name]()
    config.tie_word_embeddings, config.use_sliding_window = tied, False
    if name == "qwen2":
        config.layer_types, config.sliding_window = ["full_attention"] * config.num_hidden_layers, None
    if name == "llama":
        config.attention_bias = config.mlp_bias = True
    if name.startswith("gemma"):
        config.head_dim = 16
        config.layer_types = (["sliding_attention"] * 5 + ["full_attention"])[-config.num_hidden_layers :]
    if name == "gemma2":
        config.layer_types = ["sliding_attention", "full_attention"] * 2
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    least = -0.5 if name.startswith("gemma") else 0.5  # gains are counted from 1 there
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.uniform_(least, least + 1)
    path = write(tmp_path / "m.gguf", model, kind=Q.Q5_1)
    on_codes = logits(runner(path, decoder="modules"))
    torch.testing.assert_close(on_codes, logits(runner(path, packed=False, decoder="modules")), rtol=1e-4, atol=1e-4)
    assert 0 < off(logits(runner(path)), on_codes) < 0.04


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_gemma_stays_codes(name: str, tmp_path: Path) -> None:
    """Its embedding too, whose rows are multiplied by a factor and whose codes are the head's."""
    config = ARCHITECTURES[name]()
    config.hidden_size, config.intermediate_size, config.vocab_size, config.head_dim = 256, 512, 1024, 32
    config.tie_word_embeddings = True
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    path = write(tmp_path / "m.gguf", model, kind=Q.Q4_0)
    target = Target(path, dtype="float32", max_length=64)
    need = target.checkpoint.need(0, None).weights
    assert (target.runner.decoder, target.runner.blocks) == ("fused", ("Q4_0",))
    held = sum(tensor.data.nbytes for tensor in open_gguf(path).tensors.values())
    assert 0.99 * held < target.runner.memory() < 1.05 * held
    assert 0.97 * target.runner.memory() < need < 1.03 * target.runner.memory()
    packed = runner(path)
    assert 0 < off(logits(packed), logits(runner(path, packed=False))) < 0.04
    assert torch.equal(logits(packed, 1), logits(packed))


def test_no_matrix_is_ever_made_into_floats_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    model = checkpoint.load_packed(str(path), checkpoint.load_config(str(path)), torch.float32)
    assert all(parameter.dim() == 1 for parameter in model.parameters())
    layers = [each for each in model.modules() if isinstance(each, nn.Linear | nn.Embedding)]
    carried = [each for each in model.modules() if isinstance(each, GroupedLinear | GroupedEmbedding)]
    assert not layers
    assert len(carried) == 2 + 7 * model.config.num_hidden_layers
    monkeypatch.setattr("headstart.model.decoders.grouped._AT_ONCE", 160)
    most = 0
    dequantise = grouping.GroupedWeights.dequantise

    def counted(weights: Any) -> Any:
        nonlocal most
        most = max(most, weights.codes.size)
        return dequantise(weights)

    monkeypatch.setattr(grouping.GroupedWeights, "dequantise", counted)
    ModelRunner(adopt(model), max_length=64)
    assert 0 < most <= probe._DRAWS * probe.TOKENS * model.config.hidden_size  # the rows of the probe's tokens


def test_memory_is_the_files(tmp_path: Path) -> None:
    """Within a twentieth of the bytes of its tensors, as files of a type and of several types hold them; and what is
    counted beforehand is what is taken."""
    config = ARCHITECTURES["llama"]()
    config.hidden_size, config.intermediate_size, config.vocab_size = 512, 1536, 1024
    config.num_hidden_layers, config.num_attention_heads, config.head_dim = 2, 16, 32
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    files = {
        kind.name: write(tmp_path / f"{kind.name}.gguf", model, kind=kind) for kind in (Q.Q4_0, Q.Q5_1, Q.Q8_0, Q.MXFP4)
    }
    for base in (Q.Q4_K, Q.Q5_K, Q.IQ4_NL, Q.IQ4_XS):
        files[base.name] = write(tmp_path / f"{base.name}.gguf", model, blocks=as_medium(model, base))
    for kind, path in files.items():
        held = sum(tensor.data.nbytes for tensor in open_gguf(path).tensors.values())
        target = Target(path, dtype="float32", max_length=64)
        need = target.checkpoint.need(0, None).weights
        taken = target.runner.memory()
        assert 0.99 * held < taken < 1.04 * held, kind
        assert 0.97 * taken < need < 1.03 * taken, kind
        assert 7 * held < target.checkpoint.weight_bytes or kind != "Q4_0"


def as_medium(model: Any, base: Q) -> dict[str, tuple[np.ndarray, Q]]:
    """Random blocks of all matrices, as files of the kind "medium" mix them: half of the layers' values and down
    projections, and the head, have six bits."""
    rng, blocks = np.random.default_rng(0), {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            stored = stored_name(model.config, name)
            six = stored.startswith(("blk.0.attn_v", "blk.0.ffn_down", "output."))
            kind = Q.Q6_K if six else base
            blocks[stored] = random_blocks(rng, kind, *parameter.shape), kind
    return blocks


def test_a_matrix_of_floats_takes_those_it_is_joined_with_along(tmp_path: Path) -> None:
    model = random_model("llama")
    values = model.model.layers[0].self_attn.v_proj.weight.detach().half().numpy()
    blocks = {"blk.0.attn_v.weight": (values.view(np.uint8), Q.F16)}
    path = write(tmp_path / "m.gguf", model, kind=Q.Q8_0, blocks=blocks)
    loaded = checkpoint.load_packed(str(path), checkpoint.load_config(str(path)), torch.float32)
    first, second = (layer.self_attn for layer in loaded.model.layers[:2])
    assert all(type(each) is nn.Linear for each in (first.q_proj, first.k_proj, first.v_proj))
    assert isinstance(first.o_proj, GroupedLinear)
    assert isinstance(second.v_proj, GroupedLinear)
    assert 0 < off(logits(runner(path)), logits(runner(path, packed=False))) < 0.04
