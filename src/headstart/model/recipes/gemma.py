"""Gemma 1 to 3: gains to which 1 is added. From Gemma 2, norms on both sides of attention and MLP, capped scores,
windows and rotations by kind of layer."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, heads, layer, mlp, windows
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe, Rope
from headstart.model.recipes.stated import Stated


def norm(stated: Stated, name: str) -> Norm:
    return Norm(name, stated.rms_norm_eps, offset=1.0, wide_gain=True)


def gemma(stated: Stated) -> Recipe:
    """Gemma 1, whose activation is `hidden_act`."""
    stated.must_be("use_bidirectional_attention", False)
    stated.without_effect("hidden_activation")
    plain = replace(
        layer(stated), attention_in=norm(stated, "input_layernorm"), mlp_in=norm(stated, "post_attention_layernorm")
    )
    return _scaled(stated, [plain] * stated.num_hidden_layers)


def _scaled(stated: Stated, layers: list[Layer]) -> Recipe:
    return replace(
        decoder(stated, layers),
        final_norm=norm(stated, "model.norm"),
        embedding_factor=stated.hidden_size**0.5,
        embedding_factor_rounded=True,
    )


def gemma2(stated: Stated, *, tables: bool = False) -> Recipe:
    """tables: whether layers with a window turn by other angles than those without."""
    stated.must_be("use_bidirectional_attention", False)
    stated.get("attention_bias")
    count, kv_heads, dim = heads(stated)
    layers = []
    for kind, window in zip(stated.layer_types, windows(stated), strict=True):
        table = kind if tables else None
        stated.rope(table=table)
        attention = Attention(
            count, kv_heads, dim, stated.query_pre_attn_scalar**-0.5, Rope(dim, table=table), window=window,
            softcap=stated.get("attn_logit_softcapping"),
        )  # fmt: skip
        layers.append(
            Layer(
                attention,
                mlp(stated, "hidden_activation"),
                attention_in=norm(stated, "input_layernorm"),
                attention_out=norm(stated, "post_attention_layernorm"),
                mlp_in=norm(stated, "pre_feedforward_layernorm"),
                mlp_out=norm(stated, "post_feedforward_layernorm"),
            )
        )
    return replace(_scaled(stated, layers), logit_softcap=stated.get("final_logit_softcapping"))


def gemma3(stated: Stated) -> Recipe:
    made = gemma2(stated, tables=True)
    q, k = norm(stated, "self_attn.q_norm"), norm(stated, "self_attn.k_norm")
    return replace(
        made,
        layers=tuple(
            x.attending(q_norm=q, k_norm=k, softcap=None)  # transformers caps no scores
            for x in made.layers
        ),
    )
