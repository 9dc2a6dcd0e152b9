"""Drafters that read the target's hidden states: which texts they can draft for, and what is kept of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from headstart.drafters import Observation, Row
from headstart.drafters.growing.policy import ChainPolicy, GrowingDrafter, TreePolicy
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner


class StateText(Protocol):
    """What is known of one request's text.

    start: the position of the first token whose state was seen. slot: of the drafter's cache. salt: of its texts there.
    """

    start: int
    slot: int | None
    salt: Hashable

    @property
    def known(self) -> int:
        """Tokens whose states were seen."""
        ...

    @property
    def kept(self) -> Sequence[int]:
        """The tokens in the cache that are of use to other requests."""
        ...

    def close(self) -> None:
        """No more states are taken."""
        ...


T = TypeVar("T", bound=StateText)


class FromStates(GrowingDrafter, Generic[T]):
    """A drafter with a cache of its own, filled from the states that the engine shows.

    Args:
        policy, budget: see `GrowingDrafter`.
        cache: of the drafter.
        max_length: tokens of text and draft together, at most.
    """

    taps: tuple[int, ...]

    def __init__(self, policy: ChainPolicy | TreePolicy, budget: int | None, *, cache: Slots, max_length: int) -> None:
        super().__init__(policy, budget)
        self.cache = cache
        self._max_length = max_length
        self._targets_cache: Slots | None = None
        self._texts: dict[int, T] = {}

    @abstractmethod
    def _first_seen(self, observation: Observation) -> T:
        """What is known of a request at its first step: nothing, or what was kept of its text, by the target and here,
        up to where this step begins."""

    @abstractmethod
    def _learn(self, text: T, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        """The target has read these tokens, and had these states [n, d] by layer."""

    @abstractmethod
    def _read_all(self, text: T) -> None:
        """Read all states that wait, as far as they can be read."""

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- the head was made for it
        self._targets_cache = cache

    def observe(self, observation: Observation) -> None:
        request, tokens = observation.step.request, observation.tokens
        super().observe(observation)
        if not tokens or any(layer not in observation.hidden for layer in self.taps):
            return
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = self._first_seen(observation)
        if observation.start != text.start + text.known or text.known + len(tokens) > self._max_length:
            text.close()  # states are missing, or the text is longer than its context
            return
        self._learn(text, tokens, observation.hidden)

    def release(self, request: int) -> None:
        super().release(request)
        text = self._texts.pop(request, None)
        if text is None or text.slot is None:
            return
        try:
            if self._keeps_texts:  # so that what is kept reaches to the end
                self._read_all(text)
        finally:
            self.cache.release(text.slot, text.kept if self._keeps_texts else (), text.salt)

    @property
    def _keeps_texts(self) -> bool:
        return self._targets_cache is not None and self._targets_cache.keeps_texts

    def _room(self, row: Row) -> int:
        """How many nodes the draft may have: none where the latest states of the text are not known."""
        text = self._texts.get(row.request)
        if text is None or text.start + text.known != len(row.tokens) - 1:
            return 0
        return max(0, min(row.budget.nodes, self.limit, self._max_length - text.known - 1))
