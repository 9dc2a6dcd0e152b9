"""Exercise 1: expected tokens a round, from acceptance and draft length."""

from __future__ import annotations

import math
import random
from typing import Any

from headstart.learn.exercises.findings import Findings, amount, number_of
from headstart.theory import expected_tokens

HINTS = (
    "A round emits its accepted guesses and one token more. The first guess counts with chance alpha, the second with "
    "alpha * alpha, and so on: 1 + alpha + ... + alpha**gamma.",
    "That sum is (1 - alpha**(gamma + 1)) / (1 - alpha). At alpha = 1 this divides by 0; there the sum is gamma + 1.",
)
WHY = (
    "The round reaches its token number i + 1 only if i guesses in a row were accepted, which has chance alpha**i; the "
    "sum over i from 0 to gamma is a geometric series."
)
_SHOWN = ((0.8, 5), (1.0, 5), (0.5, 3))
_HIDDEN = ((0.0, 4), (0.0, 0), (1.0, 0), (0.3, 0), (1, 7), (0.95, 8), (0.7, 1), (0.999, 50))


def check(answer: Any) -> Findings:
    """Compare a function of (alpha, gamma) with the formula."""
    luck = random.Random(1)
    drawn = tuple((luck.random(), luck.randrange(12)) for _ in range(20))
    for alpha, gamma in (*_SHOWN, *_HIDDEN, *drawn):
        call = f"expected_tokens({amount(alpha)}, {gamma})"
        found, right = number_of(answer(alpha, gamma), call), float(expected_tokens(alpha, gamma))
        if not math.isclose(found, right, rel_tol=1e-7):
            return Findings.wrong(
                f"{call} gives {amount(found)}; it should be {amount(right)}.", *_guess(found, alpha, gamma)
            )
    return Findings(True, ("expected_tokens(0.8, 5) = 3.69, and every other case is right too.",))


def _guess(found: float, alpha: float, gamma: int) -> tuple[str, ...]:
    """What may have gone wrong."""
    if gamma and math.isclose(found, float(expected_tokens(alpha, gamma - 1)), rel_tol=1e-7):
        return ("That is the sum of one term less: the token after the last guess counts too.",)
    if math.isclose(found, float(expected_tokens(alpha, gamma)) - 1, rel_tol=1e-7, abs_tol=1e-9):
        return ("That counts the accepted guesses only: every round emits one token more.",)
    return ()
