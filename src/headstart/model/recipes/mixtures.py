"""Families whose layers are another family's, with a mixture of experts in place of the MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headstart.model.recipes.common import activation, attention, decoder, layer, rms, whole, with_norms
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.granite import granite
from headstart.model.recipes.hunyuan import hunyuan_v1
from headstart.model.recipes.llama import mistral, qwen2, qwen3
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.pairs import ernie4_5
from headstart.model.recipes.recipe import Layer, Mlp, Recipe
from headstart.model.recipes.stated import Stated

NORMALISED = 1e-20
"""What DeepSeek's routers and their kind add to the sum of weights."""


def qwen3_moe(stated: Stated) -> Recipe:
    """Experts in all layers but those that the config names."""
    return _fed(stated, qwen3(stated).layers, qwen_experts(stated, normalised=stated.norm_topk_prob), by_step(stated))


def qwen2_moe(stated: Stated) -> Recipe:
    """A gate decides how much of the shared expert is added."""
    stated.get("qkv_bias")
    experts = with_shared(stated, qwen_experts(stated, normalised=stated.norm_topk_prob))
    return _fed(stated, qwen2(stated).layers, experts, by_step(stated))


def mixtral(stated: Stated) -> Recipe:
    """The MLP's width in the config is that of an expert."""
    router = Router(stated.num_experts_per_tok, normalised=True)
    stated.without_effect("router_jitter_noise")  # of training
    return _fed(stated, mistral(stated).layers, _of(stated, stated.num_local_experts, stated.intermediate_size, router))


def granitemoe(stated: Stated) -> Recipe:
    """Also with a shared MLP."""
    made, experts = granite(stated), granite_experts(stated)
    if width := stated.get("shared_intermediate_size"):
        experts = replace(experts, shared=granite_shared(stated, width))
    return replace(made, layers=(replace(made.layers[0], feed_forward=experts),) * len(made.layers))


def granite_experts(stated: Stated) -> Experts:
    """Of Granite 3 and 4: the weights are a softmax of the chosen logits."""
    at = "block_sparse_moe"
    router = Router(stated.num_experts_per_tok, "chosen", f"{at}.router.weight")
    found = _of(stated, stated.num_local_experts, stated.intermediate_size, router)
    return replace(found, gate_up=(f"{at}.experts.gate_up_proj",), down=f"{at}.experts.down_proj")


def granite_shared(stated: Stated, width: int) -> Mlp:
    return Mlp(width, activation(stated), ("shared_mlp.input_linear",), "shared_mlp.output_linear")


def olmoe(stated: Stated) -> Recipe:
    """Queries and keys are normed over all heads."""
    whole(stated)
    stated.must_be("clip_qkv")
    plain = _normed_whole(stated, layer(stated, feed_forward=qwen_experts(stated, width=stated.intermediate_size)))
    return decoder(stated, [plain] * stated.num_hidden_layers)


def minimax_m2(stated: Stated) -> Recipe:
    """Scores are sigmoids, and a bias helps to choose."""
    router = Router(stated.num_experts_per_tok, "sigmoid", choice_bias="mlp.e_score_correction_bias", normalised=True)
    stated.without_effect("router_jitter_noise", "rotary_dim")  # the latter became a part of the rotation's fields
    experts = _of(stated, stated.num_local_experts, stated.intermediate_size, router)
    return decoder(stated, [_normed_whole(stated, layer(stated, feed_forward=experts))] * stated.num_hidden_layers)


