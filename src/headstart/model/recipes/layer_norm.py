"""StarCoder 2, Nemotron, Phi-2 and StableLM: Llama's attention with norms that take the mean off (LayerNorm); all but
StableLM have MLPs without a gate."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import attention, decoder, mlp, whole, windowed
from headstart.model.recipes.recipe import Layer, Mlp, Norm, Recipe
from headstart.model.recipes.stated import Stated


def plain(stated: Stated, up: str, down: str) -> Mlp:
    """An MLP without a gate."""
    return replace(mlp(stated), gate_up=(up,), down=down, gated=False)


def starcoder2(stated: Stated) -> Recipe:
    stated.get("use_bias")
    whole(stated)

    def norm(name: str) -> Norm:
        return Norm(name, stated.norm_epsilon, kind="layer")

    layer = Layer(
        attention(stated), plain(stated, "mlp.c_fc", "mlp.c_proj"), norm("input_layernorm"),
        norm("post_attention_layernorm"),
    )  # fmt: skip
    layer = windowed(layer, stated.get("sliding_window"))
    return decoder(stated, [layer] * stated.num_hidden_layers, norm("model.norm"))


def nemotron(stated: Stated) -> Recipe:
    """Gains are stored less 1."""

    def norm(name: str) -> Norm:
        return Norm(name, stated.norm_eps, kind="layer", offset=1.0)

    layer = Layer(
        attention(stated), plain(stated, "mlp.up_proj", "mlp.down_proj"),
        norm("input_layernorm"), norm("post_attention_layernorm"),
    )  # fmt: skip
    return decoder(stated, [layer] * stated.num_hidden_layers, norm("model.norm"))


def phi(stated: Stated) -> Recipe:
    """Phi-1 to Phi-2: attention and MLP read one norm and are added together."""

    def norm(name: str) -> Norm:
        return Norm(name, stated.layer_norm_eps, kind="layer")

    made = replace(attention(stated), out="self_attn.dense")
    if stated.get("qk_layernorm"):
        made = replace(made, q_norm=norm("self_attn.q_layernorm"), k_norm=norm("self_attn.k_layernorm"))
    before = norm("input_layernorm")
    layer = Layer(made, plain(stated, "mlp.fc1", "mlp.fc2"), before, before, parallel=True)
    return decoder(stated, [layer] * stated.num_hidden_layers, norm("model.final_layernorm"))


def stablelm(stated: Stated) -> Recipe:
    """StableLM 2 12B norms each head's queries and keys by a gain of its own, and adds attention and MLP together."""
    stated.get("use_qkv_bias")

    def norm(name: str) -> Norm:
        return Norm(name, stated.layer_norm_eps, kind="layer")

    made = attention(stated)
    if stated.get("qk_layernorm"):
        q, k = norm("self_attn.q_layernorm.norms"), norm("self_attn.k_layernorm.norms")
        made = replace(made, q_norm=q, k_norm=k, norm_over="each")
    before, parallel = norm("input_layernorm"), bool(stated.get("use_parallel_residual"))
    layer = Layer(
        made, mlp(stated), before, before if parallel else norm("post_attention_layernorm"), parallel=parallel
    )
    return decoder(stated, [layer] * stated.num_hidden_layers, norm("model.norm"))
