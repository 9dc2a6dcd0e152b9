"""Whether what a config states can be true of any model, asked before anything of such sizes is made.

Modules can be made of many configs that describe no model: a window of -1 tokens, a rotation by NaN. They fail in the
middle of a forward, or give numbers that mean nothing. Each check here names the key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headstart.base.errors import UnsupportedModel
from headstart.base.lazy import transformers

_AGAIN = "compare config.json with the original's, or copy or download the checkpoint again"
_TEXT = ("text_config", "llm_config", "language_config")
"""Where the config of a model that sees or hears states its text model."""

_WIDTHS = {
    "hidden_size": 2**20, "n_embd": 2**20, "d_model": 2**20, "intermediate_size": 2**24, "ffn_dim": 2**24,
    "num_attention_heads": 2**16, "n_head": 2**16, "num_key_value_heads": 2**16, "head_dim": 2**16,
    "vocab_size": 2**28, "q_lora_rank": 2**20, "kv_lora_rank": 2**20, "num_experts": 2**16,
    "num_local_experts": 2**16, "n_routed_experts": 2**16, "num_hidden_layers": math.inf, "n_layer": math.inf,
    "num_layers": math.inf, "conv_L_cache": 2**10, "conv_kernel": 2**10, "linear_conv_kernel_dim": 2**10,
    "linear_key_head_dim": 2**16, "linear_num_key_heads": 2**16, "linear_num_value_heads": 2**16,
    "linear_value_head_dim": 2**16, "mamba_d_conv": 2**10, "mamba_d_state": 2**16, "mamba_head_dim": 2**16,
    "mamba_n_groups": 2**16, "mamba_n_heads": 2**16, "mamba_num_heads": 2**16, "n_groups": 2**16,
    "ssm_state_size": 2**16,
}  # fmt: skip
"""Whole numbers, each with one that is far larger than any model's; how many layers there may be, `stored` asks the
files."""
_MAY_BE_ZERO = frozenset(
    {"head_dim", "q_lora_rank", "kv_lora_rank", "num_experts", "num_local_experts", "n_routed_experts"}
)
"""Those that a model may not have; what it has is checked again when its class has read the config."""
_POSITIVE = frozenset({
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps", "norm_epsilon",
    "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier",
    "embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "rope_theta",
    "rope_local_base_freq",
})  # fmt: skip
"""Numbers above 0."""
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function")

_OF_ROPE = frozenset({
    "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow", "attention_factor", "partial_rotary_factor",
})  # fmt: skip
_OLDER_ROPE_TYPES = frozenset({"default", "mrope", "su"})
"""Kinds of rotation under names that published configs have beside those of transformers."""
_KINDS = ("full_attention", "sliding_attention")


def check_stated(source: str, stated: Mapping[str, Any]) -> None:
    """Refuse a config with a value that no model has. stated: what config.json says.

    What is missing, or null, is left to the config's class. Of parts for pictures or sound nothing is asked.

    Raises:
        UnsupportedModel: there is one; the message names its key.
    """
    for part in (stated, *(stated[name] for name in _TEXT if isinstance(stated.get(name), Mapping))):
        for key, value, why in _wrong(part):
            raise UnsupportedModel(f"{source!r}: {key} is {value!r:.60}, {why}", hint=_AGAIN)


def _wrong(part: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Each key that cannot be, its value, and why."""
    for key, most in _WIDTHS.items():
        yield from _numbers(part, key, _size(most, low=0 if key in _MAY_BE_ZERO else 1))
    for key in _POSITIVE:
        yield from _numbers(part, key, _positive)
    for key in _ACTIVATIONS:
        found = part.get(key)
        if found is not None and (not isinstance(found, str) or found not in transformers.activations.ACT2FN):
            yield key, found, "and there is no such activation"
    for key in ("partial_rotary_factor", "rotary_pct"):
        yield from _numbers(part, key, _part_of_one)
    yield from _heads(part)
    yield from _layers(part)
    for key in ("rope_parameters", "rope_scaling"):
        yield from _rope(part, key)


def _numbers(part: Mapping[str, Any], key: str, wrong: Callable[[Any], str]) -> Iterator[tuple[str, Any, str]]:
    """wrong: says what is wrong with a number; in some configs there is one for each layer."""
    found = part.get(key)
    for each in found if isinstance(found, list) and found else [found]:
        if each is not None and (why := wrong(each)):
            yield key, found, why


def _size(most: float, low: int = 1) -> Callable[[Any], str]:
    def wrong(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value % 1:
            return "and must be a whole number"
        return "which no model has" if not low <= value <= most else ""

    return wrong


def _positive(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "and must be a finite number"
    return "" if value > 0 else "and must be above 0"


def _part_of_one(value: Any) -> str:
    return _positive(value) or ("" if value <= 1 else "and no more than all of a head can turn")


def _heads(part: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    heads, keys = part.get("num_attention_heads", part.get("n_head")), part.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(keys, int) and keys and heads % keys:
        yield "num_key_value_heads", keys, f"which {heads} heads (num_attention_heads) cannot share"
    width, dims = part.get("hidden_size"), [key for key in part if "head_dim" in key and part[key]]
    if isinstance(heads, int) and isinstance(width, int) and not dims and width < heads:
        yield "hidden_size", width, f"fewer numbers than there are heads (num_attention_heads is {heads})"
    dim, rotation = part.get("head_dim"), part.get("rope_parameters") or part.get("rope_theta")
    if isinstance(dim, int) and dim % 2 and rotation and _share(part) == 1:
        yield "head_dim", dim, "and only an even number can be turned by pairs"


def _share(part: Mapping[str, Any]) -> Any:
    """Of a head, how much of it turns."""
    rope = part.get("rope_parameters")
    inside = rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else None
    beside = part.get("partial_rotary_factor", part.get("rotary_pct"))
    return next((each for each in (inside, beside) if each is not None), 1)


def _layers(part: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    kinds, count, window = part.get("layer_types"), part.get("num_hidden_layers"), part.get("sliding_window")
    if kinds is not None:
        if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
            yield "layer_types", kinds, "and must be a list of names"
        elif isinstance(count, int) and len(kinds) != count:
            yield "layer_types", kinds, f"of {len(kinds)} layers, and num_hidden_layers is {count}"
    slides = "sliding_attention" in kinds if isinstance(kinds, list) and set(kinds) <= set(_KINDS) else True
    if slides and part.get("use_sliding_window") is not False and window is not None and (why := _size(2**62)(window)):
        yield "sliding_window", window, why


def _rope(part: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any, str]]:
    found = part.get(key)
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield key, found, "and must be an object"
        return
    nested = [(f"{key}.{kind}", each) for kind, each in found.items() if isinstance(each, Mapping)]
    rope_types = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS.keys()
    for name, rope in nested or [(key, found)]:
        for field in ("rope_type", "type"):
            kind = rope.get(field)
            if kind is not None and (not isinstance(kind, str) or kind not in _OLDER_ROPE_TYPES | rope_types):
                yield f"{name}.{field}", kind, "a rotation that transformers does not know"
        for field in _OF_ROPE:
            for _, value, why in _numbers(rope, field, _part_of_one if "partial" in field else _positive):
                yield f"{name}.{field}", value, why
        for field in ("long_factor", "short_factor"):
            factors = rope.get(field)
            if factors is not None and (not isinstance(factors, list) or any(map(_positive, factors))):
                yield f"{name}.{field}", factors, "and must be a list of numbers above 0"
