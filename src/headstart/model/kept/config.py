"""A config of transformers by its fields alone. What it does not hold, the real one is made for."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from headstart.model.recipes import Recipe, find_recipe

_OWN = ("_wrapper",)
MASK_FIELDS = ("pard_token", "ptd_token_id")
"""Fields that name the mask token of models that draft several tokens at once, in the order in which vLLM looks for
them."""

EXPERT_FIELDS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Fields that say how many experts a layer has; a model without any of them counts as dense."""
CHOSEN_FIELDS = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k")
"""Fields that say how many of them a row chooses."""

_ABSENT = (
    "per_layer_attributes", "quantization_config", "rope_parameters", "_wrapper", *MASK_FIELDS, *EXPERT_FIELDS,
    *CHOSEN_FIELDS,
)  # fmt: skip
"""What is asked of every config, and most have not."""


class KeptConfig:
    """A text model's config. It answers as the one of transformers does, which is made when something else is asked."""

    def __init__(self, stored: dict[str, Any], recipe: Recipe, make: Callable[[], Any]) -> None:
        """make: the config of transformers."""
        self._stored, self._make, self.recipe = stored, make, recipe
        vars(self).update(stored["fields"])
        self.dtype: torch.dtype = getattr(torch, stored["dtype"])

    @cached_property
    def real(self) -> Any:
        """The config of transformers."""
        return self._make()

    def get_text_config(self, *_: Any, **__: Any) -> KeptConfig:
        return self

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(self._stored["said"]))
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self._stored["absent"]:
            raise AttributeError(name)
        return getattr(self.real, name)


def to_keep(config: Any) -> dict[str, Any] | None:
    """What `KeptConfig` is made of; None for a config that cannot be kept."""
    recipe = find_recipe(config)
    if recipe is None or config.get_text_config() is not config or not isinstance(config.dtype, torch.dtype):
        return None
    fields = {name: value for name, value in vars(config).items() if not name.startswith("_") or name in _OWN}
    fields |= {name: getattr(config, name, None) for name in getattr(type(config), "attribute_map", {})}
    fields |= {"is_encoder_decoder": config.is_encoder_decoder, "model_type": config.model_type}
    fields = {name: value for name, value in fields.items() if name != "dtype" and _is_plain(value)}
    if any(name == "recipe" or hasattr(KeptConfig, name) for name in fields):
        return None
    absent = [name for name in _ABSENT if not hasattr(config, name)]
    found = {
        "fields": fields,
        "said": config.to_dict(),
        "dtype": str(config.dtype).removeprefix("torch."),
        "absent": absent,
    }
    try:
        again: dict[str, Any] = json.loads(json.dumps(found, default=_whole))
    except (TypeError, ValueError):
        return None
    return again


def _is_plain(value: Any) -> bool:
    """Whether JSON gives a value back; the real config answers for the others."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def _whole(value: Any) -> Any:
    """Of values that JSON does not know, dtypes alone can be written as texts: `to_dict` of transformers does so."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError


def real(config: Any) -> Any:
    """The config of transformers that this one is, or stands for."""
    return config.real if isinstance(config, KeptConfig) else config
