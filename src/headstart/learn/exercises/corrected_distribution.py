"""Exercise 2: the distribution of the token that takes the place of a refused guess."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.learn.exercises.findings import Findings, WrongAnswer, distribution_text, returned, shortened

HINTS = (
    "Take what the target gives beyond the draft, p - q, and 0 wherever that is negative: np.maximum(p - q, 0).",
    "Then divide by its sum, so that it is a distribution again. Where p equals q the sum is 0, and p itself is "
    "asked for.",
)
WHY = (
    "Accepted guesses already give min(p, q) of every token. What is still missing to p is p - min(p, q), which is "
    "max(p - q, 0); a refusal has to add exactly that."
)
_SHOWN = (([0.5, 0.3, 0.2], [0.2, 0.6, 0.2]), ([0.4, 0.4, 0.2], [0.3, 0.3, 0.4]))
_HIDDEN = (([0.25, 0.75], [0.25, 0.75]), ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]), ([0.0, 1.0], [1.0, 0.0]))


def check(answer: Any) -> Findings:
    """Compare a function of (p, q) with norm(max(p - q, 0))."""
    for p, q in _cases():
        given_p, given_q = list(p), list(q)
        call = f"corrected_distribution({distribution_text(p)}, {distribution_text(q)})"
        found, right = _distribution(answer(given_p, given_q), len(p), call), _right(p, q)
        if not np.allclose(found, right, rtol=0, atol=1e-9):
            message = f"{call} gives {distribution_text(found)}; it should be {distribution_text(right)}."
            return Findings.wrong(message, *_guess(found, np.array(p), np.array(q)))
        if given_p != list(p) or given_q != list(q):
            return Findings.wrong(f"{call} changes the lists that it was given; make new ones.")
    return Findings(True, ("Both cases of the lesson and every other one are right, with p = q among them.",))


def _cases() -> list[tuple[list[float], list[float]]]:
    """Those of the lesson, those at the edges, and random ones."""
    luck = np.random.default_rng(2)
    drawn = [luck.dirichlet(np.full(size, 0.6), 2).tolist() for size in (2, 3, 5, 8, 13, 21)]
    same = luck.dirichlet(np.ones(4)).tolist()
    return [*_SHOWN, *_HIDDEN, *((p, q) for p, q in drawn), (same, same)]


def _right(p: list[float], q: list[float]) -> Any:
    rest = np.maximum(np.array(p) - np.array(q), 0)
    return rest / rest.sum() if rest.sum() > 0 else np.array(p)


def _distribution(value: Any, size: int, call: str) -> Any:
    try:
        found = np.asarray(returned(value, call), dtype=np.float64)
    except (TypeError, ValueError):
        raise WrongAnswer(
            f"{call} returns {shortened(value)}", hint="a list or an array of numbers is asked for"
        ) from None
    if found.shape != (size,):
        raise WrongAnswer(
            f"{call} returns {shortened(value)}", hint=f"as many numbers as p has are asked for, here {size}"
        )
    return found


def _guess(found: Any, p: Any, q: Any) -> tuple[str, ...]:
    """What may have gone wrong."""
    rest = np.maximum(p - q, 0)
    if np.isnan(found).any():
        return ("Here p equals q: nothing is left, and 0 was divided by 0.",)
    if (found < 0).any():
        return ("A probability below 0: what is negative in p - q has to become 0.",)
    if rest.sum() > 0 and np.allclose(found, rest):
        return (f"It has the right shape but sums to {found.sum():.4g}: divide by the sum.",)
    if np.allclose(found, p):
        return ("That is p itself. Drawn from p, the replacement would add once more what was accepted already.",)
    return ()
