"""Gemma 4: two sizes of heads, keys and values that layers share, and an input of each layer's own for each token."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import activation, decoder, windows
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.recipe import Attention, Layer, LayerInput, Mlp, Norm, Recipe, Rope, TokenInputs
from headstart.model.recipes.stated import Stated


def norm(stated: Stated, name: str | None) -> Norm:
    return Norm(name, stated.rms_norm_eps, wide_gain=True)


def gemma4(stated: Stated) -> Recipe:
    """Also the "unified" one (12B), which has no inputs of layers, and the mixture of experts (26B-A4B)."""
    stated.must_be("use_bidirectional_attention", "vision")  # which acts on the tokens of images alone
    experts = _experts(stated) if stated.get("enable_moe_block") else None
    if experts is None:
        stated.without_effect("num_experts", "top_k_experts", "moe_intermediate_size")
    kinds, shared = stated.layer_types, stated.num_kv_shared_layers
    storing = kinds[: len(kinds) - shared]
    layers = []
    for index, (kind, window) in enumerate(zip(kinds, windows(stated), strict=True)):
        made = _layer(stated, index, kind, window, stores=index < len(storing))
        if index >= len(storing):
            if kind not in storing:
                raise stated.refused("num_kv_shared_layers", shared)
            made = made.attending(keys_of=len(storing) - 1 - storing[::-1].index(kind))
        if experts is not None:
            made = replace(made, feed_forward=replace(experts, shared=made.mlp))
        layers.append(made)
    return replace(
        decoder(stated, layers),
        final_norm=norm(stated, "model.norm"),
        embedding_factor=stated.hidden_size**0.5,
        embedding_factor_rounded=True,
        inputs=_inputs(stated),
        logit_softcap=stated.get("final_logit_softcapping"),
    )


def _experts(stated: Stated) -> Experts:
    """Beside each layer's MLP, from the stream itself, which router and experts norm for themselves."""
    router = Router(
        stated.top_k_experts, weight="router.proj.weight", normalised=True, norm=norm(stated, None),
        gain="router.scale", expert_factors="router.per_expert_scale",
    )  # fmt: skip
    return Experts(
        stated.num_experts,
        stated.moe_intermediate_size,
        activation(stated, "hidden_activation"),
        router,
        ("experts.gate_up_proj",),
        "experts.down_proj",
        input_norm=norm(stated, "pre_feedforward_layernorm_2"),
        output_norm=norm(stated, "post_feedforward_layernorm_2"),
        shared_norm=norm(stated, "post_feedforward_layernorm_1"),
    )


def gemma4_assistant(stated: Stated) -> Recipe:
    """What drafts for a Gemma 4: layers of its kind without keys of their own. Whose they attend to is for the caller
    to say (`keys_of`). Its embedding is its output matrix alone, and nothing caps its logits."""
    count = stated.num_hidden_layers
    for name, value in {"num_kv_shared_layers": count, "use_double_wide_mlp": False, "enable_moe_block": False}.items():
        stated.must_be(name, value)
    for name in ("hidden_size_per_layer_input", "vocab_size_per_layer_input"):
        stated.must_be(name, 0)
    stated.must_be("use_bidirectional_attention", "vision")
    stated.without_effect("num_experts", "top_k_experts", "moe_intermediate_size", "final_logit_softcapping")
    layers = [
        _layer(stated, index, kind, window, stores=False)
        for index, (kind, window) in enumerate(zip(stated.layer_types, windows(stated), strict=True))
    ]
    return decoder(stated, layers, norm(stated, "model.norm"))


def _layer(stated: Stated, index: int, kind: str, window: int | None, *, stores: bool) -> Layer:
    wide = stated.use_double_wide_mlp and not stores
    width = stated.get("hidden_size_per_layer_input")
    own = LayerInput(
        width, "per_layer_input_gate", "per_layer_projection", norm(stated, "post_per_layer_input_norm")
    )  # fmt: skip
    return Layer(
        _attention(stated, index, kind, window, stores=stores),
        Mlp(stated.intermediate_size * (2 if wide else 1), activation(stated, "hidden_activation")),
        attention_in=norm(stated, "input_layernorm"),
        attention_out=norm(stated, "post_attention_layernorm"),
        mlp_in=norm(stated, "pre_feedforward_layernorm"),
        mlp_out=norm(stated, "post_feedforward_layernorm"),
        input=own if width else None,
        factor="layer_scalar",
    )


def _attention(stated: Stated, index: int, kind: str, window: int | None, *, stores: bool) -> Attention:
    own = stated.by_layer("head_dim", "num_key_value_heads")[index]
    stated.rope(table=kind)
    stated.get("attention_bias")
    value_is_key = stated.attention_k_eq_v and kind == "full_attention" and stores
    names = ("q_proj", "k_proj", "v_proj")[: 1 if not stores else 2 if value_is_key else 3]
    return Attention(
        stated.num_attention_heads,
        own.num_key_value_heads,
        own.head_dim,
        scaling=1.0,
        rope=Rope(own.head_dim, table=kind),  # those that do not turn have the angle 0
        qkv=tuple(f"self_attn.{name}" for name in names),
        window=window,
        q_norm=norm(stated, "self_attn.q_norm"),
        k_norm=norm(stated, "self_attn.k_norm") if stores else None,
        v_norm=norm(stated, None) if stores else None,
        value_is_key=value_is_key,
    )


def _inputs(stated: Stated) -> TokenInputs | None:
    width = stated.get("hidden_size_per_layer_input")
    tokens = stated.get("vocab_size_per_layer_input")
    if not width:
        return None
    stated.must_be("hidden_activation", "gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # that of `LayerInput`
    if tokens is None or tokens < stated.vocab_size:
        raise stated.refused("vocab_size_per_layer_input", tokens)
    return TokenInputs(
        width,
        table="model.embed_tokens_per_layer",
        factor=width**0.5,
        factor_rounded=True,
        projection="model.per_layer_model_projection",
        projection_factor=stated.hidden_size**-0.5,
        norm=norm(stated, "model.per_layer_projection_norm"),
        sum_factor=2.0**-0.5,
    )
