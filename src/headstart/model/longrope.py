"""Rotations of the kind "longrope", whose angles would change as a text grows, fixed for the longest text.

Phi 3 and 4 have two sets of factors: one for texts within `original_max_position_embeddings`, and one for longer texts.
transformers chooses in each call, and when a text grows beyond that length it computes all keys again. An engine that
keeps keys cannot, so the longest text that it may hold decides, once. With a `max_length` within the original length,
texts are those of transformers; with a greater one, all texts have the long factors from their first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

KIND = "longrope"


def turns_by_length(config: Any) -> bool:
    """Whether a config has such a rotation, so that the angles depend on the longest text."""
    stated = getattr(config, "rope_parameters", None) or {}
    each = (stated, *(kind for kind in stated.values() if isinstance(kind, dict)))
    return any(found.get("rope_type") == KIND for found in each)


@torch.no_grad()
def fix_rotation(model: Any, length: int) -> None:
    """Fix all such rotations of a transformers model in place. length: of the longest text, in tokens."""
    for rotary, layers, frequencies in _rotations(model):
        more = {} if layers is None else {"layer_type": layers}
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # few models turn so

        found, _ = ROPE_INIT_FUNCTIONS[KIND](rotary.config, frequencies.device, seq_len=length, **more)
        frequencies.copy_(found)
        # of another kind than "longrope" or "dynamic", transformers computes no frequencies again
        rotary.rope_type = "fixed" if layers is None else {**rotary.rope_type, layers: "fixed"}


def _rotations(model: Any) -> Iterator[tuple[Any, str | None, Tensor]]:
    """Rotary modules, which kind of layers has these angles where there are several, and the frequencies."""
    for module in model.modules():
        stated = getattr(getattr(module, "config", None), "rope_parameters", None)
        if not stated or not hasattr(module, "rope_type"):
            continue
        if stated.get("rope_type") == KIND and hasattr(module, "inv_freq"):
            yield module, None, module.inv_freq
        for layers, each in stated.items():
            if isinstance(each, dict) and each.get("rope_type") == KIND and hasattr(module, f"{layers}_inv_freq"):
                yield module, layers, getattr(module, f"{layers}_inv_freq")
