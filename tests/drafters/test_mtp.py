"""MTP heads: read from the target's own checkpoint, computed as its family's modules would, and drafting exactly."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, p_value
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm, Qwen3_5TextRotaryEmbedding

import headstart as hs
from headstart.base.errors import UnsupportedModel
from headstart.model import native
from headstart.model.heads.eagle import Head, TensorHead, complete
from headstart.model.heads.eagle_fused import FusedHead
from headstart.model.heads.mtp_checkpoint import has_head, read, shortlist

VOCAB = 97
needs_kernels = pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")


def config(vocab: int = VOCAB) -> Qwen3_5TextConfig:
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2]}
    made = Qwen3_5TextConfig(
        vocab_size=vocab, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, rms_norm_eps=0.1, linear_key_head_dim=16, linear_value_head_dim=32,
        linear_num_key_heads=2, linear_num_value_heads=4, max_position_embeddings=256, tie_word_embeddings=False,
        rope_parameters={**rope, "mrope_interleaved": True}, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    made.mtp_num_hidden_layers = 1
    made.mtp_use_dedicated_embeddings = False
    return made


class Oracle:
    """The head by transformers' own modules of one layer."""

    def __init__(self, of: Qwen3_5TextConfig) -> None:
        torch.manual_seed(3)
        self.config = of
        self.layer = Qwen3_5DecoderLayer(of, 3).eval()  # a layer with full attention
        self.fc = torch.nn.Linear(2 * of.hidden_size, of.hidden_size, bias=False)
        self.norms = {n: Qwen3_5RMSNorm(of.hidden_size, eps=of.rms_norm_eps) for n in ("embedding", "hidden", "out")}
        self.rotary = Qwen3_5TextRotaryEmbedding(of)
        with torch.no_grad():
            for module in (self.layer, self.fc, *self.norms.values()):
                for parameter in module.parameters():
                    parameter.copy_(torch.randn_like(parameter) * 0.2)

    def tensors(self) -> dict[str, Tensor]:
        found = {f"mtp.layers.0.{name}": tensor for name, tensor in self.layer.state_dict().items()}
        found["mtp.fc.weight"] = self.fc.weight.detach()
        names = {"embedding": "mtp.pre_fc_norm_embedding", "hidden": "mtp.pre_fc_norm_hidden", "out": "mtp.norm"}
        return found | {f"{names[name]}.weight": norm.weight.detach() for name, norm in self.norms.items()}

    @torch.no_grad()
    def states(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """embedded, hidden [n, d]: of the tokens after the states, and the states; returns [n, d]."""
        x = self.fc(torch.cat((self.norms["embedding"](embedded), self.norms["hidden"](hidden)), -1))[None]
        n = x.shape[1]
        turns = self.rotary(x, torch.arange(n)[None, None].expand(3, 1, n))
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        self.layer.self_attn.config._attn_implementation = "eager"
        return self.norms["out"](self.layer(x, position_embeddings=turns, attention_mask=mask))[0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Oracle]:
    return written(tmp_path_factory.mktemp("qwen"), config())


def written(folder: Path, of: Qwen3_5TextConfig) -> tuple[Path, Any, Oracle]:
    """A tiny Qwen3.5 with its head, as published: one file of weights."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(of).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    oracle = Oracle(of)
    save_file(
        {**load_file(folder / "model.safetensors"), **oracle.tensors()}, folder / "model.safetensors", {"format": "pt"}
    )
    return folder, model, oracle


def head_of(folder: Path, model: Any, ids: Tensor | None = None, kind: type[Head] = TensorHead) -> Head:
    output = model.lm_head.weight.detach()
    found = complete(
        read(folder, model.config, token_ids=ids),
        embedding=model.get_input_embeddings().weight.detach(),
        head=output if ids is None else output[ids],
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return kind(found, 128)


@pytest.mark.parametrize("kind", [TensorHead, pytest.param(FusedHead, marks=needs_kernels)])
def test_a_head_computes_what_its_familys_modules_do(checkpoint: tuple[Path, Any, Oracle], kind: type[Head]) -> None:
    folder, model, oracle = checkpoint
    hidden, tokens = torch.randn(20, 64), torch.randint(VOCAB, (20,)).tolist()
    embedded = F.embedding(torch.tensor(tokens), model.get_input_embeddings().weight.detach())
    states = oracle.states(embedded, hidden)
    found = head_of(folder, model, kind=kind).read(tokens, hidden)
    wanted = states @ model.lm_head.weight.detach().T
    spread = wanted.max() - wanted.min()
    assert (found.states - states).abs().max() < 1e-5 * (states.max() - states.min())
    assert (found.logits - wanted).abs().max() < 1e-5 * spread


def test_a_shortlist_guesses_a_part_of_the_vocabulary(checkpoint: tuple[Path, Any, Oracle]) -> None:
    folder, model, _ = checkpoint
    ids = shortlist(VOCAB, 32, {2, 90})
    assert ids is not None
    assert ids.tolist() == [*range(32), 90]
    hidden, tokens = torch.randn(5, 64), torch.randint(VOCAB, (5,)).tolist()
    whole, part = head_of(folder, model).read(tokens, hidden), head_of(folder, model, ids).read(tokens, hidden)
    assert torch.allclose(whole.logits[:, ids], part.logits, atol=1e-5)
    assert shortlist(VOCAB, 60, set()) is None


@pytest.mark.parametrize("tree", ["none", "mixed"])
def test_the_text_is_that_of_plain_decoding(checkpoint: tuple[Path, Any, Oracle], tree: str) -> None:
    folder, _, _ = checkpoint
    prompt = list(range(3, 40))
    asked = hs.Sampling(max_tokens=40, ignore_eos=True)
    wanted = hs.load(folder, drafter="none", dtype="float32", max_length=128).generate(prompt, asked)
    made = hs.load(folder, drafter="mtp", draft_tree=tree, dtype="float32", max_length=128, pacing="fixed")
    found = made.generate(prompt, asked)
    assert found.tokens == wanted.tokens
    assert found.stats.drafted > 0


@pytest.mark.parametrize("rule", ["exact", pytest.param("coupled", marks=pytest.mark.slow)])
def test_sampled_text_follows_the_targets_distribution(tmp_path: Path, rule: Any) -> None:
    folder, _, _ = written(tmp_path, config(vocab=8))
    engine = hs.load(
        folder, drafter="mtp", dtype="float32", max_length=32, max_batch_size=50, rule=rule, num_speculative_tokens=3,
        pacing="fixed",
    )  # fmt: skip
    asked = [hs.Sampling(max_tokens=TOKENS + 2, temperature=1.0, seed=seed, ignore_eos=True) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, asked)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(str(folder), 1.0, 1.0)) > 1e-3
    accepted = sum(out.stats.accepted for out in outs)
    assert 0 < accepted < sum(out.stats.drafted for out in outs)


def test_auto_takes_the_head_of_the_checkpoint(checkpoint: tuple[Path, Any, Oracle]) -> None:
    folder, _, _ = checkpoint
    assert has_head(folder)
    assert "mtp" in hs.load(folder, dtype="float32", max_length=64).drafter.name


def test_a_target_without_a_head_is_refused(checkpoint: tuple[Path, Any, Oracle], tmp_path: Path) -> None:
    folder, model, _ = checkpoint
    stated = json.loads((folder / "config.json").read_text())
    stated["mtp_num_hidden_layers"] = 0
    (tmp_path / "config.json").write_text(json.dumps(stated))
    assert not has_head(tmp_path)
    model.config.mtp_num_hidden_layers, kept = 0, model.config.mtp_num_hidden_layers
    try:
        with pytest.raises(UnsupportedModel, match="holds no MTP head"):
            read(tmp_path, model.config)
    finally:
        model.config.mtp_num_hidden_layers = kept


def test_a_head_that_lacks_a_tensor_is_refused(checkpoint: tuple[Path, Any, Oracle], tmp_path: Path) -> None:
    folder, model, _ = checkpoint
    tensors = load_file(folder / "model.safetensors")
    del tensors["mtp.pre_fc_norm_hidden.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"lacks the tensor hidden_norm\.weight"):
        read(tmp_path, model.config)
