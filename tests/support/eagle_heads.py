"""Random EAGLE heads on disk, in every form of checkpoint; and what such a head says, in plain torch from scratch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

CONTEXT = 128
D, INNER, HEADS, KV_HEADS, DIM, LAYERS = 32, 48, 4, 2, 16, 4
FORMS = ("eagle1", "eagle3", "speculators")
MASK = 5
"""The mask token of parallel heads."""


def target(root: Path, *, vocab: int = 23, tied: bool = False, seed: int = 0, dtype: Any = torch.float32) -> str:
    """A directory with a tiny Llama."""
    path = root / f"eagle-target-{vocab}-{tied}-{seed}-{dtype}"
    if not path.exists():
        config = tf.LlamaConfig(
            vocab_size=vocab, hidden_size=D, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS, head_dim=DIM, max_position_embeddings=CONTEXT, bos_token_id=None,
            eos_token_id=None, tie_word_embeddings=tied,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_config(config)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.2, generator=generator)
        model.to(dtype).save_pretrained(path)
    return str(path)


def tensors(
    form: str, *, vocab: int, draft_vocab: int, seed: int, bias: bool = False, layers: int = 1, masked: bool = False,
    rank: int = 0,
) -> dict[str, Tensor]:  # fmt: skip
    """A head's tensors by the names that its form has on disk. masked: with a state for masked rows. rank: of a
    selector."""
    generator = torch.Generator().manual_seed(seed)
    layer = {"eagle1": "layers.0.", "eagle3": "midlayer.", "speculators": "layers.0."}[form]
    into = D if form == "eagle1" else 2 * D
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (D, 2 * D if form == "eagle1" else 3 * D),
        f"{layer}self_attn.q_proj.weight": (HEADS * DIM, into),
        f"{layer}self_attn.k_proj.weight": (KV_HEADS * DIM, into),
        f"{layer}self_attn.v_proj.weight": (KV_HEADS * DIM, into),
        f"{layer}self_attn.o_proj.weight": (D, HEADS * DIM),
        f"{layer}mlp.gate_proj.weight": (INNER, D),
        f"{layer}mlp.up_proj.weight": (INNER, D),
        f"{layer}mlp.down_proj.weight": (D, INNER),
        f"{layer}post_attention_layernorm.weight": (D,),
    }
    for i in range(1, layers):
        plain = {"q_proj": (HEADS * DIM, D), "k_proj": (KV_HEADS * DIM, D), "v_proj": (KV_HEADS * DIM, D)}
        of_layer: dict[str, tuple[int, ...]] = {f"self_attn.{name}": shape for name, shape in plain.items()}
        of_layer |= {"self_attn.o_proj": (D, HEADS * DIM), "mlp.gate_proj": (INNER, D), "mlp.up_proj": (INNER, D)}
        of_layer |= {"mlp.down_proj": (D, INNER), "input_layernorm": (D,), "post_attention_layernorm": (D,)}
        shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in of_layer.items()}
    if masked:
        shapes["mask_hidden"] = (1, 1, 3 * D)
    if rank:
        shapes |= {
            "candidate_selector.predecessor_codebook": (vocab, rank),
            "candidate_selector.successor_codebook": (draft_vocab, rank),
            "candidate_selector.hidden_projection.weight": (rank, D),
        }
    if bias:
        shapes["fc.bias"] = (D,)
    if form != "eagle1":
        shapes |= {f"{layer}{name}.weight": (D,) for name in ("hidden_norm", "input_layernorm")}
        shapes |= {"norm.weight": (D,), "lm_head.weight": (draft_vocab, D)}
    made = {
        name: 0.2 * torch.randn(shape, generator=generator) + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }
    if draft_vocab < vocab:
        ids = torch.randperm(vocab, generator=generator)[:draft_vocab].sort().values
        made["d2t"] = ids - torch.arange(draft_vocab)
        made["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, ids, True)
    return made


def config(form: str, *, vocab: int, draft_vocab: int, **more: Any) -> dict[str, Any]:
    layer = {
        "model_type": "llama", "hidden_size": D, "intermediate_size": INNER,
        "vocab_size": vocab, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
        "rms_norm_eps": 1e-5, "max_position_embeddings": CONTEXT, "rope_theta": 5000.0, "hidden_act": "silu",
    }  # fmt: skip
    if form == "eagle1":
        return {"architectures": ["LlamaForCausalLM"], **layer, **more}
    if form == "eagle3":
        return {"architectures": ["LlamaForCausalLMEagle3"], **layer, "draft_vocab_size": draft_vocab, **more}
    proposal = {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "draft_vocab_size": draft_vocab,
        "target_hidden_size": None,
        "norm_before_residual": False,
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3", "proposal_methods": [proposal]},
        **more,
    }


def write(
    folder: Path, form: str, *, vocab: int = 23, draft_vocab: int | None = None, seed: int = 1, bias: bool = False,
    layers: int = 1, masked: bool = False, rank: int = 0, extra: dict[str, Tensor] | None = None,
    without: Sequence[str] = (), **more: Any,
) -> Path:  # fmt: skip
    """A head's directory. more: fields of its config; extra, without: tensors; the others as `tensors` has them."""
    folder.mkdir(parents=True, exist_ok=True)
    draft_vocab = vocab if draft_vocab is None else draft_vocab
    shape = {"layers": layers, "masked": masked, "rank": rank, "bias": bias}
    made = {**tensors(form, vocab=vocab, draft_vocab=draft_vocab, seed=seed, **shape), **(extra or {})}
    save_file({name: tensor for name, tensor in made.items() if name not in without}, folder / "model.safetensors")
    more = {**({"mask_token_id": MASK} if masked else {}), **more}
    if rank:
        more = {"selector_rank": rank, "selector_top_k": 6, **more}
    written = config(form, vocab=vocab, draft_vocab=draft_vocab, **more)
    written.get("transformer_layer_config", written).setdefault("num_hidden_layers", layers)
    if form == "speculators" and masked:
        written["speculators_model_type"] = more.get("speculators_model_type", "peagle")
    (folder / "config.json").write_text(json.dumps(written))
    return folder


