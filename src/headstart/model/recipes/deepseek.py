"""Families with latent attention: DeepSeek V2 and V3, GLM-4.7-Flash, Mistral 4, Kimi Linear, Youtu and MiniCPM3."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import activation, decoder, mlp, rms
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.latent import latent
from headstart.model.recipes.mixers import ChannelRule
from headstart.model.recipes.mlp import Mlp
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Layer, Recipe
from headstart.model.recipes.stated import Stated

_OF_EXPERTS = (
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group",
    "norm_topk_prob", "routed_scaling_factor", "topk_method",
)  # fmt: skip


def deepseek_v2(stated: Stated) -> Recipe:
    """Scores are a softmax; groups are as good as their best expert."""
    dense = _layer(stated, pairs=True)
    count, first = stated.num_hidden_layers, stated.first_k_dense_replace
    stated.must_be("scoring_func", "softmax")
    stated.must_be("norm_topk_prob", False)  # the class of transformers passes it over
    if first >= count:
        return _dense(stated, dense)
    method = stated.topk_method
    stated.without_effect("n_group", "topk_group")  # unless the method has groups
    router = Router(stated.num_experts_per_tok, factor=float(stated.routed_scaling_factor), wide=True)
    if method == "group_limited_greedy":
        router = replace(router, groups=stated.n_group, groups_kept=stated.topk_group, group_best=1)
    elif method != "greedy":
        raise stated.refused("topk_method", method)
    return _mixed(stated, dense, [i >= first for i in range(count)], router)


def deepseek_v3(stated: Stated) -> Recipe:
    """Scores are sigmoids, to which a bias is added for the choice."""
    first, count = stated.first_k_dense_replace, stated.num_hidden_layers
    return _by_sigmoids(stated, [i >= first for i in range(count)])


def glm4_moe_lite(stated: Stated) -> Recipe:
    """GLM-4.7-Flash: DeepSeek V3 whose config says of each layer whether it has experts."""
    sparse = _sparse(stated)
    stated.must_be("first_k_dense_replace", sparse.count(False))  # the class of transformers passes it over
    stated.must_be("partial_rotary_factor", 1.0)
    return _by_sigmoids(stated, sparse)


def kimi_linear(stated: Stated) -> Recipe:
    """Latent attention without positions in some layers, and a delta rule that decays by channel in the others."""
    stated.must_be("hidden_act", "silu")  # of the convolution too
    stated.must_be("mla_use_nope", True)
    stated.must_be("moe_router_activation_func", "sigmoid")
    # what is said by other fields, and how positions are called
    stated.without_effect("linear_attn_config", "use_grouped_topk", "first_k_dense_replace", "model_max_length")
    dense, heads, dim = _layer(stated, pairs=False), stated.linear_num_heads, stated.linear_head_dim
    recurs = ChannelRule(
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        taps=stated.linear_conv_kernel_dim,
        norm=Norm("self_attn.o_norm", stated.rms_norm_eps),
        inputs=tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "forget_gate.f_a", "g_a", "b")),
        conv="self_attn.conv1d",
        decay="self_attn.forget_gate.A_log",
        bias="self_attn.forget_gate.dt_bias",
        out="self_attn.o_proj",
        rank=dim,
    )
    kinds = {"full_attention": dense.attending(rope=None), "linear_attention": replace(dense, mixer=recurs)}
    experts = _experts(stated, _sigmoids(stated), stated.num_local_experts)
    layers = [
        replace(layer, feed_forward=experts) if sparse else layer
        for layer, sparse in zip(stated.kinds(kinds), _sparse(stated), strict=True)
    ]
    return replace(decoder(stated, layers), rotary=None)


def mistral4(stated: Stated) -> Recipe:
    """Scores are a softmax, in the dtype of the weights; queries grow with their position."""
    more = ("llama_4_scaling_beta", "max_position_embeddings")  # the latter is the config's own again
    rope = stated.rope(*more)
    dense = _layer(stated, *more, pairs=bool(stated.rope_interleave)).attending(
        query_beta=rope["llama_4_scaling_beta"], query_origin=rope["original_max_position_embeddings"]
    )
    count, first = stated.num_hidden_layers, stated.first_k_dense_replace
    if first >= count:
        return _dense(stated, dense)
    router = Router(
        stated.num_experts_per_tok,
        groups=stated.n_group,
        groups_kept=stated.topk_group,
        normalised=bool(stated.norm_topk_prob),
        least_sum=1e-20,
        factor=float(stated.routed_scaling_factor),
    )
    return _mixed(stated, dense, [i >= first for i in range(count)], router)


def youtu(stated: Stated) -> Recipe:
    """Latent attention with an MLP in every layer."""
    stated.without_effect("embedding_initializer_range")
    return decoder(stated, [_layer(stated, pairs=bool(stated.rope_interleave))] * stated.num_hidden_layers)


def minicpm3(stated: Stated) -> Recipe:
    """What a layer adds is less the more layers there are."""
    layer = replace(
        _layer(stated, pairs=False), residual_factor=float(stated.scale_depth) / float(stated.num_hidden_layers) ** 0.5
    )
    return replace(
        decoder(stated, [layer] * stated.num_hidden_layers),
        embedding_factor=float(stated.scale_emb),
        embedding_factor_rounded=True,
        logit_factor=stated.dim_model_base / stated.hidden_size,
    )


def _sparse(stated: Stated) -> list[bool]:
    """Whether each layer has experts, where a config says so of each."""
    kinds = stated.mlp_layer_types[: stated.num_hidden_layers]
    if unknown := set(kinds) - {"dense", "sparse"}:
        raise stated.refused("mlp_layer_types", sorted(unknown)[0])
    return [kind == "sparse" for kind in kinds]


def _by_sigmoids(stated: Stated, sparse: list[bool]) -> Recipe:
    """sparse: whether each layer has experts."""
    dense = _layer(stated, pairs=bool(stated.rope_interleave))
    stated.must_be("scoring_func", "sigmoid")
    stated.must_be("topk_method", "noaux_tc")
    if not any(sparse):
        return _dense(stated, dense)
    return _mixed(stated, dense, sparse, _sigmoids(stated))


def _sigmoids(stated: Stated) -> Router:
    return Router(
        stated.num_experts_per_tok,
        "sigmoid",
        choice_bias="mlp.gate.e_score_correction_bias",
        groups=stated.n_group,
        groups_kept=stated.topk_group,
        normalised=bool(stated.norm_topk_prob),
        least_sum=1e-20,
        factor=float(stated.routed_scaling_factor),
        wide=True,
    )


def _mixed(stated: Stated, dense: Layer, sparse: list[bool], router: Router) -> Recipe:
    mixed = replace(dense, feed_forward=_experts(stated, router, stated.n_routed_experts))
    return decoder(stated, [mixed if each else dense for each in sparse])


def _experts(stated: Stated, router: Router, count: int) -> Experts:
    """An MLP beside the experts is that of `n_shared_experts` of them, as one."""
    width, act = stated.moe_intermediate_size, activation(stated)
    stated.must_be("moe_layer_freq", 1)
    stated.without_effect("aux_loss_alpha", "seq_aux", "ep_size")  # of training
    names = ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj")
    shared = Mlp(width * stated.n_shared_experts, act, names, "mlp.shared_experts.down_proj")
    return Experts(count, width, act, router, shared=shared)


def _dense(stated: Stated, layer: Layer) -> Recipe:
    stated.without_effect(*_OF_EXPERTS)
    return decoder(stated, [layer] * stated.num_hidden_layers)


def _layer(stated: Stated, *more: str, pairs: bool) -> Layer:
    """A layer with an MLP. more: of the rotation, see `Stated.rope`."""
    return Layer(
        latent(stated, *more, pairs=pairs),
        mlp(stated),
        rms(stated, "input_layernorm"),
        rms(stated, "post_attention_layernorm"),
    )
