"""The target's state of each request's last token in the cache, from which the head of a drafter goes on."""

from __future__ import annotations

from torch import Tensor

from headstart.drafters import Observation, Row


class LastStates:
    """By request. layer: the tap that is read."""

    def __init__(self, layer: int) -> None:
        self._layer = layer
        self._states: dict[int, tuple[int, Tensor]] = {}

    def observe(self, observation: Observation) -> bool:
        """Take the state of the last token that was read; returns whether there was one."""
        hidden = observation.hidden.get(self._layer)
        if hidden is None or not len(hidden):
            return False
        cached = observation.start + len(observation.tokens)
        self._states[observation.step.request] = cached, hidden[-1].clone()  # no view of a whole prompt's
        return True

    def before(self, row: Row) -> Tensor | None:
        """The state [d] of the token before x0; None while the prompt is unread, or where the text went on unseen."""
        cached, state = self._states.get(row.request, (0, None))
        return state if cached == len(row.tokens) - 1 else None

    def release(self, request: int) -> None:
        self._states.pop(request, None)
