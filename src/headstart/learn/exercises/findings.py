"""What a check of an answer found, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Rational, Real
from typing import Any

from headstart.base.errors import HeadstartError


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdict on one answer."""

    passed: bool
    say: tuple[str, ...] = ()
    """Lines for the reader; a table is several of them."""

    @classmethod
    def wrong(cls, *say: str) -> Findings:
        return cls(False, say)


class WrongAnswer(HeadstartError):
    """An answer of a kind that cannot be judged; the message says which, the hint what is wanted."""


def returned(value: Any, where: str) -> Any:
    """The value of a call.

    Raises:
        WrongAnswer: it is None.
    """
    if value is None:
        raise WrongAnswer(f"{where} returns nothing", hint="is there a `return` at the end of every path?")
    return value


def number_of(value: Any, where: str) -> float:
    """A returned value as a number.

    Raises:
        WrongAnswer: it is none.
    """
    if isinstance(returned(value, where), bool) or not isinstance(value, Real):
        raise WrongAnswer(f"{where} returns {shortened(value)}", hint="a number is asked for")
    return float(value)


def shortened(value: Any) -> str:
    """A value as the reader wrote it, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def amount(value: Any) -> str:
    """A number to compare by eye: fractions as they are, floats with four digits, nan as nan."""
    if isinstance(value, Rational):
        return str(value)
    number = float(value)
    return f"{number:.4g}" if math.isfinite(number) else str(number)


def distribution_text(distribution: Sequence[Any]) -> str:
    """[0.5 0.3 0.2]"""
    return f"[{' '.join(amount(value) for value in distribution)}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Lines of a table: the first column on the left, the others on the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return tuple(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
