"""EXAONE 4."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, rms, windowed, windows, with_norms
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def exaone4(stated: Stated) -> Recipe:
    """Norms behind attention and MLP alone. Where some layers have a window, only those turn."""
    stated.must_be("reorder_and_qk_norm", True)
    stated.get("sliding_window_pattern")  # `layer_types` says what comes of it
    plain = replace(
        with_norms(layer(stated), rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm")),
        attention_in=None,
        attention_out=rms(stated, "post_attention_layernorm"),
        mlp_in=None,
        mlp_out=rms(stated, "post_feedforward_layernorm"),
    )
    still = plain.attending(rope=None)
    every = stated.get("sliding_window") is None
    return decoder(
        stated, [windowed(plain, window) if every or window is not None else still for window in windows(stated)]
    )
