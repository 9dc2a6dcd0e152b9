"""Gemma, text models: what their files state, and what they leave to the programs that read them.

Files of Gemma 1 to 3 do not state which layers have a window, what attention scores are divided by, or how the layers
with a window are rotated: llama.cpp knows it by architecture and number of layers (src/models/gemma2.cpp and gemma3.cpp
of ggml-org/llama.cpp), and so does this. Gains of their norms are stored with 1 added: see `names`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.base.lazy import transformers
from headstart.model.gguf.description import (
    EXPERTS_INNER,
    FREQUENCIES,
    LOCAL_BASE,
    PATTERN,
    Description,
    factors_of,
    part_of,
)

_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""The one size of each whose scores are divided by the root of width over heads, not by that of a head's width."""


def gemma(described: Description) -> Any:
    return transformers.GemmaConfig(**described.rms())


def gemma2(described: Description) -> Any:
    return transformers.Gemma2Config(
        **described.rms(),
        query_pre_attn_scalar=_divisor(described, "gemma2"),
        sliding_window=described.stated.count("attention.sliding_window", 4096),
        layer_types=described.kinds(2),
        attn_logit_softcapping=_cap(described, "attn_logit_softcapping", 50.0),
        final_logit_softcapping=_cap(described, "final_logit_softcapping", 30.0),
    )


def gemma3(described: Description) -> Any:
    common, window = described.rms(), described.window()
    local = {"rope_type": "default", "rope_theta": described.local_base(10000.0)}
    common["rope_parameters"] = {"full_attention": common["rope_parameters"], "sliding_attention": local}
    return transformers.Gemma3TextConfig(
        **common,
        query_pre_attn_scalar=_divisor(described, "gemma3"),
        sliding_window=window or common["max_position_embeddings"],  # transformers wants one even where no layer has it
        layer_types=described.kinds(6) if window else ["full_attention"] * described.layers,
        final_logit_softcapping=_cap(described, "final_logit_softcapping", 0.0),
    )


KEYS_OF_4 = frozenset({
    EXPERTS_INNER, LOCAL_BASE, PATTERN, "attention.key_length_swa", "attention.shared_kv_layers",
    "attention.value_length_swa", "embedding_length_per_layer_input", "final_logit_softcapping",
    "rope.dimension_count_swa",
})  # fmt: skip
_TURNS_NOT = 1e30
"""What a frequency is divided by that is none."""


def gemma4(described: Description) -> Any:
    """Its files say what each layer is, layer by layer."""
    stated, common = described.stated, described.rms()
    rope = common["rope_parameters"]
    if rope["rope_type"] != "default":
        raise described.file.not_run(f"rope.scaling.type is {rope['rope_type']!r}")
    stated.numbers(PATTERN)
    kinds, shared = described.kinds(0), stated.whole("attention.shared_kv_layers", 0)
    if shared >= described.layers:
        raise described.file.damaged(f"{shared} of its {described.layers} layers attend to the keys of others")
    if kinds[-1] != "full_attention":
        raise described.file.not_run(f"{PATTERN} ends with a layer that has a window")
    full = [index for index, kind in enumerate(kinds) if kind == "full_attention"]
    wide, inputs = _full_width(described), stated.whole("embedding_length_per_layer_input")
    own = {"head_dim": wide}
    if (kv_heads := _full_kv_heads(described, kinds)) != common["num_key_value_heads"]:
        own["num_key_value_heads"] = kv_heads
    table = described.file.tensors.get("per_layer_token_embd.weight")
    local = {"rope_type": "default", "rope_theta": described.local_base(10000.0)}
    common["rope_parameters"] = {
        "full_attention": {**rope, **_proportion(described, wide)}, "sliding_attention": local
    }  # fmt: skip
    if (mixture := described.mixture) is not None:
        common |= {"num_experts": mixture.count, "top_k_experts": mixture.chosen}
        common |= {"moe_intermediate_size": mixture.width, "enable_moe_block": True}
    return transformers.Gemma4TextConfig(
        **common,
        per_layer_config=dict.fromkeys(full, own),
        sliding_window=stated.count("attention.sliding_window"),
        layer_types=kinds,
        num_kv_shared_layers=shared,
        use_double_wide_mlp=_double(described, shared),
        attention_k_eq_v=f"blk.{full[0]}.attn_v.weight" not in described.file.tensors,
        hidden_size_per_layer_input=inputs,
        vocab_size_per_layer_input=common["vocab_size"] if table is None else table.shape[0],
        final_logit_softcapping=_cap(described, "final_logit_softcapping", 0.0),
    )


def _full_width(described: Description) -> int:
    """Numbers of a head in layers without a window."""
    wide = int(described.stated.count("attention.key_length"))
    for key in ("attention.value_length", "rope.dimension_count"):
        if (found := described.stated.whole(key, wide)) != wide:
            raise described.file.not_run(f"{key} is {found}, and heads are {wide} wide")
    return wide


def _full_kv_heads(described: Description, kinds: list[str]) -> int:
    """Heads of keys in layers without a window."""
    each, first = described.stated.wholes("attention.head_count_kv", len(kinds)), described.common
    full = each[kinds.index("full_attention")]
    if each != [full if kind == "full_attention" else first["num_key_value_heads"] for kind in kinds]:
        raise described.file.not_run(f"attention.head_count_kv is {each}, not one number for each kind of layer")
    if not full or described.common["num_attention_heads"] % full:
        raise described.file.damaged(f"{first['num_attention_heads']} heads cannot share {full} heads of keys")
    return full


def _double(described: Description, shared: int) -> bool:
    """Whether the layers that attend to the keys of others are twice as wide as the rest within."""
    each = described.stated.wholes("feed_forward_length", described.layers)
    for double in (False, True):
        if each == [each[0]] * (len(each) - shared) + [each[0] * (1 + double)] * shared:
            return double
    raise described.file.not_run(f"feed_forward_length is {each}, which no model of transformers has")


def _proportion(described: Description, wide: int) -> dict[str, Any]:
    """How many numbers of a head turn in layers without a window: the file divides the frequencies of the others by a
    number that leaves nothing of them."""
    file = described.file
    tensor = file.tensors.get(FREQUENCIES)
    if tensor is None or tensor.shape != (wide // 2,):
        found = "missing" if tensor is None else f"{list(tensor.shape)}, and {[wide // 2]} is needed"
        raise file.damaged(f"tensor {FREQUENCIES!r} is {found}")
    factors = factors_of(file, FREQUENCIES)
    turned = int((factors == 1).sum())
    if not (factors[:turned] == 1).all() or not (factors[turned:] == np.float32(_TURNS_NOT)).all():
        raise file.not_run(f"{FREQUENCIES} holds other numbers than 1 and {_TURNS_NOT:g}")
    return {"rope_type": "proportional", "partial_rotary_factor": part_of(2 * turned, wide)}


def _divisor(described: Description, architecture: str) -> int:
    by_width = described.layers == _LAYERS_OF_27B[architecture]
    return (
        int(described.common["hidden_size"] // described.common["num_attention_heads"]) if by_width else described.dim
    )


def _cap(described: Description, key: str, default: float) -> float | None:
    return described.stated.number(key, default) or None
