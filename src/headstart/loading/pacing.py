"""From the name of a pacing to one that fits a target and a drafter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from headstart.base.errors import CONTAINED, InvalidOption
from headstart.drafters import Drafter, Row, capabilities, may_draft
from headstart.model import native
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing, Pacing
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.measuring import a_few_forwards, measure, measured_batch, timed_sizes
from headstart.pacing.profile import profiled
from headstart.pacing.source import Source
from headstart.theory import StepCosts


def make_pacing(
    pacing: str | Pacing,
    target: ModelRunner,
    cache: Slots,
    drafter: Drafter,
    k: int | None,
    facts: Mapping[str, Any] | None,
) -> Pacing:
    """The pacing of that name. Adaptive pacing measures the models, unless a profile of them is found.

    cache: of the engine, still unused. k: the most nodes of a draft, or None. facts: what else than machine, dtype and
    device the costs depend on; None keeps no profile.
    """
    if not isinstance(pacing, str):
        if not callable(getattr(pacing, "plan", None)):
            raise InvalidOption(
                f"pacing={pacing!r} does not exist", hint="it is 'adaptive' or 'fixed', or a Pacing object"
            )
        return pacing
    parts = capabilities.parts(drafter)
    if not parts or pacing == "fixed" or k == 0:
        return FixedPacing(drafter.default_budget if k is None else k)
    batch = measured_batch(len(cache.lengths))
    if facts is None:
        return adaptive(drafter, measure(target, cache, parts, batch=batch).costs, k)
    known = {
        "dtype": str(target.dtype),
        "device": _name(target.device),
        "kernels": native.kernels().name if native.available() else None,
        "batch": batch,
        **facts,
    }
    if sizes := {part.name: timed_sizes(part) for part in parts if capabilities.sizes(part)}:
        known["sizes"] = sizes  # of the trees that were timed, not of chains
    costs = profiled(known, lambda: measure(target, cache, parts, batch=batch), lambda: a_few_forwards(target, cache))
    return adaptive(drafter, costs, k)


def adaptive(drafter: Drafter, costs: StepCosts, k: int | None = None) -> AdaptivePacing:
    """Adaptive pacing for a drafter from costs that are known. k: the most nodes of a draft, or None."""
    return AdaptivePacing(
        [source for part in capabilities.parts(drafter) if (source := _source(part, k)).limit > 0], costs
    )


def _source(part: Drafter, k: int | None) -> Source:
    most = max(capabilities.limit(part), part.default_budget)
    if k is not None:
        most = min(k, most)
    trees = capabilities.sizes(part)
    sizes = tuple((nodes, depth) for nodes, depth in trees if nodes <= most)
    if trees and not sizes:  # less than its smallest tree is allowed: that is then its only size
        sizes = ((most, min(most, trees[0][1])),) if most else ()
    return Source(part.name, most, sizes, partial(_may_draft, part), same_model=capabilities.same_model(part))


def _may_draft(part: Drafter, row: Row) -> bool:
    """`may_draft`; where the drafter raises, the engine finds it out when it asks for a draft."""
    try:
        return may_draft(part, row)
    except CONTAINED:
        return True


def _name(device: Any) -> str:
    """The device's name; of a GPU its model, because GPUs differ."""
    if device.type != "cuda":
        return str(device)
    import torch

    return torch.cuda.get_device_name(device)
