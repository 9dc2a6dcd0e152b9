"""Keys and values of past tokens: preallocated slots, one per running request. Rolling back is setting a length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.model.memory import bytes_of


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores per token."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers_per_token(self) -> int:
        return self.heads * (self.key_dim + self.value_dim)


class Slots(ABC):
    """The bookkeeping of a cache. Slot s holds its first lengths[s] tokens.

    What lies beyond a slot's length is scratch: a forward writes its rows there, `keep` decides what stays.
    """

    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    """By layer, laid out as the decoder wants them."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.capacity = capacity
        self.lengths = [0] * slots
        self._free = list(reversed(range(slots)))

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def memory(self) -> int:
        """Bytes that keys and values take."""
        return bytes_of((*self.keys.values(), *self.values.values()))

    def acquire(self, tokens: Sequence[int] = (), salt: str = "") -> int:  # noqa: ARG002 -- for caches that share
        """Take a slot for a text that begins with `tokens`. The caller has seen that there is a free one.

        The slot is empty here. A cache that shares the beginnings of texts may return one that already holds some of
        `tokens`, as its length says, where an earlier request of the same `salt` has left them.
        """
        slot = self._free.pop()
        self.lengths[slot] = 0
        return slot

    def release(self, slot: int) -> None:
        self.lengths[slot] = 0
        self._free.append(slot)

    def keep(self, slot: int, causal: int, path: Sequence[int] = ()) -> None:
        """Commit the last forward of `slot`: its first `causal` rows, then the draft nodes of `path`, gathered.

        Node i of the draft was row causal + i; after this the accepted path lies in consecutive places.
        """
        base = self.lengths[slot] + causal
        if list(path) != list(range(len(path))):
            self._gather(slot, base, path)
        self.lengths[slot] = base + len(path)

    @abstractmethod
    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        """Move token base + path[i] to base + i, for all i at once."""

    def rewind(self, slot: int, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        if length > self.lengths[slot]:
            raise ValueError(f"slot {slot} holds {self.lengths[slot]} tokens, cannot rewind to {length}")
        self.lengths[slot] = length

    def check(self) -> None:
        """Audit the bookkeeping (called after tests): free slots are empty and distinct, lengths fit."""
        free = set(self._free)
        assert len(free) == len(self._free), f"a slot is free twice: {self._free}"
        assert all(self.lengths[slot] == 0 for slot in free), "a free slot holds tokens"
        assert all(0 <= length <= self.capacity for length in self.lengths), f"lengths out of range: {self.lengths}"


class KVCache(Slots):
    """keys[layer], values[layer]: [slots, heads, capacity, dim]."""

    def __init__(
        self,
        layers: Mapping[int, LayerShape],
        *,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(slots, capacity)
        self.keys, self.values = {}, {}
        for layer, shape in layers.items():
            # empty, not zeros: pages of slots that are never used are never touched
            self.keys[layer] = torch.empty(slots, shape.heads, capacity, shape.key_dim, dtype=dtype, device=device)
            self.values[layer] = torch.empty(slots, shape.heads, capacity, shape.value_dim, dtype=dtype, device=device)

    def write(self, layer: int, slot: int, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store rows [heads, n, dim] at `start`; return views [1, heads, start + n, dim] of all up to there."""
        end = start + key.shape[1]
        keys, values = self.keys[layer][slot], self.values[layer][slot]
        keys[:, start:end] = key
        values[:, start:end] = value
        return keys[:, :end].unsqueeze(0), values[:, :end].unsqueeze(0)

    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        for store in (*self.keys.values(), *self.values.values()):
            rows = store[slot]
            # the index makes a copy first, so overlapping source and target are safe
            rows[:, base : base + len(path)] = rows[:, [base + node for node in path]]
