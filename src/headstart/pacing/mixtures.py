"""What a mixture of experts says of itself: how many experts a row chooses, and what of the weights they are.

The names are those of transformers' configs (`kept.config`); a model that has others counts as dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from headstart.base.lazy import transformers
from headstart.model.coded import without_memory
from headstart.model.kept.config import CHOSEN_FIELDS, EXPERT_FIELDS
from headstart.theory.mixture import DENSE, Routing


def routing_of(config: Any) -> Routing:
    """What rows of this model share, with the usual correlation; that of a dense model where it has no experts.

    How many layers have experts is not in there: no two families say it in one way, and a forward tells.
    """
    text = config.get_text_config()
    experts, chosen = (
        next((found for name in names if (found := _number(getattr(text, name, None)))), 0)
        for names in (EXPERT_FIELDS, CHOSEN_FIELDS)
    )
    return Routing(experts, chosen) if 0 < chosen < experts else DENSE


def _number(stated: Any) -> int:
    """A number, or the one that is stated of every layer, as HunYuan's configs may do; else 0."""
    if isinstance(stated, list | tuple) and stated and all(each == stated[0] for each in stated):
        stated = stated[0]
    return stated if isinstance(stated, int) and stated > 0 else 0


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of experts on paper, counted in parameters: tensors may have different numbers of bits."""

    routing: Routing
    met: float
    """Of all parameters, the share that one row meets."""
    expert_share: float
    """Of these, the share of the experts that were chosen for it."""

    def v(self, rows: int) -> float:
        """v(n) for rows of a text, if reading weights were all that takes time."""
        return float(self.routing.reading(rows, self.expert_share))


def mixture_of(config: Any) -> Mixture | None:
    """What a config says of a mixture of experts, by the shapes of its model; None where it has no experts, and for
    models whose class is in their own repository."""
    routing = routing_of(config)
    if routing.dense or type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    model = without_memory(config)
    whole, experts = sum(each.numel() for each in set(model.parameters())), expert_numbers(model, routing)
    chosen = experts * routing.chosen / routing.experts
    met = whole - experts + chosen
    return Mixture(routing, met / whole, chosen / met)


def expert_numbers(model: nn.Module, routing: Routing) -> int:
    """How many of a model's parameters lie in experts that a router chooses; it may be without memory."""
    if routing.dense:
        return 0
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if "experts" in name.split(".") or (parameter.ndim > 2 and len(parameter) == routing.experts)
    )
