"""Granite 3 and 4, dense."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def granite(stated: Stated) -> Recipe:
    """Factors of the embedding, of scores, of what a layer adds, and of the logits."""
    plain = layer(stated)
    plain = replace(
        plain,
        mixer=replace(plain.attention, scaling=float(stated.attention_multiplier)),
        residual_factor=float(stated.residual_multiplier),
    )
    return replace(
        decoder(stated, [plain] * stated.num_hidden_layers),
        embedding_factor=float(stated.embedding_multiplier),
        logit_factor=1 / stated.logits_scaling,
    )
