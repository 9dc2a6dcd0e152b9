"""Random DFlash and DSpark heads on disk, in every form; and what such a head says, in plain torch from scratch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from support.eagle_heads import CONTEXT, DIM, HEADS, INNER, KV_HEADS, MASK, D

FORMS = ("dflash", "dspark", "z-lab", "deepspec", "liquid")
"""The speculators library's two, those of the authors, and Liquid AI's for LFM2.5."""
BLOCK, RANK, BASE = 4, 3, 5000.0
INPUTS = (1, 3)
"""The layers that it reads, by their inputs."""


def tensors(
    *, vocab: int, draft_vocab: int, seed: int, layers: int, kind: str | None, own: bool, bias: bool
) -> dict[str, Tensor]:
    """kind: of a Markov head. own: with an embedding and an output matrix of its own."""
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (D, len(INPUTS) * D), "hidden_norm.weight": (D,)}
    for i in range(layers):
        matrices = {"q_proj": (HEADS * DIM, D), "k_proj": (KV_HEADS * DIM, D), "v_proj": (KV_HEADS * DIM, D)}
        for name, shape in {**matrices, "o_proj": (D, HEADS * DIM)}.items():
            shapes[f"layers.{i}.self_attn.{name}.weight"] = shape
            if bias:
                shapes[f"layers.{i}.self_attn.{name}.bias"] = shape[:1]
        for name, into in (("gate_proj", (INNER, D)), ("up_proj", (INNER, D)), ("down_proj", (D, INNER))):
            shapes[f"layers.{i}.mlp.{name}.weight"] = into
        for name in ("q_norm", "k_norm"):
            shapes[f"layers.{i}.self_attn.{name}.weight"] = (DIM,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{i}.{name}.weight"] = (D,)
    shapes["norm.weight"] = (D,)
    if own or draft_vocab < vocab:
        shapes["lm_head.weight"] = (draft_vocab, D)
    if own:
        shapes["embed_tokens.weight"] = (vocab, D)
    if kind is not None:
        shapes |= {"markov_head.markov_w1.weight": (vocab, RANK), "markov_head.markov_w2.weight": (draft_vocab, RANK)}
        shapes |= {"confidence_head.proj.weight": (1, D + RANK), "confidence_head.proj.bias": (1,)}
    if kind == "gated":
        shapes |= {"markov_head.gate_proj.weight": (RANK, D + RANK), "markov_head.gate_proj.bias": (RANK,)}
    if kind == "rnn":
        shapes["markov_head.joint_proj.weight"] = (3 * RANK, 2 * RANK + D)
        shapes["markov_head.joint_proj.bias"] = (3 * RANK,)
    made = {
        name: (1.5 if "markov_w" in name else 0.2) * torch.randn(shape, generator=generator) + ("norm" in name)
        for name, shape in shapes.items()
    }
    if draft_vocab < vocab:
        ids = torch.randperm(vocab, generator=generator)[:draft_vocab].sort().values
        made["d2t"] = ids - torch.arange(draft_vocab)
        made["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, ids, True)
    return made


def config(form: str, *, vocab: int, draft_vocab: int, layers: int, kind: str | None) -> dict[str, Any]:
    layer = {
        "model_type": "qwen3", "hidden_size": D, "intermediate_size": INNER, "num_hidden_layers": layers,
        "vocab_size": vocab, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
        "rms_norm_eps": 1e-5, "max_position_embeddings": CONTEXT, "rope_theta": BASE, "hidden_act": "silu",
    }  # fmt: skip
    markov = {} if kind is None else {"markov_rank": RANK, "markov_head_type": kind}
    if form == "z-lab":
        outputs = {"mask_token_id": MASK, "target_layer_ids": [i - 1 for i in INPUTS]}
        return {"architectures": ["DFlashDraftModel"], **layer, "block_size": BLOCK, "dflash_config": outputs}
    if form == "deepspec":
        outputs = {"mask_token_id": MASK, "target_layer_ids": [i - 1 for i in INPUTS], "block_size": BLOCK}
        return {"architectures": ["Qwen3DSparkModel"], **layer, **outputs, **markov}
    if form == "liquid":
        nested = {"mask_token_id": MASK, "target_layer_ids": [i - 1 for i in INPUTS], "num_target_layers": 4}
        more = {"dflash_config": nested, "rope_is_neox_style": False, "enable_confidence_head": True}
        return {"architectures": ["Lfm2DSparkDraftModel"], **layer, "block_size": BLOCK, **more, **markov}
    return {
        "architectures": [f"{'DFlash' if form == 'dflash' else 'DSpark'}Speculator"],
        "speculators_model_type": form,
        "draft_vocab_size": draft_vocab,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": list(INPUTS),
        "transformer_layer_config": layer,
        **markov,
    }


def write(
    folder: Path, form: str, *, vocab: int = 23, draft_vocab: int | None = None, seed: int = 1, layers: int = 2,
    kind: str | None = None, own: bool = False, bias: bool = False, extra: dict[str, Tensor] | None = None,
    without: Sequence[str] = (), layer: dict[str, Any] | None = None, **more: Any,
) -> Path:  # fmt: skip
    """A head's directory. layer, more: fields of the layers' config and of the whole; None takes one out. extra,
    without: tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    draft_vocab = vocab if draft_vocab is None else draft_vocab
    shape = {"vocab": vocab, "draft_vocab": draft_vocab, "layers": layers}
    made = {**tensors(seed=seed, kind=kind, own=own, bias=bias, **shape), **(extra or {})}
    save_file({name: tensor for name, tensor in made.items() if name not in without}, folder / "model.safetensors")
    written = {**config(form, kind=kind, **shape), **more}  # type: ignore[arg-type]
    written.get("transformer_layer_config", written).update(layer or {})
    kept = {name: value for name, value in written.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


class Plain:
    """A head in float32, written down once more from the papers: no cache, one text at a time.

    first: of the block's rows, how many guess nothing. windows, causal: of its layers.
    """

    def __init__(
        self, folder: Path, target_path: str, *, windows: Sequence[int | None] = (), causal: Sequence[bool] = ()
    ) -> None:
        raw = json.loads((folder / "config.json").read_text())
        self.layers = raw.get("transformer_layer_config", raw)["num_hidden_layers"]
        anchored = raw.get("sample_from_anchor", "spark" in json.dumps(raw).lower())
        self.first = 0 if anchored else 1
        self.kind = raw.get("markov_head_type")
        self.pairs = not raw.get("rope_is_neox_style", True)
        self.w = {
            k: v.float() if v.is_floating_point() else v for k, v in load_file(folder / "model.safetensors").items()
        }
        self.model = AutoModelForCausalLM.from_pretrained(target_path, dtype=torch.float32)
        self.windows = list(windows) or [None] * self.layers
        self.causal = list(causal) or [False] * self.layers

    def states(self, text: Sequence[int]) -> Tensor:
        """The target's states of all tokens [n, features], by transformers."""
        with torch.no_grad():
            hidden = self.model(torch.tensor([list(text)]), output_hidden_states=True).hidden_states
        return torch.cat([hidden[i][0] for i in INPUTS], -1)

    def guesses(self, text: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Logits [K, draft V] of the places after a text that ends with x0, and the states they were made from."""
        context = self._rms(self.states(text[:-1]) @ self.w["fc.weight"].T, "hidden_norm")
        embedding = self.w.get("embed_tokens.weight", self.model.model.embed_tokens.weight.detach())
        x = embedding[[text[-1], *[MASK] * (BLOCK - 1)]]
        for i in range(self.layers):
            x = self._layer(x, context, i)
        states = self._rms(x, "norm")[self.first :]
        output = self.w.get("lm_head.weight", self.model.lm_head.weight.detach())
        return states @ output.T, states

    def corrected(self, logits: Tensor, states: Tensor, path: Sequence[int]) -> Tensor:
        """The logits [draft V] of the place after a path of tokens, x0 first."""
        place = len(path) - 1
        if self.kind is None:
            return logits[place]
        w1 = self.w["markov_head.markov_w1.weight"]
        if self.kind == "vanilla":
            latent = w1[path[-1]]
        elif self.kind == "gated":
            mixed = torch.cat([states[place], w1[path[-1]]])
            latent = w1[path[-1]] * torch.sigmoid(self._linear(mixed, "gate_proj"))
        else:
            state = torch.zeros(RANK)
            for token, hidden in zip(path, states, strict=False):
                gate, candidate, out = self._linear(torch.cat([state, w1[token], hidden]), "joint_proj").chunk(3)
                state = torch.sigmoid(gate) * state + (1 - torch.sigmoid(gate)) * torch.tanh(candidate)
            latent = torch.tanh(out)
        return logits[place] + self.w["markov_head.markov_w2.weight"] @ latent

    def wide(self, logits: Tensor) -> Tensor:
        """[draft V] over the target's vocabulary."""
        wide = torch.full((self.model.config.vocab_size,), float("-inf"))
        wide[torch.arange(len(logits)) + self.w.get("d2t", 0)] = logits
        return wide

    def paths(self, text: Sequence[int], depth: int) -> Iterator[tuple[int, ...]]:
        """Its likeliest path, a token longer each time."""
        logits, states = self.guesses(text)
        path: tuple[int, ...] = ()
        for _ in range(depth):
            path = (*path, int(self.wide(self.corrected(logits, states, (text[-1], *path))).argmax()))
            yield path

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return self.w[f"markov_head.{name}.weight"] @ x + self.w[f"markov_head.{name}.bias"]

    def _layer(self, x: Tensor, context: Tensor, i: int) -> Tensor:
        def product(z: Tensor, name: str) -> Tensor:
            return z @ self.w[f"layers.{i}.{name}.weight"].T + self.w.get(f"layers.{i}.{name}.bias", torch.tensor(0.0))

        n, m = len(context), len(x)
        y = self._rms(x, f"layers.{i}.input_layernorm")
        both = torch.cat([context, y])
        positions = torch.arange(n + m)
        q = product(y, "self_attn.q_proj").view(m, HEADS, DIM)
        k, v = (product(both, f"self_attn.{name}_proj").view(n + m, KV_HEADS, DIM) for name in "kv")
        turned = _turned_pairs if self.pairs else _turned
        q = turned(self._rms(q, f"layers.{i}.self_attn.q_norm"), positions[n:])
        k = turned(self._rms(k, f"layers.{i}.self_attn.k_norm"), positions)
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / DIM**0.5
        window = self.windows[i]
        hidden = torch.zeros(m, n + m, dtype=torch.bool)
        hidden[:, : n - window if window is not None and n > window else 0] = True
        if self.causal[i]:
            hidden |= positions[None, :] > positions[n:, None]
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v).reshape(m, -1)
        x = x + product(mixed, "self_attn.o_proj")
        y = self._rms(x, f"layers.{i}.post_attention_layernorm")
        return x + product(F.silu(product(y, "mlp.gate_proj")) * product(y, "mlp.up_proj"), "mlp.down_proj")

    def _rms(self, x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.w[f"{name}.weight"]


def _turned(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions, [n, heads, dim]: pairs (i, i + dim / 2) turn by position * base^(-2i / dim)."""
    half = DIM // 2
    angles = positions[:, None, None] * BASE ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def _turned_pairs(x: Tensor, positions: Tensor) -> Tensor:
    """The same of pairs (2i, 2i + 1)."""
    angles = positions[:, None, None] * BASE ** (-torch.arange(DIM // 2) / (DIM // 2))
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1).flatten(-2)
