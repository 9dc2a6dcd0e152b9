"""The draft that is trained: its shape, from the target's where the options leave it open, and its first weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.drafters.draft_model import mask_token
from headstart.loading.checkpoint import Checkpoint
from headstart.model import loading
from headstart.model.tokens.tokenizers import check_pair
from headstart.train.options import Shape

HEAD = 64  # width of an attention head, where the shape leaves it open
_RESERVED = re.compile("reserved|unused", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FullShape:
    """A shape with nothing left open."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int


def full_shape(shape: Shape, target: Any) -> FullShape:
    """Fill in what the user left open, from the target's config.

    Half the target's width and an eighth of its depth: a draft step then costs a few per cent of a target step, and
    what acceptance a deeper draft adds is eaten by its cost (Leviathan et al. 2023, section 3.5: a small c matters).
    """
    text = target.get_text_config()
    hidden = shape.hidden or _multiple(min(2048, max(HEAD, text.hidden_size // 2)), shape.heads or HEAD)
    heads = shape.heads or _divisor(hidden, hidden // HEAD)
    kv_heads = shape.kv_heads or _divisor(heads, heads // 2)
    layers = shape.layers or max(1, min(4, text.num_hidden_layers // 8))
    full = FullShape(hidden, layers, shape.intermediate or _multiple(hidden * 8 // 3, HEAD), heads, kv_heads)
    if full.hidden % full.heads or full.heads % full.kv_heads or (full.hidden // full.heads) % 2:
        problem = f"hidden={full.hidden}, heads={full.heads}, kv_heads={full.kv_heads} do not fit each other"
        raise InvalidOption(problem, hint="heads must divide hidden into even parts, and kv_heads must divide heads")
    return full


def build(shape: FullShape, target: Any, *, init: str, seed: int) -> LlamaForCausalLM:
    """A float32 draft for this target model: the same token ids, positions and end-of-text."""
    torch.manual_seed(seed)
    draft = LlamaForCausalLM(_config(shape, target.config))
    for name, parameter in draft.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.zeros_(parameter)  # each block begins as the identity
    if init == "target":
        _inherit(draft, target)
    draft.generation_config = GenerationConfig(
        bos_token_id=draft.config.bos_token_id, eos_token_id=draft.config.eos_token_id
    )
    return draft


def mask_for(target: Any, tokenizer: Any) -> int:
    """The mask token, in place of what is still to come: one that no text has.

    As in published drafts the first of the ids that only pad the vocabulary; else a token that the tokenizer's makers
    reserved; else one row more than the target has, which some engines refuse since the two sizes then differ.
    """
    vocab = int(target.config.get_text_config().vocab_size)
    if len(tokenizer) < vocab:
        return len(tokenizer)
    reserved = [i for i, t in tokenizer.added_tokens_decoder.items() if t.special and _RESERVED.search(t.content)]
    return min(reserved, default=vocab)


@torch.no_grad()
def with_mask(draft: Any, mask: int) -> Any:
    """The draft with this mask token, which its config names as published ones do. Its embedding begins as the mean of
    all: that is no token's own, and as long as a common one."""
    draft.config.spd_type, draft.config.pard_token = "pard", mask
    matrices = [draft.get_input_embeddings().weight]
    rows = len(matrices[0])
    if mask == rows:
        draft.resize_token_embeddings(rows + 1, mean_resizing=False)
        matrices = [draft.get_input_embeddings().weight]
    if draft.get_output_embeddings().weight is not matrices[0]:
        matrices.append(draft.get_output_embeddings().weight)
    for matrix in matrices:
        matrix[mask] = matrix[:rows].mean(0)
    return draft


def go_on(source: str, target: Any, tokenizer: Any) -> Any:
    """A draft model that was trained before, in float32. It may have one row more, for its mask token.

    Raises:
        ModelNotFound, UnsupportedModel: it cannot be read.
        IncompatibleTokenizer: its tokens are not the target's.
    """
    found = Checkpoint(source, "draft", device=torch.device("cpu"))
    vocab = int(target.config.get_text_config().vocab_size)
    check_pair(
        tokenizer, found.tokenizer, target_vocab=vocab, draft_vocab=found.vocab_size, name=f"draft {found.label}"
    )
    if found.vocab_size != vocab + (mask_token(found.config) == vocab):
        raise UnsupportedModel(
            f"draft {found.label} has {found.vocab_size} rows for tokens, the target {vocab}; it cannot be trained on",
            hint="train a new one: headstart train draft",
        )
    return loading.read_model(found.source, found.config, torch.float32)


def _config(shape: FullShape, target: Any) -> LlamaConfig:
    text = target.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", 10000.0) if isinstance(rope.get("rope_theta", 0.0), float | int) else 10000.0
    return LlamaConfig(
        vocab_size=text.vocab_size,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        tie_word_embeddings=True,
        max_position_embeddings=getattr(text, "max_position_embeddings", None) or 4096,
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
        rms_norm_eps=1e-5,
        bos_token_id=text.bos_token_id,
        eos_token_id=text.eos_token_id,
        pad_token_id=None,
    )


@torch.no_grad()
def _inherit(draft: LlamaForCausalLM, target: Any) -> None:
    """Embeddings from the target's output matrix; blocks and the last norm too if the widths are the same."""
    head = target.get_output_embeddings()
    if head is None:
        return
    embedding = draft.model.embed_tokens.weight
    embedding.copy_(reduced(head.weight.detach().float(), embedding.shape[1]))
    theirs = target.state_dict()
    depth = target.config.get_text_config().num_hidden_layers
    for name, weight in draft.state_dict().items():
        parts = name.split(".")
        if parts[:2] == ["model", "layers"]:
            parts[2] = str(_source_layer(int(parts[2]), draft.config.num_hidden_layers, depth))
        source = theirs.get(".".join(parts))
        if source is not None and source.shape == weight.shape and draft.config.hidden_size == head.weight.shape[1]:
            weight.copy_(source)


def reduced(matrix: Tensor, width: int) -> Tensor:
    """[V, H] to [V, width]: the projection on the leading right singular vectors, which keeps inner products best.

    The scale is that of fresh embeddings (0.02), so that the same learning rate suits. A wider draft is padded with
    small noise.
    """
    values, vectors = torch.linalg.eigh(matrix.T @ matrix)  # ascending; cheaper than an SVD of [V, H]
    basis = vectors[:, values.argsort(descending=True)[:width]]
    projected = matrix @ basis
    if projected.shape[1] < width:
        missing = torch.randn(len(matrix), width - projected.shape[1]) * projected.std() * 0.1
        projected = torch.cat([projected, missing], dim=1)
    scaled: Tensor = projected * (0.02 / projected.std())
    return scaled


def _source_layer(layer: int, layers: int, depth: int) -> int:
    """Which of the target's layers a draft's layer starts from: evenly spread, the last from the last."""
    return depth - 1 if layers == 1 else round(layer * (depth - 1) / (layers - 1))


def _multiple(value: int, of: int) -> int:
    return max(of, round(value / of) * of)


def _divisor(value: int, near: int) -> int:
    """The largest divisor of `value` that is at most `near`, and at least 1."""
    return next(d for d in range(max(1, min(near, value)), 0, -1) if value % d == 0)
