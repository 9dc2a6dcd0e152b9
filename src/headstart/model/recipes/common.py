"""What many families have alike: heads, windows, rotation and norms as Llama's configs state them."""

from __future__ import annotations

from headstart.model.recipes.recipe import Activation, Attention, Experts, Layer, Mlp, Norm, Recipe, Rope
from headstart.model.recipes.stated import FIXED_ROPE, Stated

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu", "relu2": "relu2", "xielu": "xielu",
}  # fmt: skip
"""By transformers' names; one that is missing here is not known to the decoders."""


def activation(stated: Stated, field: str = "hidden_act") -> Activation:
    """The name of an activation as `Mlp` has it."""
    found = stated.get(field)
    if found not in ACTIVATIONS:
        raise stated.refused(field, found)
    return ACTIVATIONS[found]


def heads(stated: Stated) -> tuple[int, int, int]:
    """Query heads, key heads, and numbers of a head."""
    count = stated.num_attention_heads
    return count, stated.get("num_key_value_heads", count), stated.get("head_dim", stated.hidden_size // count)


def windows(stated: Stated) -> list[int | None]:
    """The sliding window of each layer, or None: by `layer_types` where they are stated, else one for all."""
    window, kinds, count = stated.get("sliding_window"), stated.get("layer_types"), stated.num_hidden_layers
    if kinds is None:
        return [window] * count
    if unknown := set(kinds) - {"full_attention", "sliding_attention"}:
        raise stated.refused("layer_types", sorted(unknown)[0])
    return [window if kind == "sliding_attention" else None for kind in kinds]


def rms(stated: Stated, name: str) -> Norm:
    """A norm as Llama's, by its module's name."""
    return Norm(name, stated.rms_norm_eps)


def rotary(stated: Stated, dim: int) -> int:
    """Numbers of a head that turn."""
    within = (stated.get("rope_parameters") or {}).get("partial_rotary_factor")
    beside = stated.get("partial_rotary_factor")  # of configs that transformers has not made its own of
    part = beside if within is None else within
    return dim if part is None else int(dim * part)


def whole(stated: Stated, table: str | None = None) -> None:
    """Raise `UnsupportedModel` unless all numbers of a head turn, in families whose modules know no other way. table:
    see `Stated.rope`."""
    part = stated.rope(table=table).get("partial_rotary_factor")
    if part not in (None, 1.0):
        raise stated.refused("partial_rotary_factor", part)


def attention(stated: Stated, *more: str, kinds: frozenset[str] = FIXED_ROPE) -> Attention:
    """Attention as Llama's, without a window. more, kinds: see `Stated.rope`."""
    count, kv_heads, dim = heads(stated)
    stated.rope(*more, kinds=kinds)
    stated.get("attention_bias")
    return Attention(count, kv_heads, dim, dim**-0.5, Rope(rotary(stated, dim)))


def mlp(stated: Stated, field: str = "hidden_act") -> Mlp:
    """A gated MLP as Llama's. field: what the config calls its activation."""
    stated.get("mlp_bias")
    return Mlp(stated.intermediate_size, activation(stated, field))


def layer(stated: Stated, *more: str, kinds: frozenset[str] = FIXED_ROPE, feed_forward: Experts | None = None) -> Layer:
    """A layer as Llama's, without a window. more, kinds: of the rotation, see `Stated.rope`. feed_forward: in place of
    Llama's MLP."""
    return Layer(
        attention(stated, *more, kinds=kinds),
        feed_forward or mlp(stated),
        rms(stated, "input_layernorm"),
        rms(stated, "post_attention_layernorm"),
    )


def with_norms(layer: Layer, q: Norm, k: Norm) -> Layer:
    """The same layer with norms of queries and keys."""
    return layer.attending(q_norm=q, k_norm=k)


def windowed(layer: Layer, window: int | None) -> Layer:
    """The same layer with another window."""
    return layer.attending(window=window)


def shared(layers: list[Layer]) -> tuple[Layer, ...]:
    """The same layers; equal ones become one object."""
    kept: dict[Layer, Layer] = {}
    return tuple(kept.setdefault(each, each) for each in layers)


def decoder(stated: Stated, layers: list[Layer], final_norm: Norm | None = None) -> Recipe:
    """A decoder as Llama's, of these layers. final_norm: in place of Llama's."""
    last = rms(stated, "model.norm") if final_norm is None else final_norm
    return Recipe(stated.hidden_size, stated.vocab_size, shared(layers), last)
