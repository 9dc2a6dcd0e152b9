"""The tensors of an EAGLE head: by the names of every form, and checked against its config."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from headstart.model.heads.eagle_config import EAGLE3, HeadConfig
from headstart.model.heads.stored_tensors import ATTENTION, MLP, Shapes, check_shapes

SELECTOR = "candidate_selector"
"""Under which name the tensors of a selector stand."""


def canonical(name: str) -> str:
    """The name without what tells one form of checkpoint from another."""
    for prefix in ("model.", "midlayer.", "layers.0."):
        name = name.removeprefix(prefix)
    return name


def check_tensors(config: HeadConfig, tensors: Mapping[str, Tensor]) -> None:
    """Every tensor there and of the shape that the config gives it, and none that would be left unused."""
    check_shapes(config.name, *_shapes(config), tensors)


def _shapes(config: HeadConfig) -> tuple[Shapes, Shapes]:
    """Shapes of the tensors that must be there, and of those that may."""
    d, third = config.width, config.version == EAGLE3
    needed: Shapes = {"fc.weight": (d, config.fused_inputs)}
    optional: Shapes = {"fc.bias": (d,), "embed_tokens.weight": (config.vocab_size, d)}
    for layer in range(config.layers):
        for all_, of_layer in zip((needed, optional), _layer_shapes(config, layer), strict=True):
            all_ |= {layer_name(layer, name): shape for name, shape in of_layer.items()}
    head = {"lm_head.weight": (config.draft_vocab_size, d)}
    if third:
        needed |= {f"{name}.weight": (d,) for name in ("hidden_norm", "norm")}
        optional |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
        if config.norm_before_fc:
            needed |= {"input_norm.weight": (config.fused_inputs,)}
        if config.fc_norm:
            needed |= {f"fc_norm.{i}.weight": (config.target_width,) for i in range(len(config.layer_ids))}
    if config.parallel:
        needed["mask_hidden"] = (1, 1, config.features)
    if rank := config.selector_rank:
        needed |= {
            f"{SELECTOR}.predecessor_codebook": (config.vocab_size, rank),
            f"{SELECTOR}.successor_codebook": (config.draft_vocab_size, rank),
            f"{SELECTOR}.hidden_projection.weight": (rank, d),
        }
    # The target's own head and embedding stand in where they fit
    borrowable = config.draft_vocab_size == config.vocab_size and d == config.target_width
    (optional if borrowable else needed).update(head)
    if d != config.target_width:
        needed["embed_tokens.weight"] = optional.pop("embed_tokens.weight")
    return needed, optional


def _layer_shapes(config: HeadConfig, layer: int) -> tuple[Shapes, Shapes]:
    """The same of one decoder layer. The first of EAGLE-3 takes [embedding | state], that of EAGLE-1 has no norm."""
    d, inner = config.width, config.intermediate
    queries, keys = config.heads * config.dim, config.kv_heads * config.dim
    first, third = layer == 0, config.version == EAGLE3
    into = 2 * d if first and third else d
    attention = dict(zip(ATTENTION, ((queries, into), (keys, into), (keys, into), (d, queries)), strict=True))
    needed: Shapes = {"post_attention_layernorm.weight": (d,)}
    if third or not first:
        needed["input_layernorm.weight"] = (d,)
    needed |= {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
    needed |= {f"mlp.{name}.weight": (inner, d) for name in MLP[:2]} | {"mlp.down_proj.weight": (d, inner)}
    optional: Shapes = {f"self_attn.{name}.bias": shape[:1] for name, shape in attention.items()}
    optional |= {f"self_attn.{name}.weight": (config.dim,) for name in ("q_norm", "k_norm")}
    optional |= {f"mlp.{name}.bias": (inner,) for name in MLP[:2]} | {"mlp.down_proj.bias": (d,)}
    return needed, optional


def layer_name(layer: int, name: str) -> str:
    """A layer's tensor as it is known here: those of the first have no prefix."""
    return f"layers.{layer}.{name}" if layer else name
