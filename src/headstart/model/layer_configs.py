"""Fields of a config that may differ from layer to layer: Gemma 4's full layers have larger heads, say."""

from __future__ import annotations

from typing import Any


def values_of(text: Any, name: str) -> list[Any]:
    """A field's value in each layer, or the one of all; None where it is missing.

    text: a config of transformers, which refuses to say a field that differs from layer to layer.
    """
    if name in (getattr(text, "per_layer_attributes", None) or ()):
        return [getattr(layer, name, None) for layer in text.per_layer_config]
    return [getattr(text, name, None)]


def sizes_of(text: Any) -> list[tuple[int, int]]:
    """Key heads and numbers of a head, of each layer."""
    layers = range(int(text.num_hidden_layers))

    def each(name: str) -> list[Any]:
        found = values_of(text, name)
        return found if len(found) == len(layers) else found * len(layers)

    usual = text.hidden_size // text.num_attention_heads
    pairs = zip(each("num_key_value_heads"), each("head_dim"), strict=True)
    return [(int(heads or text.num_attention_heads), int(dim or usual)) for heads, dim in pairs]
