"""GPT-2 and its line: GPT-BigCode (StarCoder 1), GPT-NeoX (Pythia), OPT and Falcon. Norms take the mean off, MLPs have
no gate, and all but OPT have one matrix for queries, keys and values."""

from __future__ import annotations

from typing import Any

from headstart.model.recipes.common import activation, rotary, shared, whole
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Norm, Recipe, Rope
from headstart.model.recipes.stated import Stated


def _norm(name: str, eps: float) -> Norm:
    return Norm(name, eps, kind="layer")


WITHOUT_EFFECT = (
    "n_special", "predict_special_tokens", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj",
)  # fmt: skip
"""Fields of GPT-2's configs: tokens of GPT-1, the order of the same operations, heads that are no language models."""


def gpt2(stated: Stated) -> Recipe:
    stated.without_effect(*WITHOUT_EFFECT)
    stated.must_be("add_cross_attention", False)
    heads, dim, by_layer = stated.n_head, stated.n_embd // stated.n_head, stated.get("scale_attn_by_inverse_layer_idx")
    scaling = dim**-0.5 if stated.get("scale_attn_weights", True) else 1.0
    attentions = [
        Attention(
            heads, heads, dim, scaling / (number + 1 if by_layer else 1), None, qkv=("attn.c_attn",), out="attn.c_proj"
        )
        for number in range(stated.n_layer)
    ]
    return _gpt2(stated, attentions)


def gpt_bigcode(stated: Stated) -> Recipe:
    stated.without_effect(
        "attention_softmax_in_fp32", "inference_runner", "max_batch_size", "max_sequence_length",
        "pre_allocate_kv_cache", "scale_attention_softmax_in_fp32",
    )  # fmt: skip
    stated.must_be("add_cross_attention", False)
    heads, dim, multi_query = stated.n_head, stated.n_embd // stated.n_head, stated.multi_query
    stated.must_be("num_key_value_heads", 1 if multi_query else heads)
    scaling = dim**-0.5 if stated.get("scale_attn_weights", True) else 1.0
    attention = Attention(
        heads, 1 if multi_query else heads, dim, scaling, None, qkv=("attn.c_attn",), out="attn.c_proj",
        order="parts" if multi_query else "heads",
    )  # fmt: skip
    return _gpt2(stated, [attention] * stated.n_layer)


def _gpt2(stated: Stated, attentions: list[Attention]) -> Recipe:
    width, eps = stated.n_embd, stated.layer_norm_epsilon
    mlp = Mlp(
        stated.get("n_inner", 4 * width), activation(stated, "activation_function"), gate_up=("mlp.c_fc",),
        down="mlp.c_proj", gated=False,
    )  # fmt: skip
    layers = [Layer(each, mlp, _norm("ln_1", eps), _norm("ln_2", eps)) for each in attentions]
    return Recipe(
        width, stated.vocab_size, shared(layers), _norm("transformer.ln_f", eps), stack="transformer.h",
        embedding="transformer.wte", rotary=None, places="transformer.wpe",
    )  # fmt: skip


def gpt_neox(stated: Stated) -> Recipe:
    stated.rope()
    stated.get("attention_bias")
    stated.without_effect("is_decoder")
    heads, width, eps = stated.num_attention_heads, stated.hidden_size, stated.layer_norm_eps
    dim, parallel = width // heads, stated.get("use_parallel_residual", True)
    attention = Attention(
        heads, heads, dim, dim**-0.5, Rope(rotary(stated, dim)), qkv=("attention.query_key_value",),
        out="attention.dense", order="heads",
    )  # fmt: skip
    layer = Layer(
        attention, _falling(stated.intermediate_size, stated, "hidden_act"), _norm("input_layernorm", eps),
        _norm("post_attention_layernorm", eps), parallel=parallel,
    )  # fmt: skip
    return Recipe(
        width, stated.vocab_size, shared([layer] * stated.num_hidden_layers), _norm("gpt_neox.final_layer_norm", eps),
        stack="gpt_neox.layers", embedding="gpt_neox.embed_in", rotary="gpt_neox.rotary_emb",
    )  # fmt: skip


def falcon(stated: Stated) -> Recipe:
    """Falcon 7B, 11B and 40B. Those with ALiBi (Falcon RW) are refused."""
    stated.must_be("alibi", False)
    stated.must_be("apply_residual_connection_post_layernorm", False)
    stated.get("bias")
    heads, width, eps = stated.num_attention_heads, stated.hidden_size, stated.layer_norm_epsilon
    grouped, one, parallel = stated.new_decoder_architecture, stated.multi_query, stated.parallel_attn
    if grouped:
        stated.must_be("parallel_attn", True)
    stated_heads = stated.get("num_kv_heads", heads)
    kv_heads = stated_heads if grouped else 1 if one else heads
    if not grouped and not one:
        stated.must_be("num_kv_heads", heads)
    norms = stated.get("num_ln_in_parallel_attn", 2 if grouped else 1)
    if norms not in ((1, 2) if grouped else (1,)):
        raise stated.refused("num_ln_in_parallel_attn", norms)
    whole(stated)
    dim = width // heads
    attention = Attention(
        heads, kv_heads, dim, dim**-0.5, Rope(dim), qkv=("self_attention.query_key_value",), out="self_attention.dense",
        order="groups" if grouped else "parts" if one else "heads",
    )  # fmt: skip
    before, after = "input_layernorm", "post_attention_layernorm"
    if parallel:
        before, after = ("ln_attn", "ln_mlp") if norms == 2 else (before, before)
    mlp = _falling(stated.ffn_hidden_size, stated, "activation")
    layer = Layer(attention, mlp, _norm(before, eps), _norm(after, eps), parallel=bool(parallel))
    return Recipe(
        width, stated.vocab_size, shared([layer] * stated.num_hidden_layers), _norm("transformer.ln_f", eps),
        stack="transformer.h", embedding="transformer.word_embeddings", rotary="transformer.rotary_emb",
    )  # fmt: skip


def _falling(width: Any, stated: Stated, field: str) -> Mlp:
    """The MLP of GPT-NeoX and Falcon, from h to 4 h and back."""
    return Mlp(width, activation(stated, field), gate_up=("mlp.dense_h_to_4h",), down="mlp.dense_4h_to_h", gated=False)


def opt(stated: Stated) -> Recipe:
    """OPT but for 350M, whose norms are of the stream itself and whose embeddings are narrower than it."""
    for name in ("enable_bias", "layer_norm_elementwise_affine"):
        stated.get(name)
    stated.without_effect("activation_dropout", "init_std")
    width, heads = stated.hidden_size, stated.num_attention_heads
    stated.must_be("do_layer_norm_before", True)
    stated.must_be("_remove_final_layer_norm", False)
    stated.must_be("word_embed_proj_dim", width)
    dim, eps = width // heads, 1e-5
    attention = Attention(heads, heads, dim, dim**-0.5, None, out="self_attn.out_proj")
    mlp = Mlp(
        stated.ffn_dim, activation(stated, "activation_function"), gate_up=("fc1",), down="fc2", gated=False
    )  # fmt: skip
    layer = Layer(attention, mlp, _norm("self_attn_layer_norm", eps), _norm("final_layer_norm", eps))
    return Recipe(
        width, stated.vocab_size, shared([layer] * stated.num_hidden_layers),
        _norm("model.decoder.final_layer_norm", eps), stack="model.decoder.layers",
        embedding="model.decoder.embed_tokens", rotary=None, places="model.decoder.embed_positions", places_from=2,
    )  # fmt: skip
