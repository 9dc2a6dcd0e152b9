"""The four exercises that are written in Python: what is asked, how an answer is checked, hints, and a solution."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from types import ModuleType
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.learn.exercises import adaptive_k, corrected_distribution, expected_tokens, solutions, verifier
from headstart.learn.exercises.findings import Findings


@dataclass(frozen=True, slots=True)
class Exercise:
    """One of them."""

    number: int
    title: str
    chapter: str
    """The chapter of the lessons that it belongs to."""
    module: ModuleType
    """How an answer is checked, `HINTS`, of which one more is shown after each run that fails, and `WHY` the solution
    is right."""
    solution: tuple[Callable[..., Any], ...]
    """Functions whose source solves it; the first one bears the name."""

    @property
    def name(self) -> str:
        """The function that the reader writes."""
        return self.solution[0].__name__

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(self.module.HINTS)

    @property
    def why(self) -> str:
        return str(self.module.WHY)

    @property
    def source(self) -> str:
        """The solution as text."""
        return "\n\n".join(inspect.getsource(each).rstrip() for each in self.solution) + "\n"

    def check(self, answer: Any) -> Findings:
        """Judge such a function; what the function itself raises passes through."""
        found: Findings = self.module.check(answer)
        return found


EXERCISES = (
    Exercise(1, "Expected tokens a round", "06", expected_tokens, (solutions.expected_tokens,)),
    Exercise(2, "The corrected distribution", "04", corrected_distribution, (solutions.corrected_distribution,)),
    Exercise(3, "A draft length that adapts", "11", adaptive_k, (solutions.adaptive_k,)),
    Exercise(4, "A verifier, proved or refuted", "04b", verifier, (solutions.verify, solutions.verify_block)),
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
