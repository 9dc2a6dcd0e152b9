"""LFM2 and 3: short convolutions, and attention in some layers."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, heads, rms, rotary, shared, whole
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.mixers import ShortConv
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Recipe, Rope
from headstart.model.recipes.stated import Stated


def lfm2(stated: Stated) -> Recipe:
    """Also LFM2.5."""
    stated.without_effect("full_attn_idxs")  # `layer_types` says what comes of it
    return _lfm2(stated, _mlp(_width(stated)))


def lfm2_moe(stated: Stated) -> Recipe:
    """The first layers have no experts; a bias helps to choose."""
    at, normalised = "feed_forward", bool(stated.norm_topk_prob)
    router = Router(
        stated.num_experts_per_tok,
        "sigmoid",
        f"{at}.gate.weight",
        choice_bias=f"{at}.expert_bias" if stated.use_expert_bias else None,
        normalised=normalised,
        least_sum=1e-6 if normalised else 0.0,
        factor=float(stated.routed_scaling_factor),
    )
    names = (f"{at}.experts.gate_up_proj",), f"{at}.experts.down_proj"
    experts = Experts(stated.num_experts, stated.moe_intermediate_size, "silu", router, *names)
    made, dense = _lfm2(stated, _mlp(stated.intermediate_size)), stated.num_dense_layers
    layers = [replace(each, feed_forward=experts) if i >= dense else each for i, each in enumerate(made.layers)]
    return replace(made, layers=shared(layers), rotary="model.pos_emb")


def _mlp(width: int) -> Mlp:
    return Mlp(width, "silu", ("feed_forward.w1", "feed_forward.w3"), "feed_forward.w2")


def _lfm2(stated: Stated, mlp: Mlp) -> Recipe:
    """Keys and queries are normed by head."""
    eps = stated.norm_eps
    stated.rope()
    count, kv_heads, dim = heads(stated)
    attention = Attention(
        count, kv_heads, dim, dim**-0.5, Rope(rotary(stated, dim)), out="self_attn.out_proj",
        q_norm=Norm("self_attn.q_layernorm", eps), k_norm=Norm("self_attn.k_layernorm", eps),
    )  # fmt: skip
    stated.get("conv_bias")
    short = ShortConv(stated.hidden_size, stated.conv_L_cache)
    attends = Layer(attention, mlp, Norm("operator_norm", eps), Norm("ffn_norm", eps))
    convolves = replace(attends, mixer=short)
    kinds = {"full_attention": attends, "conv": convolves}
    layers = tuple(stated.kinds(kinds))
    return Recipe(stated.hidden_size, stated.vocab_size, layers, Norm("model.embedding_norm", eps))


def lfm3(stated: Stated) -> Recipe:
    """Layers with a window turn by other angles than those without; a gate multiplies each head of attention."""
    count, kv_heads, dim = heads(stated)
    stated.get("attention_bias")
    stated.get("conv_bias")
    gated, window = bool(stated.use_attention_gate), stated.sliding_window
    attends = Attention(count, kv_heads, dim, dim**-0.5, None, gated=gated, gate_by_head=gated)
    attends = replace(attends, q_norm=rms(stated, "self_attn.q_norm"), k_norm=rms(stated, "self_attn.k_norm"))
    if gated:
        attends = replace(attends, qkv=(*attends.qkv, "self_attn.g_proj"))

    def turning(kind: str, window: int | None) -> Attention:
        if stated.rope(table=kind).get("rope_type") != "proportional":  # those of it that do not turn have the angle 0
            whole(stated, kind)
        return replace(attends, rope=Rope(dim, table=kind), window=window)

    short, mlp = ShortConv(stated.hidden_size, stated.conv_L_cache), _mlp(stated.intermediate_size)
    convolves = Layer(short, mlp, rms(stated, "operator_norm"), rms(stated, "ffn_norm"))
    if stated.use_sandwich_norm:
        after = rms(stated, "post_operator_norm"), rms(stated, "post_ffn_norm")
        convolves = replace(convolves, attention_out=after[0], mlp_out=after[1])
    kinds = {"conv": convolves}
    for kind, seen in (("full_attention", None), ("sliding_attention", window)):
        if kind in stated.layer_types:
            kinds[kind] = replace(convolves, mixer=turning(kind, seen))
    return decoder(stated, stated.kinds(kinds), rms(stated, "model.embedding_norm"))


def _width(stated: Stated) -> int:
    """Of the MLP, as the class makes it of what the config says."""
    width, factor = int(stated.intermediate_size), stated.get("block_ffn_dim_multiplier")
    step = int(stated.block_multiple_of)
    if not stated.block_auto_adjust_ff_dim:
        return width
    width = int(2 * width / 3)
    if factor is not None:
        width = step * -(-int(factor * width) // step)
    return width
