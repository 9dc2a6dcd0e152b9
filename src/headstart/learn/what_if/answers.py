"""What a draft of given acceptance and cost gains, and whether to use it: `headstart.theory` in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart import theory
from headstart.base.options import check_number
from headstart.learn.simulate import dial_logits
from headstart.learn.what_if.options import MOST
from headstart.theory import BestK, StepCosts
from headstart.theory.statistics import bisect

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DRAFT_COSTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
"""What the maps show, beside what was asked."""
LONGEST = 1000
"""The longest draft one may ask about."""

_WORTH_IT = 1.05
_AS_GOOD = 0.98  # of the best K's speedup: not worth changing K for


@dataclass(frozen=True, slots=True)
class Answer:
    """acceptance: one alpha, or conditional acceptances by position. tokens, speedup: at K = k. tokens_by_k,
    speedup_by_k: [most + 1], from K = 0. break_even: the alpha at which this k gains nothing; nan if none does.
    least_break_even: the same for whichever K needs least."""

    acceptance: tuple[float, ...]
    k: int
    tokens: float
    speedup: float
    best: BestK
    break_even: float
    least_break_even: float
    ceiling: float
    tokens_by_k: tuple[float, ...]
    speedup_by_k: tuple[float, ...]
    kind: Literal["good", "bad", "unsure"]
    verdict: str
    reason: str

    @property
    def alpha(self) -> float | None:
        return self.acceptance[0] if len(self.acceptance) == 1 else None

    @property
    def name(self) -> str:
        if self.alpha is not None:
            return f"alpha {self.alpha:g}"
        return "acceptance " + " ".join(f"{a:g}" for a in self.acceptance)


@dataclass(frozen=True, slots=True)
class Maps:
    """Speedups: by_length [len(alphas), len(lengths)] at the costs asked about, by_cost [len(alphas), len(draft_costs)]
    at K = k. here: (alpha, k, c) of the first question, or None where its acceptance differs by position."""

    alphas: tuple[float, ...]
    lengths: tuple[int, ...]
    by_length: NDArray[np.float64]
    draft_costs: tuple[float, ...]
    by_cost: NDArray[np.float64]
    k: int
    here: tuple[float, int, float] | None


def answer(acceptance: Sequence[float], k: int | None, costs: StepCosts, most: int = MOST) -> Answer:
    """The answer at K = k; without k at the best K up to `most`, or at 1 where the best is to draft nothing.

    Raises:
        InvalidOption: an acceptance outside [0, 1], or k or most below 1.
    """
    check_number("most", most, low=1, high=LONGEST, integer=True)
    if k is not None:
        check_number("k", k, low=1, high=LONGEST, integer=True)
    listed = tuple(float(a) for a in acceptance)
    for a in listed:
        check_number("alpha", a, low=0, high=1)
    c, v = costs.c(), costs.v
    best = theory.best_k(listed, c, v, most=most)
    length = k if k is not None else max(best.k, 1)
    ks = np.arange(max(most, length) + 1)
    tokens = theory.expected_tokens_by_position(listed, ks)
    gains = theory.speedup_by_position(listed, ks, c, v)
    needed = theory.break_even_alpha(ks[1:], c, v)
    least = float(np.nanmin(needed)) if not np.isnan(needed).all() else math.nan
    kind, verdict, reason = _verdict(listed, k, float(gains[length]), best, least, c, most)
    return Answer(
        acceptance=listed,
        k=length,
        tokens=float(tokens[length]),
        speedup=float(gains[length]),
        best=best,
        break_even=theory.break_even_alpha(length, c, v),
        least_break_even=least,
        ceiling=theory.ceiling(listed[0]) if len(listed) == 1 else _ceiling(listed),
        tokens_by_k=tuple(tokens.tolist()),
        speedup_by_k=tuple(gains.tolist()),
        kind=kind,
        verdict=verdict,
        reason=reason,
    )


def maps(first: Answer, alphas: Sequence[float], costs: StepCosts) -> Maps:
    """Both maps around what was asked."""
    rows = tuple(sorted({*ALPHAS, *alphas}))
    lengths = tuple(sorted({*LENGTHS, first.k}))
    c, v = costs.c(), costs.v
    draft_costs = tuple(sorted({*DRAFT_COSTS, c}))
    return Maps(
        alphas=rows,
        lengths=lengths,
        by_length=theory.alpha_k_table(rows, lengths, c, v),
        draft_costs=draft_costs,
        by_cost=theory.alpha_c_table(rows, draft_costs, first.k, v),
        k=first.k,
        here=None if first.alpha is None else (first.alpha, first.k, c),
    )


def _ceiling(acceptance: Sequence[float]) -> float:
    """Tokens of an endless draft: those of the positions given, and a geometric tail of the last."""
    before = theory.expected_tokens_by_position(acceptance, len(acceptance) - 1)
    reached = math.prod(acceptance[:-1])
    tail = reached * acceptance[-1]
    return float(before + (tail / (1 - acceptance[-1]) if acceptance[-1] < 1 else math.inf if tail else 0.0))


def _verdict(
    acceptance: Sequence[float], k: int | None, gained: float, best: BestK, least: float, c: float, most: int
) -> tuple[Literal["good", "bad", "unsure"], str, str]:
    one = len(acceptance) == 1
    if best.k == 0:
        if math.isnan(least):
            reason = f"with a draft cost of c = {c:g} not even a perfect draft would pay"
        elif one:
            reason = f"alpha {acceptance[0]:g} is not above {least:.2f}, the least that any K needs with c = {c:g}"
        else:
            reason = f"no K from 1 to {most} pays with c = {c:g}"
        return "bad", "Do not speculate with this draft.", reason
    advice = f"K = {best.k} gives {best.speedup:.2f}x"
    if best.k == most:
        advice += f", the longest draft looked at (--most {most})"
    if k is not None and gained <= 1:
        return "bad", f"Not with K = {k}: {gained:.2f}x.", f"a draft this long costs more than it saves; {advice}"
    if best.speedup < _WORTH_IT:
        return "unsure", f"Hardly worth it: {best.speedup:.2f}x at best.", f"{advice}; measure before you rely on it"
    if k is not None and gained < _AS_GOOD * best.speedup:
        return "good", f"Speculate, but not with K = {k}.", f"{advice}, against {gained:.2f}x"
    return "good", "Speculate.", advice if k is None or k == best.k else f"{advice}, K = {k} hardly less"


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
    """What a temperature does to acceptance, shown on a toy pair, since no formula gives it without the logits.

    The toy is `headstart.learn.simulate.dial_logits`: distributions over 10 tokens and a draft that agrees with the
    target to a degree from 0 to 1. It shows how flattening both distributions moves sum min(p, q), and not what real
    pairs add to that: at a high temperature a text wanders to where drafts know less.

    asked: the acceptance at temperature 1 that the toy was to have; at_one: what it has (its least is about .53).
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
        TemperatureRow(float(t), a, theory.best_k(a, c, v, most=most), b, theory.best_k(b, c, v, most=most))
        for t, a, b in zip(values, drawn.tolist(), point.tolist(), strict=True)
    )


def _alpha(agreement: float) -> float:
    """The mean acceptance at temperature 1, which rises with the agreement."""
    return float(theory.acceptance_at(*dial_logits(agreement, (_DRAWS,)), 1.0).mean())
