"""Rows of requests that no engine serves, for tests of pacing."""

from __future__ import annotations

from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.rule.row import Row
from headstart.types import Sampling

_LAW = SamplingState(Sampling(), (), 9, frozenset())


def a_row(request: int, tokens: int, room: int, *, reproducible: bool = False) -> Row:
    """A row with so many committed tokens and room for so many more."""
    return Row(request, (1,) * tokens, _LAW, Noise(0), room=room, reproducible=reproducible)
