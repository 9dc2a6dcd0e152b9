"""Llama, Mistral and Qwen, and those that differ from them by a field or two."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, rms, windowed, windows
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def llama(stated: Stated) -> Recipe:
    """Also Mistral and Qwen 2: what they add is a window and biases."""
    stated.get("use_sliding_window")  # `layer_types` says what comes of it
    plain = layer(stated)
    return decoder(stated, [windowed(plain, window) for window in windows(stated)])


def qwen3(stated: Stated) -> Recipe:
    """Each head's queries and keys are normed."""
    made = llama(stated)
    q, k = rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm")
    return decoder(
        stated, [replace(each, attention=replace(each.attention, q_norm=q, k_norm=k)) for each in made.layers]
    )