def glm4_moe(stated: Stated) -> Recipe:
    """GLM 4.5 to 4.7: the first layers have no experts; half of each head turns."""
    plain = layer(stated)
    if stated.use_qk_norm:
        plain = with_norms(plain, rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm"))
    experts = replace(
        _of(stated, stated.n_routed_experts, stated.moe_intermediate_size, grouped_router(stated, "mlp.gate")),
        shared=_shared(stated, stated.moe_intermediate_size * stated.n_shared_experts, "mlp.shared_experts"),
    )
    first = stated.first_k_dense_replace
    return _fed(stated, [plain] * stated.num_hidden_layers, experts, lambda index: index >= first)


def grouped_router(stated: Stated, gate: str) -> Router:
    """A router as DeepSeek-V3's: sigmoids in float32, a bias of the choice, groups by their two best."""
    return Router(
        stated.num_experts_per_tok, "sigmoid", f"{gate}.weight", choice_bias=f"{gate}.e_score_correction_bias",
        groups=stated.n_group, groups_kept=stated.topk_group, normalised=stated.norm_topk_prob,
        least_sum=NORMALISED if stated.norm_topk_prob else 0.0, factor=float(stated.routed_scaling_factor), wide=True,
    )  # fmt: skip


def gpt_oss(stated: Stated) -> Recipe:
    """Attention has sinks, and in every second layer a window; matrices of experts lie by their inputs, gate and up in
    turns."""
    stated.get("attention_bias")
    rope = attention(stated).rope
    assert rope is not None, "a layer as Llama's turns"
    router = Router(stated.num_experts_per_tok, "chosen", "mlp.router.weight", "mlp.router.bias")
    experts = replace(
        _of(stated, stated.num_local_experts, stated.intermediate_size, router),
        gate_up_bias="mlp.experts.gate_up_proj_bias",
        down_bias="mlp.experts.down_proj_bias",
        transposed=True,
        interleaved=True,
        limit=float(stated.swiglu_limit),
        alpha=float(stated.swiglu_alpha),
    )

    def norm(name: str) -> Norm:
        return replace(rms(stated, name), wide_gain=True)

    layers = [
        replace(
            each.attending(rope=replace(rope, table_once=True), sinks="self_attn.sinks"),
            attention_in=norm("input_layernorm"),
            mlp_in=norm("post_attention_layernorm"),
        )
        for each in qwen2(stated).layers
    ]
    return replace(_fed(stated, layers, experts), final_norm=norm("model.norm"))


def ernie4_5_moe(stated: Stated) -> Recipe:
    """Weights are softmaxes in float32, and a bias helps to choose."""
    stated.must_be("moe_norm_min", 1e-12)  # the least sum of weights: the bias may choose experts whose weights are 0
    gate, step = "mlp.gate", stated.moe_layer_interval
    router = Router(
        stated.moe_k, weight=f"{gate}.weight", choice_bias=f"{gate}.moe_statics.e_score_correction_bias",
        normalised=True, least_sum=1e-12, wide=True,
    )  # fmt: skip
    experts = _of(stated, stated.moe_num_experts, stated.moe_intermediate_size, router)
    if shared := stated.moe_num_shared_experts:
        experts = replace(experts, shared=_shared(stated, stated.moe_intermediate_size * shared, "mlp.shared_experts"))
    first, last = stated.moe_layer_start_index, stated.moe_layer_end_index
    return _fed(
        stated, ernie4_5(stated).layers, experts, lambda index: first <= index <= last and (index + 1) % step == 0
    )


def hunyuan_v1_moe(stated: Stated) -> Recipe:
    """One number of experts for all layers, of which the shared one is of the same width."""
    for name in ("num_experts", "moe_topk"):
        if not isinstance(stated.get(name), int):
            raise stated.refused(name, stated.get(name))
    router = Router(stated.moe_topk, weight="mlp.gate.wg.weight", normalised=True, wide=True)
    experts = replace(
        _of(stated, stated.num_experts, stated.intermediate_size, router),
        shared=_shared(stated, stated.intermediate_size, "mlp.shared_mlp"),
    )
    return _fed(stated, hunyuan_v1(stated).layers, experts)


def qwen_experts(stated: Stated, *, normalised: bool | None = None, width: int | None = None) -> Experts:
    """Experts as Qwen's: softmaxes of all logits."""
    normalised = stated.norm_topk_prob if normalised is None else normalised
    router = Router(stated.num_experts_per_tok, normalised=normalised)
    return _of(stated, stated.num_experts, stated.moe_intermediate_size if width is None else width, router)


def with_shared(stated: Stated, experts: Experts) -> Experts:
    """The same beside a shared expert with a gate."""
    shared = _shared(stated, stated.shared_expert_intermediate_size, "mlp.shared_expert")
    return replace(experts, shared=shared, shared_gate="mlp.shared_expert_gate.weight")


def by_step(stated: Stated) -> Callable[[int], bool]:
    """Whether a layer has experts, as Qwen's configs say it."""
    step, plain = stated.decoder_sparse_step, stated.get("mlp_only_layers", [])
    return lambda index: index not in plain and (index + 1) % step == 0


def _of(stated: Stated, count: int, width: int, router: Router) -> Experts:
    return Experts(count, width, activation(stated), router)


def _shared(stated: Stated, width: int, at: str) -> Mlp:
    return Mlp(width, activation(stated), (f"{at}.gate_proj", f"{at}.up_proj"), f"{at}.down_proj")


def _normed_whole(stated: Stated, plain: Layer) -> Layer:
    normed = with_norms(plain, rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm"))
    return normed.attending(norm_over="all")


def _fed(
    stated: Stated, layers: Sequence[Layer], experts: Experts, where: Callable[[int], bool] = lambda _: True
) -> Recipe:
    """A decoder of these layers, with experts in those of these indices."""
    return decoder(
        stated,
        [replace(each, feed_forward=experts) if where(index) else each for index, each in enumerate(layers)],
    )
