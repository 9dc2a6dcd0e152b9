"""Arcee and Apertus: MLPs without a gate."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, rms, with_norms
from headstart.model.recipes.recipe import Mlp, Recipe
from headstart.model.recipes.stated import Stated


def arcee(stated: Stated) -> Recipe:
    """An MLP without a gate."""
    plain = layer(stated)
    mlp = replace(plain.mlp, gate_up=("mlp.up_proj",), gated=False)
    return decoder(stated, [replace(plain, feed_forward=mlp)] * stated.num_hidden_layers)


def apertus(stated: Stated) -> Recipe:
    """An MLP without a gate, whose activation has learned numbers; norms of each head's queries and keys."""
    stated.without_effect("post_norm", "qk_norm")
    plain = layer(stated)
    learned = plain.mlp.activation == "xielu"
    plain = replace(
        with_norms(plain, rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm")),
        attention_in=rms(stated, "attention_layernorm"),
        mlp_in=rms(stated, "feedforward_layernorm"),
        feed_forward=Mlp(
            plain.mlp.width,
            plain.mlp.activation,
            gate_up=("mlp.up_proj",),
            gated=False,
            numbers="mlp.act_fn" if learned else None,
        ),
    )
    return decoder(stated, [plain] * stated.num_hidden_layers)
