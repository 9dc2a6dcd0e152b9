"""MTP heads: read from the target's own checkpoint, computed as its family's modules would, and drafting exactly."""

from __future__ import annotations

import copy
import json
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import load_file, save_file
from support.families import config_of, random_model
from support.gguf_files import Q, write
from support.gguf_hybrids import with_head
from support.gguf_mixtures import MIXTURES, by_head
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, p_value
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3_5TextConfig
from transformers.modeling_layers import MtpModel
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm, Qwen3_5TextRotaryEmbedding

import headstart as hs
from headstart.base.errors import UnsupportedModel
from headstart.model import int4, native
from headstart.model.decoders.grouped import GroupedEmbedding
from headstart.model.heads.eagle import Head, TensorHead, complete
from headstart.model.heads.eagle_fused import FusedHead, make_head
from headstart.model.heads.mtp_checkpoint import count, has_head, read, shortlist
from headstart.model.heads.stored_tensors import stack
from headstart.model.loading import load_config
from headstart.model.recipes import recipe_of

VOCAB = 97
needs_int4 = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")
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


@pytest.fixture(scope="module")
def file(checkpoint: tuple[Path, Any, Oracle], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model and head as a GGUF file of floats."""
    _, model, oracle = checkpoint
    head = {name: tensor.numpy() for name, tensor in oracle.tensors().items()}
    return write(tmp_path_factory.mktemp("gguf") / "m.gguf", model, **with_head(model.config, head))


def test_a_head_in_a_file_is_that_of_the_checkpoint(checkpoint: tuple[Path, Any, Oracle], file: Path) -> None:
    folder, model, _ = checkpoint
    asked = hs.Sampling(max_tokens=24, ignore_eos=True)
    outs, drafters = [], []
    for source in (folder, file):
        engine = hs.load(source, dtype="float32", quantize="none", max_length=64, pacing="fixed")
        outs.append(engine.generate(list(range(3, 24)), asked))
        drafters.append(engine.drafter)
        assert "mtp" in engine.drafter.name
    assert outs[0].tokens == outs[1].tokens
    assert outs[0].stats.drafted == outs[1].stats.drafted
    right, found = read(folder, model.config), read(file, load_config(str(file), trust_remote_code=False))
    assert found.tensors.keys() == right.tensors.keys()
    for name, tensor in right.tensors.items():
        assert torch.allclose(found.tensors[name], tensor.float(), rtol=0, atol=3e-7), name


def test_a_shortlist_guesses_a_part_of_the_vocabulary(checkpoint: tuple[Path, Any, Oracle]) -> None:
    folder, model, _ = checkpoint
    ids = shortlist(VOCAB, 32, {2, 90})
    assert ids is not None
    assert ids.tolist() == [*range(32), 90]
    hidden, tokens = torch.randn(5, 64), torch.randint(VOCAB, (5,)).tolist()
    whole, part = head_of(folder, model).read(tokens, hidden), head_of(folder, model, ids).read(tokens, hidden)
    assert torch.allclose(whole.logits[:, ids], part.logits, atol=1e-5)
    assert shortlist(VOCAB, 60, set()) is None


@dataclass(frozen=True)
class Other:
    """A family whose checkpoints hold their head in another form.

    config: of the family's tests. said: what config.json says beside it or instead. blocks: the numbers of the model's
    layers that the head has one more of each of, and what these are called. names: of the two norms, the matrix, the
    final norm, and the prefix of all. first: what comes first into the matrix.
    """

    config: str
    said: dict[str, Any]
    blocks: dict[int, str]
    names: tuple[str, str, str, str]
    prefix: str
    state_first: bool = False
    copies: tuple[str, ...] = ()


_DEEPSEEK = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
_NEMOTRON = ("0.enorm", "0.hnorm", "0.eh_proj", "1.final_layernorm")
OTHERS = {
    "mimo": Other(
        "qwen2", {"model_type": "mimo", "auto_map": {"AutoConfig": "mimo.MiMoConfig"}}, {3: ""},
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"), "model.mtp_layers.0.", True,
    ),
    "glm4": Other("glm4", {}, {3: ""}, _DEEPSEEK, "model.layers.4.", copies=("embed_tokens", "shared_head.head")),
    "deepseek_v3": Other("deepseek_v3", {}, {3: ""}, _DEEPSEEK, "model.layers.4."),
    "deepseek_v3, halves": Other("deepseek_v3, halves", {}, {3: ""}, _DEEPSEEK, "model.layers.4."),
    "deepseek_v3, experts": Other("deepseek_v3, experts", {}, {3: ""}, _DEEPSEEK, "model.layers.4."),
    "glm4_moe_lite": Other("glm4_moe_lite", {}, {3: ""}, _DEEPSEEK, "model.layers.4."),
    "glm4_moe": Other("glm4_moe", {}, {3: ""}, _DEEPSEEK, "model.layers.4."),
    "qwen3_5_moe_text": Other(
        "qwen3_5_moe_text", {}, {3: "layers.0."},
        ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"), "mtp.",
    ),
    "nemotron_h": Other("nemotron_h", {}, {4: "0.", 5: "1."}, _NEMOTRON, "mtp.layers."),
    "nemotron_h, experts": Other("nemotron_h, experts", {}, {2: "0.", 3: "1."}, _NEMOTRON, "mtp.layers."),
}  # fmt: skip


def published(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """As checkpoints hold it: the matrices of each expert by themselves."""
    owner, _, last = name.rpartition(".")
    if not owner.endswith(".experts"):
        return {name: tensor}
    found = {}
    for number, matrix in enumerate(tensor):
        joined = last == "gate_up_proj"
        parts = zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True) if joined else [(last, matrix)]
        found |= {f"{owner}.{number}.{part}.weight": each.clone() for part, each in parts}
    return found


def other(folder: Path, form: Other, of: Any = None) -> tuple[Any, Callable[[Tensor, Tensor], Tensor]]:
    """Write such a checkpoint; returns the model, and what the head makes of embeddings and states [n, d] each, by
    transformers' own modules in float64. of: another config than the form's."""
    of = config_of(form.config) if of is None else of
    if of.model_type == "qwen2":
        of.use_sliding_window, of.sliding_window, of.layer_types = False, None, ["full_attention"] * 4
    of.num_nextn_predict_layers = 1
    model = random_model(of)
    model.config._experts_implementation = "eager"  # which takes float64
    d, layers = of.hidden_size, [copy.deepcopy(model.model.layers[number]) for number in form.blocks]
    norm = copy.deepcopy(model.model.norm_f if of.model_type == "nemotron_h" else model.model.norm)
    parts = [*(copy.deepcopy(norm) for _ in range(2)), torch.nn.Linear(2 * d, d, bias=False), norm, *layers]
    prefixes = [*(f"{name}." for name in form.names), *form.blocks.values()]
    tensors = {}
    torch.manual_seed(4)
    for part, prefix in zip(parts, prefixes, strict=True):
        for name, parameter in part.state_dict(keep_vars=True).items():
            parameter.data += 0.1 * torch.randn_like(parameter)
            tensors |= published(f"{form.prefix}{prefix}{name}", parameter.detach().clone())
    tensors |= {f"{form.prefix}{name}.weight": torch.zeros(of.vocab_size, d) for name in form.copies}
    model.save_pretrained(folder)
    save_file({**load_file(folder / "model.safetensors"), **tensors}, folder / "model.safetensors", {"format": "pt"})
    stated = {**json.loads((folder / "config.json").read_text()), "num_nextn_predict_layers": 1, **form.said}
    (folder / "config.json").write_text(json.dumps(stated))
    embedding_norm, state_norm, joining, last, *rest = (part.double() for part in parts)
    rotary = copy.deepcopy(model.model.rotary_emb).double() if hasattr(model.model, "rotary_emb") else None

    @torch.no_grad()
    def states(embedded: Tensor, hidden: Tensor) -> Tensor:
        pair = [embedding_norm(embedded.double()), state_norm(hidden.double())]
        x = joining(torch.cat(pair[::-1] if form.state_first else pair, -1))[None]
        n = x.shape[1]
        turns = None if rotary is None else rotary(x, torch.arange(n)[None])
        mask = torch.full((n, n), float("-inf"), dtype=torch.float64).triu(1)[None, None]
        for layer in rest:
            x = layer(x, position_embeddings=turns, attention_mask=mask)
        return last(x)[0]

    return model, states


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", [TensorHead, pytest.param(FusedHead, marks=needs_kernels)])
def test_other_families_heads(name: str, kind: type[Head], tmp_path: Path) -> None:
    model, states = other(tmp_path, OTHERS[name])
    assert has_head(tmp_path)
    of = load_config(str(tmp_path), trust_remote_code=False)
    tokens, hidden = torch.randint(3, of.vocab_size, (20,)).tolist(), torch.randn(20, of.hidden_size)
    embedding = model.get_input_embeddings().weight.detach()
    right = states(embedding[tokens], hidden)
    dtype = torch.float64 if kind is TensorHead else torch.float32
    given = {"dtype": dtype, "device": torch.device("cpu"), "head": model.lm_head.weight.detach()}
    found = kind(complete(read(tmp_path, of), embedding=embedding, **given), 128).read(tokens, hidden.to(dtype))
    wanted = right @ model.lm_head.weight.detach().double().T
    assert (found.states - right).abs().max() < 1e-5 * (right.max() - right.min())
    assert (found.logits - wanted).abs().max() < 1e-5 * (wanted.max() - wanted.min())


@pytest.mark.parametrize("joined", [False, True])
def test_a_head_with_experts_in_a_file_is_that_of_the_checkpoint(joined: bool, tmp_path: Path) -> None:
    """joined: gate and up of its experts are one tensor. A file holds the gate of the shared one as a row, or without
    that axis."""
    form = replace(OTHERS["qwen3_5_moe_text"], blocks={1: "layers.0."})
    model, _ = other(tmp_path, form, MIXTURES["qwen3_5_moe"]())
    head = {n: t.numpy() for n, t in load_file(tmp_path / "model.safetensors").items() if n.startswith("mtp.")}
    each = [
        [head.pop(f"mtp.layers.0.mlp.experts.{number}.{part}_proj.weight") for part in ("gate", "up", "down")]
        for number in range(model.config.num_experts)
    ]
    parts = {
        part: np.stack(matrices) for part, matrices in zip(("gate", "up", "down"), zip(*each, strict=True), strict=True)
    }
    if joined:
        parts["gate_up"] = np.concatenate([parts.pop("gate"), parts.pop("up")], 1)
    asked = with_head(model.config, head)
    block = f"blk.{model.config.num_hidden_layers}."
    asked["tensors"] |= {f"{block}ffn_{part}_exps.weight": values for part, values in parts.items()}
    gate = f"{block}ffn_gate_inp_shexp.weight"
    assert asked["tensors"][gate].shape == (1, model.config.hidden_size)
    if joined:
        asked["tensors"][gate] = asked["tensors"][gate][0]
    file = write(tmp_path / "m.gguf", model, **asked)
    assert has_head(file)
    right, found = read(tmp_path, model.config), read(file, load_config(str(file), trust_remote_code=False))
    assert found.tensors.keys() == right.tensors.keys()
    for name, tensor in right.tensors.items():
        assert torch.allclose(found.tensors[name], tensor.float(), rtol=0, atol=3e-7), name


_IN_FILE = {
    "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm",
    "shared_head.norm": "nextn.shared_head_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.o_proj": "attn_output", "mlp.gate": "ffn_gate_inp",
    **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}  # fmt: skip
"""What files of GLM-4.7-Flash call the modules of its head."""


def test_a_latent_head_in_a_file_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    """What makes its keys and values is two tensors there."""
    form = replace(OTHERS["glm4_moe_lite"], blocks={2: ""}, prefix="model.layers.3.")
    model, _ = other(tmp_path, form, MIXTURES["glm4_moe_lite"]())
    config, stored = model.config, load_file(tmp_path / "model.safetensors")
    head = {name.removeprefix(form.prefix): t.numpy() for name, t in stored.items() if name.startswith(form.prefix)}
    tensors: dict[str, np.ndarray] = {"blk.3.exp_probs_b.bias": head.pop("mlp.gate.e_score_correction_bias")}
    for part in ("gate", "up", "down"):
        each = [head.pop(f"mlp.experts.{number}.{part}_proj.weight") for number in range(config.n_routed_experts)]
        tensors[f"blk.3.ffn_{part}_exps.weight"] = np.stack(each)
    keys, values = by_head(config, head.pop("self_attn.kv_b_proj.weight"))
    tensors |= {"blk.3.attn_k_b.weight": np.ascontiguousarray(keys.swapaxes(1, 2)), "blk.3.attn_v_b.weight": values}
    for name, values in head.items():
        module, _, kind = name.rpartition(".")
        tensors[f"blk.3.{_IN_FILE[module]}.{kind}"] = values
    file = write(tmp_path / "m.gguf", model, metadata={"block_count": 4, "nextn_predict_layers": 1}, tensors=tensors)
    assert has_head(file)
    right, found = read(tmp_path, config), read(file, load_config(str(file), trust_remote_code=False))
    assert found.tensors.keys() == right.tensors.keys()
    for name, tensor in right.tensors.items():
        assert torch.allclose(found.tensors[name], tensor.float(), rtol=0, atol=3e-7), name


def test_experts_are_put_together_one_after_the_other() -> None:
    """What has been put is let go, so that there are never two of all."""
    experts = recipe_of(config_of("glm4_moe")).layers[-1].experts
    assert experts is not None
    sizes = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}
    names = {f"mlp.experts.{i}.{part}.weight": size for i in range(experts.count) for part, size in sizes.items()}
    right = {name: torch.randn(size, generator=torch.Generator().manual_seed(1)) for name, size in names.items()}

    class Watched(dict[str, Tensor]):
        left: ClassVar[list[int]] = []

        def pop(self, name: Any) -> Tensor:
            self.left.append(sum(each() is not None for each in alive))
            return super().pop(name)

    tensors = Watched({name: tensor.clone() for name, tensor in right.items()})
    alive = [weakref.ref(tensor) for tensor in tensors.values()]
    stack(tensors, experts)
    assert tensors.keys() == {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
    for i in range(experts.count):
        gate, up, down = (right[f"mlp.experts.{i}.{part}.weight"] for part in sizes)
        assert torch.equal(tensors["mlp.experts.gate_up_proj"][i], torch.cat((gate, up)))
        assert torch.equal(tensors["mlp.experts.down_proj"][i], down)
    assert all(left <= len(names) - done + 1 for done, left in enumerate(Watched.left)), Watched.left


def test_a_bias_of_the_choice_stays_in_float32(tmp_path: Path) -> None:
    other(tmp_path, OTHERS["glm4_moe"])
    found = read(tmp_path, load_config(str(tmp_path), trust_remote_code=False))
    name = "mlp.gate.e_score_correction_bias"
    own = found.own(torch.bfloat16, torch.device("cpu"))
    assert torch.equal(own[name], found.tensors[name])
    assert {tensor.dtype for each, tensor in own.items() if each != name} == {torch.bfloat16}


@needs_int4
@pytest.mark.parametrize("name", ["qwen3_5_moe_text", "deepseek_v3"])
def test_all_matrices_of_a_head_are_rounded_to_four_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each expert and of each head of latent attention too, of which there are lists."""
    model, _ = other(tmp_path, OTHERS[name])
    of = load_config(str(tmp_path), trust_remote_code=False)
    embedding, output = model.get_input_embeddings().weight.detach(), model.lm_head.weight.detach()
    given = {"dtype": torch.float32, "device": torch.device("cpu"), "head": output}
    weights = complete(read(tmp_path, of), embedding=embedding, **given)
    tokens, hidden = torch.randint(3, of.vocab_size, (20,)).tolist(), torch.randn(20, of.hidden_size)
    right, shapes, four_bits = TensorHead(weights, 128).read(tokens, hidden).logits, list[Any](), int4.four_bits
    monkeypatch.setattr(int4, "four_bits", lambda weight: [shapes.append(tuple(weight.shape)), four_bits(weight)][1])
    head = make_head(weights, 128, quantize="int4")
    found, experts = head.read(tokens, hidden).logits, head.config.recipe.experts
    assert 0 < (found - right).norm() / right.norm() < 0.5
    if experts is not None:
        assert shapes.count((of.hidden_size, experts.width)) == experts.count
    else:
        attention = head.config.recipe.attention
        assert shapes.count((attention.rank, attention.nope)) == attention.heads


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


@pytest.mark.parametrize(
    ("of", "name", "why"),
    [
        (tf.Glm4MoeConfig, "mlp.up_proj", "is of a model that headstart's own decoders do not run"),
    ],
)
def test_a_layer_that_is_not_run_is_refused_with_the_reason(of: Any, name: str, why: str, tmp_path: Path) -> None:
    made = of(num_hidden_layers=4)
    made.mtp_num_hidden_layers = 1
    made.save_pretrained(tmp_path)
    qwen = "qwen" in made.model_type
    names = (f"mtp.layers.0.{name}", "mtp.fc") if qwen else (f"model.layers.4.{name}", "model.layers.4.eh_proj")
    save_file({f"{each}.weight": torch.ones(1) for each in names}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=f"^the MTP layer of .* {why}"):
        read(tmp_path, made)
    assert not has_head(tmp_path)


@pytest.fixture(scope="module")
def two_layers(checkpoint: tuple[Path, Any, Oracle], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model with one MTP layer more, whose weights are the other's with the signs turned; and the same as GGUF."""
    (folder, model, oracle), made = checkpoint, tmp_path_factory.mktemp("two")
    head = {name: values.clone() for name, values in oracle.tensors().items()}
    head |= {name.replace(".0.", ".1."): -tensor for name, tensor in head.items() if "mtp.layers.0." in name}
    save_file({**load_file(folder / "model.safetensors"), **head}, made / "model.safetensors", {"format": "pt"})
    stated = json.loads((folder / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**stated, "mtp_num_hidden_layers": 2}))
    asked = with_head(model.config, {name: values.numpy() for name, values in head.items()}, 2)
    return made, write(made / "m.gguf", model, **asked)


def test_each_of_several_layers_is_read(checkpoint: tuple[Path, Any, Oracle], two_layers: tuple[Path, Path]) -> None:
    folder, model, _ = checkpoint
    right = read(folder, model.config).tensors
    for source in two_layers:
        of = load_config(str(source), trust_remote_code=False)
        assert count(source, of) == 2
        for number in range(2):
            found = read(source, of, number=number).tensors
            assert found.keys() == right.keys()
            for name in right:
                shared = name.startswith(("embedding_norm", "hidden_norm", "norm", "fc"))
                wanted = right[name] if shared or not number else -right[name]
                assert torch.allclose(found[name].float(), wanted.float(), rtol=0, atol=3e-7), (number, name)


class Turns:
    """A checkpoint of GLM-4's shape with three MTP layers, as transformers' own `MtpModel` has them."""

    LAYERS = 3

    def __init__(self, folder: Path) -> None:
        of = config_of("glm4")
        of.num_mtp_layers = of.num_nextn_predict_layers = self.LAYERS
        self.model = random_model(of)
        self.folder = folder
        with torch.no_grad():
            self.model.lm_head.weight *= 60  # so that guesses are sure, and trees hold the likeliest path
        torch.manual_seed(4)
        self.mtp = MtpModel(self.model, self.LAYERS).eval()
        tensors = {}
        for name, parameter in self.mtp.layers.named_parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
            number, _, inner = name.partition(".")
            inner = inner.replace("mtp_block.", "").replace("post_norm", "shared_head.norm")
            inner = name.partition(".mtp_block.")[2] or inner
            tensors[f"model.layers.{of.num_hidden_layers + int(number)}.{inner}"] = parameter.detach().clone()
        self.model.save_pretrained(folder)
        stored = {**load_file(folder / "model.safetensors"), **tensors}
        save_file(stored, folder / "model.safetensors", {"format": "pt"})

    @torch.no_grad()
    def drafts(self, tokens: list[int], depth: int) -> list[int]:
        """The likeliest tokens after these, by layers in turn; behind them the last goes on from its own states."""
        given = self.model.model(torch.tensor([tokens[:-1]])).last_hidden_state
        ids, found, left = tokens[1:], list[int](), given
        for step in range(depth):
            if step < self.LAYERS:
                given = left
                ids = ids if step == 0 else [*ids[1:], found[-1]]
            else:
                given, ids = torch.cat([given, left[:, -1:]], 1), [*ids, found[-1]]
            places = torch.arange(len(ids))[None]
            layer = min(step, self.LAYERS - 1)
            left = self.mtp.forward_layer(layer, given, places, None, input_ids=torch.tensor([ids]))
            found.append(int(self.model.lm_head(left[0, -1]).argmax()))
        return found


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Turns:
    return Turns(tmp_path_factory.mktemp("turns"))


@pytest.mark.parametrize("chunk", [512, 4])
@pytest.mark.parametrize("tree", ["none", "top-k"])
@pytest.mark.parametrize("kernels", [False, pytest.param(True, marks=needs_kernels)])
def test_layers_guess_in_turn_as_transformers_do(
    turns: Turns, tree: Any, kernels: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(native, "available", lambda: False)
    options = {"dtype": "float32", "max_length": 96, "max_batch_size": 2, "draft_quantize": "none", "pacing": "fixed"}
    nodes = 5 if tree == "none" else 12
    engine = hs.load(turns.folder, drafter="mtp", draft_tree=tree, num_speculative_tokens=nodes, **options)
    drafter: Any = engine.drafter
    drafter._reader.chunk = chunk
    propose, seen = drafter.propose, []

    def watched(rows: Any) -> Any:
        made = propose(rows)
        seen.extend((list(row.tokens), draft) for row, draft in zip(rows, made, strict=True))
        return made

    monkeypatch.setattr(drafter, "propose", watched)
    prompts, asked = [list(range(3, 30)), list(range(40, 51)), [5]], hs.Sampling(max_tokens=12, ignore_eos=True)
    found = engine.generate(prompts, asked)
    plain = hs.load(turns.folder, drafter="none", **options).generate(prompts, asked)
    assert [out.tokens for out in found] == [out.tokens for out in plain]
    long = [(tokens, draft) for tokens, draft in seen if len(tokens) > Turns.LAYERS + 1 and len(draft)]
    assert len(long) > 8
    alike = []
    for tokens, draft in long:
        wanted = turns.drafts(tokens, max(draft.depths))
        paths = {tuple(draft.tokens[node] for node in draft.path(index)) for index in range(len(draft))}
        alike.append((len(wanted), max(n for n in range(len(wanted) + 1) if not n or tuple(wanted[:n]) in paths)))
    assert all(n == depth if tree == "none" else n >= 1 for depth, n in alike), alike
    assert max(n for _, n in alike) > Turns.LAYERS


def test_slots_of_later_layers_are_given_back(turns: Turns) -> None:
    engine = hs.load(turns.folder, drafter="mtp", dtype="float32", max_length=96, max_batch_size=2, pacing="fixed")
    engine.generate([list(range(3, 20 + n)) for n in range(5)], hs.Sampling(max_tokens=6, ignore_eos=True))
    drafter: Any = engine.drafter
    for reader in (drafter._reader, *drafter._reader.later):
        assert reader.cache.free_slots == 2
        reader.cache.check()


def test_a_head_that_lacks_a_tensor_is_refused(checkpoint: tuple[Path, Any, Oracle], tmp_path: Path) -> None:
    folder, model, _ = checkpoint
    tensors = load_file(folder / "model.safetensors")
    del tensors["mtp.pre_fc_norm_hidden.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"lacks the tensor hidden_norm\.weight"):
        read(tmp_path, model.config)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert not has_head(tmp_path)


def test_auto_leaves_a_head_alone_whose_weights_are_coded(checkpoint: tuple[Path, Any, Oracle], tmp_path: Path) -> None:
    folder, _, _ = checkpoint
    tensors = load_file(folder / "model.safetensors")
    scales = {"mtp.layers.0.mlp.up_proj.weight_scale_inv": torch.ones(1)}
    save_file({**tensors, **scales}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert "mtp" not in hs.load(tmp_path, dtype="float32", max_length=64).drafter.name
    with pytest.raises(UnsupportedModel, match="holds tensors that no known head has"):
        hs.load(tmp_path, drafter="mtp", dtype="float32", max_length=64)


@needs_kernels
def test_a_head_of_a_coded_target_makes_no_floats_of_its_embedding(
    checkpoint: tuple[Path, Any, Oracle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model, oracle = checkpoint
    head = {name: tensor.numpy() for name, tensor in oracle.tensors().items()}
    file = write(tmp_path / "q8.gguf", model, kind=Q.Q8_0, **with_head(model.config, head))
    asked, prompt = hs.Sampling(max_tokens=24, ignore_eos=True), list(range(3, 24))
    plain = hs.load(file, drafter="none", max_length=64).generate(prompt, asked)
    monkeypatch.setattr(GroupedEmbedding, "weight", property(lambda _: pytest.fail("the table was made floats")))
    engine = hs.load(file, max_length=64, pacing="fixed")
    found = engine.generate(prompt, asked)
    assert "mtp" in engine.drafter.name
    assert found.tokens == plain.tokens
    assert found.stats.drafted > 0
