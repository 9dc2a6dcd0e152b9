"""The sizes of a head in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.base.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head: those of one layer of the target, and of the vocabulary it may propose from.

    parallel: it guesses further with masked rows instead of its own states. selector_rank: 0 for a head without one.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    draft_vocab: int
    rope_theta: float
    eps: float
    norm_before_residual: bool = False
    layers: int = 1
    parallel: bool = False
    selector_rank: int = 0
    selector_top_k: int = 0
    vocab: int = 0
    """Of the target; only a selector needs it."""

    @classmethod
    def of(cls, config: Any, draft_vocab: int, **more: Any) -> HeadShape:
        """From the target's config; what it leaves out is taken as Llama's. `more` are other fields."""
        text = config.get_text_config()
        hidden, heads = int(text.hidden_size), int(text.num_attention_heads)
        rope = getattr(text, "rope_parameters", None) or {}
        theta = rope.get("rope_theta")
        shape = cls(
            hidden=hidden,
            intermediate=_whole(text, "intermediate_size", 8 * hidden // 3),
            heads=heads,
            kv_heads=_whole(text, "num_key_value_heads", heads),
            head_dim=_whole(text, "head_dim", hidden // heads),
            draft_vocab=draft_vocab,
            rope_theta=float(theta) if isinstance(theta, float | int) else 10000.0,
            eps=float(getattr(text, "rms_norm_eps", None) or 1e-5),
            vocab=int(text.vocab_size),
            **more,
        )
        if shape.head_dim % 2 or heads % shape.kv_heads:
            raise UnsupportedModel(
                f"{text.model_type} has attention heads of width {shape.head_dim}, {heads} over {shape.kv_heads}",
                hint="an EAGLE-3 head needs an even width, and query heads that are a multiple of the others",
            )
        return shape


def _whole(config: Any, name: str, default: int) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and value > 0 else default
