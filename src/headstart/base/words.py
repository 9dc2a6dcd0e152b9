"""Words that depend on a number."""

from __future__ import annotations


def counted(count: float, noun: str, form: str = "") -> str:
    """A number and what it counts: "1 text", "2 texts". form: how the number is written, as in a format string."""
    return f"{count:{form}} {noun}" + "s" * (f"{count:{form}}" != "1")
