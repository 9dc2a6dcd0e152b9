"""OLMo 1 to 3: a norm without weights, then norms after attention and MLP alone, and queries and keys normed whole;
and OLMo hybrid, most of whose layers have the gated delta rule."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import attention, decoder, heads, mlp, rms, whole, windows
from headstart.model.recipes.mixers import DeltaRule
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe, Rope
from headstart.model.recipes.stated import Stated


def olmo(stated: Stated) -> Recipe:
    stated.must_be("clip_qkv")
    whole(stated)
    norm = Norm(None, 1e-5, kind="layer")
    layer = Layer(attention(stated), mlp(stated), norm, norm)
    return decoder(stated, [layer] * stated.num_hidden_layers, norm)


def olmo2(stated: Stated) -> Recipe:
    whole(stated)
    return _post_normed(stated, [attention(stated)] * stated.num_hidden_layers)


def olmo3(stated: Stated) -> Recipe:
    """Layers with a window turn by other angles than those without."""
    stated.get("attention_bias")
    count, kv_heads, dim = heads(stated)
    attentions = []
    for kind, window in zip(stated.layer_types, windows(stated), strict=True):
        whole(stated, kind)
        attentions.append(Attention(count, kv_heads, dim, dim**-0.5, Rope(dim, table=kind), window=window))
    return _post_normed(stated, attentions)


def olmo_hybrid(stated: Stated) -> Recipe:
    """Recurrent layers have their norms before, attention has them after; its positions may be none."""
    stated.without_effect(
        "linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"
    )
    stated.must_be("hidden_act", "silu")  # of the convolution too
    whole(stated)
    attends = attention(stated)
    if (stated.get("rope_parameters") or {}).get("rope_theta") is None:
        attends = replace(attends, rope=None)
    found = _post_normed(stated, [attends] * stated.num_hidden_layers)
    recurs = DeltaRule(
        heads=stated.linear_num_value_heads,
        key_heads=stated.linear_num_key_heads,
        key_dim=stated.linear_key_head_dim,
        value_dim=stated.linear_value_head_dim,
        taps=stated.linear_conv_kernel_dim,
        norm=Norm("linear_attn.o_norm", 1e-5),
        beta_factor=2.0 if stated.linear_allow_neg_eigval else 1.0,
        inputs=tuple(f"linear_attn.{name}_proj" for name in ("q", "k", "v", "g", "b", "a")),
        out="linear_attn.o_proj",
    )
    before = Layer(recurs, mlp(stated), _wide(stated, "input_layernorm"), _wide(stated, "post_attention_layernorm"))
    kinds = {"full_attention": found.layers[0], "linear_attention": before}
    return replace(found, layers=tuple(stated.kinds(kinds)), rotary=found.rotary if attends.rope else None)


def _wide(stated: Stated, name: str) -> Norm:
    return replace(rms(stated, name), wide_gain=True)


def _post_normed(stated: Stated, attentions: list[Attention]) -> Recipe:
    q, k = _wide(stated, "self_attn.q_norm"), _wide(stated, "self_attn.k_norm")
    layers = [
        Layer(
            replace(each, q_norm=q, k_norm=k, norm_over="all"),
            mlp(stated),
            attention_in=None,
            mlp_in=None,
            attention_out=_wide(stated, "post_attention_layernorm"),
            mlp_out=_wide(stated, "post_feedforward_layernorm"),
        )
        for each in attentions
    ]
    return decoder(stated, layers, _wide(stated, "model.norm"))
