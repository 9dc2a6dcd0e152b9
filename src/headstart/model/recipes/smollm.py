"""SmolLM 3."""

from __future__ import annotations

from headstart.model.recipes.common import decoder, layer, windowed, windows
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def smollm3(stated: Stated) -> Recipe:
    """Every few layers queries and keys do not turn."""
    stated.get("use_sliding_window")
    stated.get("no_rope_layer_interval")  # `no_rope_layers` says what comes of it, and 0 where a layer does not turn
    plain = layer(stated)
    still = plain.attending(rope=None)
    kinds = zip(stated.no_rope_layers, windows(stated), strict=True)
    return decoder(stated, [windowed(plain if turns else still, window) for turns, window in kinds])
