"""OLMo 1 to 3: a norm without weights, then norms after attention and MLP alone, and queries and keys normed whole."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import attention, decoder, heads, mlp, rms, whole, windows
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


def _post_normed(stated: Stated, attentions: list[Attention]) -> Recipe:
    def norm(name: str) -> Norm:
        return replace(rms(stated, name), wide_gain=True)

    q, k = norm("self_attn.q_norm"), norm("self_attn.k_norm")
    layers = [
        Layer(
            replace(each, q_norm=q, k_norm=k, norm_over="all"),
            mlp(stated),
            attention_in=None,
            mlp_in=None,
            attention_out=norm("post_attention_layernorm"),
            mlp_out=norm("post_feedforward_layernorm"),
        )
        for each in attentions
    ]
    return decoder(stated, layers, norm("model.norm"))
