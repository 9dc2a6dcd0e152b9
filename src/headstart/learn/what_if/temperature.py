"""What a temperature does to acceptance, shown on a toy pair, since no formula gives it without the logits.

The toy is `headstart.learn.simulate.dial_logits`: distributions over 10 tokens and a draft that agrees with the target
to a degree from 0 to 1. It shows how flattening both distributions moves sum min(p, q), and not what real pairs add to
that: at a high temperature a text wanders to where drafts know less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart import theory
from headstart.learn.simulate import dial_logits
from headstart.learn.what_if.options import MOST
from headstart.theory import BestK, StepCosts
from headstart.theory.statistics import bisect

_DRAWS, _HALVINGS = 1000, 30
_CURVE = 21


@dataclass(frozen=True, slots=True)
class TemperatureRow:
    """One temperature, with the acceptance of two drafts and the best K for each."""

    temperature: float
    alpha: float
    """The acceptance of a draft drawn at the same temperature."""
    best: BestK
    point: float
    """The acceptance of a draft that is always the draft's likeliest token."""
    point_best: BestK


@dataclass(frozen=True, slots=True)
class Temperatures:
    """asked: the acceptance at temperature 1 that the toy was to have; at_one: what it has (its least is about .53).
    curve: evenly spaced temperatures, for a plot."""

    asked: float
    at_one: float
    agreement: float
    rows: tuple[TemperatureRow, ...]
    curve: tuple[TemperatureRow, ...]


def temperatures(alpha: float, values: Sequence[float], costs: StepCosts, most: int = MOST) -> Temperatures:
    """The toy whose acceptance at temperature 1 is `alpha`, or as near as it gets, at these temperatures."""
    agreement = sum(bisect(_alpha, alpha, 0.0, 1.0, _HALVINGS)) / 2
    even = np.linspace(0, max(2.0, *values), _CURVE)
    rows = _rows(agreement, np.array([*values, *even]), costs, most)
    return Temperatures(alpha, _alpha(agreement), agreement, rows[: len(values)], rows[len(values) :])


def _rows(agreement: float, values: Any, costs: StepCosts, most: int) -> tuple[TemperatureRow, ...]:
    target, draft = dial_logits(agreement, (_DRAWS,))
    drawn = theory.acceptance_at(target, draft, values).mean(0)
    c, v = costs.c(), costs.v
    point = theory.point_acceptance_at(target, draft, values).mean(0)
    return tuple(
        TemperatureRow(
            float(t), float(a), theory.best_k(a, c, v, most=most), float(b), theory.best_k(b, c, v, most=most)
        )
        for t, a, b in zip(values, drawn, point, strict=True)
    )


def _alpha(agreement: float) -> float:
    """The mean acceptance at temperature 1, which rises with the agreement."""
    return float(theory.acceptance_at(*dial_logits(agreement, (_DRAWS,)), 1.0).mean())
