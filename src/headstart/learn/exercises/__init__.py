"""The four exercises that are written in Python: what is asked, how an answer is checked, hints, and a solution."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.learn.exercises import adaptive_k, corrected_distribution, expected_tokens, solutions, verifier
from headstart.learn.exercises.findings import Findings


@dataclass(frozen=True, slots=True)
class Exercise:
    """One of them."""

    number: int
    name: str
    """The function that the reader writes."""
    title: str
    chapter: str
    """The chapter of the lessons that it belongs to."""
    check: Callable[[Any], Findings]
    """Judges such a function; what the function itself raises passes through."""
    hints: tuple[str, ...]
    """One more is shown after each run that fails."""
    solution: tuple[Callable[..., Any], ...]
    """Functions whose source solves it; the first one bears the name."""
    why: str
    """Why the solution is right."""

    @property
    def source(self) -> str:
        """The solution as text."""
        return "\n\n".join(inspect.getsource(each).rstrip() for each in self.solution) + "\n"


EXERCISES = (
    Exercise(
        1,
        "expected_tokens",
        "Expected tokens a round",
        "06",
        expected_tokens.check,
        expected_tokens.HINTS,
        (solutions.expected_tokens,),
        expected_tokens.WHY,
    ),
    Exercise(
        2,
        "corrected_distribution",
        "The corrected distribution",
        "04",
        corrected_distribution.check,
        corrected_distribution.HINTS,
        (solutions.corrected_distribution,),
        corrected_distribution.WHY,
    ),
    Exercise(
        3,
        "adaptive_k",
        "A draft length that adapts",
        "11",
        adaptive_k.check,
        adaptive_k.HINTS,
        (solutions.adaptive_k,),
        adaptive_k.WHY,
    ),
    Exercise(
        4,
        "verify",
        "A verifier, proved or refuted",
        "04b",
        verifier.check,
        verifier.HINTS,
        (solutions.verify, solutions.verify_block),
        verifier.WHY,
    ),
)


def exercise(number: int) -> Exercise:
    """The exercise with this number.

    Raises:
        InvalidOption: there is none.
    """
    if not 1 <= number <= len(EXERCISES):
        raise InvalidOption(f"there is no exercise {number}", hint=f"they are numbered 1 to {len(EXERCISES)}")
    return EXERCISES[number - 1]


def starter() -> str:
    """A Python file with the four functions, still empty."""
    return files("headstart.learn.exercises").joinpath("answers.txt").read_text(encoding="utf-8")
