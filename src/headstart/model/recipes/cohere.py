"""Command R (Cohere): one norm before attention and MLP, which are added together; numbers of a head turn in pairs."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import attention, decoder, mlp, whole, windows
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe, Rope
from headstart.model.recipes.stated import Stated


def norm(stated: Stated, name: str) -> Norm:
    return Norm(name, stated.layer_norm_eps, kind="layer")


def cohere(stated: Stated) -> Recipe:
    """With `use_qk_norm` (Command R+) queries and keys are normed, each head by a gain of its own."""
    stated.without_effect("model_max_length")
    made = _attention(stated)
    if stated.get("use_qk_norm"):
        q, k = norm(stated, "self_attn.q_norm"), norm(stated, "self_attn.k_norm")
        made = replace(made, q_norm=q, k_norm=k, norm_over="each")
    return _decoder(stated, [made] * stated.num_hidden_layers)


def cohere2(stated: Stated) -> Recipe:
    """Layers with a window turn; those without know no positions."""
    for name, value in AS_COMPUTED.items():
        stated.must_be(name, value)
    # `layer_types` says what comes of the last three
    stated.without_effect(
        "cache_implementation", "layer_switch", "order_of_interleaved_layers", "sliding_window_pattern"
    )
    plain = _attention(stated)
    rope = plain.rope
    return _decoder(
        stated, [replace(plain, window=each, rope=None if each is None else rope) for each in windows(stated)]
    )


AS_COMPUTED = {
    "position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_embedding_sharing": True,
    "use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": True, "use_qk_norm": False,
}  # fmt: skip
"""What checkpoints state and transformers computes anyway."""


def _attention(stated: Stated) -> Attention:
    whole(stated)
    made = attention(stated)
    return replace(made, rope=Rope(made.dim, pairs=True, table_pairs=True))


def _decoder(stated: Stated, attentions: list[Attention]) -> Recipe:
    before = norm(stated, "input_layernorm")
    layers = [Layer(each, mlp(stated), before, before, parallel=True) for each in attentions]
    made = decoder(stated, layers, norm(stated, "model.norm"))
    return replace(made, logit_factor=stated.get("logit_scale", 1.0))