def layers_of(raw: dict[str, Any]) -> int:
    """How many layers a head's config names."""
    return int(raw.get("transformer_layer_config", raw)["num_hidden_layers"])


class Plain:
    """A head in float32, written down once more from the papers: no cache, full attention, one text at a time."""

    def __init__(self, folder: Path, target_path: str) -> None:
        raw = json.loads((folder / "config.json").read_text())
        self.raw = raw
        self.third = any(name in (folder / "config.json").read_text().lower() for name in ("eagle3", "peagle"))
        stored = {
            k: v.float() if v.is_floating_point() else v for k, v in load_file(folder / "model.safetensors").items()
        }
        self.w = {k.removeprefix("midlayer.").removeprefix("layers.0."): v for k, v in stored.items()}
        self.model = AutoModelForCausalLM.from_pretrained(target_path, dtype=torch.float32)
        layers = self.model.config.num_hidden_layers
        self.ids = raw.get("eagle_aux_hidden_state_layer_ids") or [layers // 2 - 1, layers // 2, layers // 2 + 1]
        if not self.third:
            self.ids = [layers]
        self.eps = 1e-5
        self._known: dict[tuple[int, ...], Tensor] = {}

    def states(self, text: Sequence[int]) -> Tensor:
        """The target's states of all tokens [n, ...], by transformers."""
        with torch.no_grad():
            hidden = self.model(torch.tensor([list(text)]), output_hidden_states=True).hidden_states
        return torch.cat([hidden[i][0] for i in self.ids], -1)

    def logits(self, text: Sequence[int], draft: Sequence[int] = ()) -> Tensor:
        """[V]: what it says comes after the committed text and these draft tokens."""
        known = tuple(text[:-1])
        if known not in self._known:
            self._known[known] = self.states(known)
        features = self._known[known]
        own: list[Tensor] = []
        for count in range(len(draft) + 1):
            tokens = [*text[1:], *draft[:count]]
            logits, state = self._forward(tokens, features, own)
            own.append(state)
        return self._wide(logits)

    def masked(self, text: Sequence[int], depth: int) -> tuple[Tensor, Tensor]:
        """Logits [K, V] of all places after a committed text by masked rows, and the normed states [K, d]."""
        features = self.states(text[:-1])
        found = []
        for masks in range(depth):
            rows = torch.cat([features, self.w["mask_hidden"].reshape(1, -1).expand(masks, -1)])
            found.append(self._forward([*text[1:], *[MASK] * masks], rows, []))
        spoken = torch.stack([self._rms(state, self.w["norm.weight"]) for _, state in found])
        return torch.stack([self._wide(logits) for logits, _ in found]), spoken

    def _wide(self, logits: Tensor) -> Tensor:
        wide = torch.full((self.model.config.vocab_size,), float("-inf"))
        ids = torch.arange(len(logits)) + self.w.get("d2t", 0)
        wide[ids] = logits
        return wide

    def _forward(self, tokens: Sequence[int], features: Tensor, own: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        w, raw = self.w, self.raw
        embedded = self.w.get("embed_tokens.weight", self.model.model.embed_tokens.weight.detach())[list(tokens)]
        bias = w.get("fc.bias", torch.tensor(0.0))
        if not self.third:
            given = torch.cat([features, *[state[None] for state in own]])
            x = z = torch.cat((embedded, given), -1) @ w["fc.weight"].T + bias
        else:
            if raw.get("fc_norm"):
                parts = features.chunk(len(self.ids), -1)
                features = torch.cat([self._rms(p, w[f"fc_norm.{i}.weight"]) for i, p in enumerate(parts)], -1)
            if raw.get("norm_before_fc"):
                features = self._rms(features, w["input_norm.weight"])
            x = torch.cat([features @ w["fc.weight"].T + bias, *[state[None] for state in own]])
            normed = self._rms(x, w["hidden_norm.weight"])
            z = torch.cat((self._rms(embedded, w["input_layernorm.weight"]), normed), -1)
            x = normed if raw.get("norm_before_residual") else x
        x = self._layer(x, z, "")
        for i in range(1, layers_of(raw)):
            x = self._layer(x, self._rms(x, w[f"layers.{i}.input_layernorm.weight"]), f"layers.{i}.")
        last = x[-1]
        head = w.get("lm_head.weight", self.model.lm_head.weight.detach())
        spoken = self._rms(last, w["norm.weight"]) if self.third else last
        return head @ spoken, spoken if raw.get("norm_output") else last

    def _layer(self, x: Tensor, z: Tensor, prefix: str) -> Tensor:
        w = {name.removeprefix(prefix): tensor for name, tensor in self.w.items() if name.startswith(prefix)}
        n = len(x)
        q = self._turned((z @ w["self_attn.q_proj.weight"].T).view(n, HEADS, DIM))
        k = self._turned((z @ w["self_attn.k_proj.weight"].T).view(n, KV_HEADS, DIM))
        v = (z @ w["self_attn.v_proj.weight"].T).view(n, KV_HEADS, DIM)
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / DIM**0.5
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, -1)
        x = x + mixed @ w["self_attn.o_proj.weight"].T
        y = self._rms(x, w["post_attention_layernorm.weight"])
        gate = F.silu(y @ w["mlp.gate_proj.weight"].T) * (y @ w["mlp.up_proj.weight"].T)
        return x + gate @ w["mlp.down_proj.weight"].T

    def _rms(self, x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * gain

    def _turned(self, x: Tensor) -> Tensor:
        """Rotary positions, [n, heads, dim]: pairs (i, i + dim / 2) turn by position * theta^(-2i / dim)."""
        half = DIM // 2
        angles = torch.arange(len(x))[:, None, None] * 5000.0 ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)
