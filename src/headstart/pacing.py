"""How many nodes each row may draft in the next step."""

from __future__ import annotations

from typing import Protocol

from headstart.options import check_number
from headstart.types import Step


class Pacing(Protocol):
    """Asked before every step, told after it."""

    def budget(self, request: int) -> int:
        """Nodes the request may draft; 0 is plain decoding."""
        ...

    def observe(self, step: Step) -> None: ...


class FixedPacing(Pacing):
    """The same K for every row and step."""

    def __init__(self, k: int) -> None:
        check_number("num_speculative_tokens", k, low=0, integer=True)
        self._k = k

    def budget(self, request: int) -> int:  # noqa: ARG002
        return self._k

    def observe(self, step: Step) -> None:
        pass
