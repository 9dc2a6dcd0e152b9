"""Everything that can be asked at once, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.errors import InvalidOption
from headstart.insight.what_if.answers import MOST, Answer, Maps, answer, maps
from headstart.insight.what_if.machines import Batches, Deployment, batches
from headstart.insight.what_if.temperature import Temperatures, temperatures
from headstart.theory import StepCosts


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One answer per acceptance asked about; the rest where it was asked for."""

    costs: StepCosts
    """Of the first batch size."""
    most: int
    """The longest draft considered."""
    answers: tuple[Answer, ...]
    maps: Maps
    batch: int | None = None
    """The first batch size, where there is a machine."""
    batches: tuple[Batches, ...] = ()
    """One for each alpha."""
    temperatures: tuple[Temperatures, ...] = ()
    """One for each alpha."""


def what_if(
    acceptances: Sequence[Sequence[float]],
    costs: StepCosts | Deployment,
    *,
    k: int | None = None,
    most: int = MOST,
    sizes: Sequence[int] = (),
    heat: Sequence[float] = (),
) -> WhatIf:
    """Ask everything at once.

    Args:
        acceptances: each one alpha, or conditional acceptances by position.
        costs: what a step costs, or a machine and models to get them from, at the first of `sizes` (1 without any).
        k: the draft length; the best one by default.
        most: the longest draft considered.
        sizes: batch sizes to compare; they need a Deployment.
        heat: temperatures to compare, on a toy.

    Raises:
        InvalidOption: nothing asked, a value out of its range, or sizes without a machine.
    """
    if not acceptances:
        raise InvalidOption("no acceptance was given", hint="give at least one alpha")
    if sizes and isinstance(costs, StepCosts):
        raise InvalidOption("batch sizes need a machine", hint="give a Deployment: bandwidth, FLOP/s and models")
    first = sizes[0] if sizes else 1
    here = costs if isinstance(costs, StepCosts) else costs.costs(first)
    answers = tuple(answer(acceptance, k, here, most) for acceptance in acceptances)
    alphas = [(a.alpha, a.k) for a in answers if a.alpha is not None]
    compared = (
        tuple(batches(costs, alpha, length, sizes or (1,), most) for alpha, length in alphas)
        if isinstance(costs, Deployment)
        else ()
    )
    return WhatIf(
        here,
        most,
        answers,
        maps(answers[0], [alpha for alpha, _ in alphas], here),
        None if isinstance(costs, StepCosts) else first,
        compared,
        tuple(temperatures(alpha, heat, here, most) for alpha, _ in alphas) if heat else (),
    )
