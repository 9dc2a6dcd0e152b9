"""Keys and values of past tokens: preallocated slots, one per running request. Rolling back is setting a length.

A slot that is given back may keep its text: the next request that begins alike then need not read that again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.model.memory import bytes_of
from headstart.model.planes import StateShape
from headstart.model.prefixes import HeldText, longest_beginning
from headstart.model.states import MOST_DRAFTED, States, states_bytes

if TYPE_CHECKING:
    from headstart.model.slot_files import SavedTexts


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores per token."""

    heads: int
    key_dim: int
    value_dim: int
    """0: the first numbers of a key are its value (latent attention)."""

    @property
    def numbers_per_token(self) -> int:
        return self.heads * (self.key_dim + self.value_dim)


NO_STATES: Mapping[int, StateShape] = {}

SCALE_BYTES = 4
"""Behind keys and values of int8: what their numbers are multiples of."""


def stored(shape: LayerShape, dtype: torch.dtype) -> LayerShape:
    """The shape with its scales, where keys and values are whole numbers."""
    more = SCALE_BYTES if dtype == torch.int8 else 0
    return LayerShape(shape.heads, shape.key_dim + more, shape.value_dim + more)


def cache_bytes(
    layers: Mapping[int, LayerShape],
    states: Mapping[int, StateShape],
    *,
    slots: int,
    capacity: int,
    dtype: torch.dtype,
) -> int:
    """Bytes of a cache of so many slots, its checkpoints among them."""
    text = text_bytes(layers, capacity, dtype)
    return slots * (text + states_bytes(states, saved=text))


def text_bytes(layers: Mapping[int, LayerShape], capacity: int, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of so many tokens, which is what a slot's checkpoints may take as well."""
    return sum(stored(shape, dtype).numbers_per_token for shape in layers.values()) * dtype.itemsize * capacity


def states_of(
    shapes: Mapping[int, StateShape],
    layers: Mapping[int, LayerShape],
    slots: int,
    capacity: int,
    dtype: torch.dtype,
    device: torch.device,
) -> States | None:
    """The states of a cache, whose checkpoints may take as much as the keys and values of a slot; None without any."""
    if not shapes:
        return None
    return States(shapes, slots, device, saved=text_bytes(layers, capacity, dtype))


class Slots(ABC):
    """The bookkeeping of a cache. Slot s holds the first lengths[s] tokens of its text, also while it is free.

    What lies beyond a slot's length is scratch: a forward writes its rows there, `keep` decides what stays. Where
    layers are recurrent, `states` holds what they keep of each text, which cannot be cut at every token.
    """

    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    """By layer, laid out as the decoder wants them."""

    def __init__(self, slots: int, capacity: int, states: States | None = None) -> None:
        self.capacity, self.states = capacity, states
        self.most_drafted = capacity if states is None else min(capacity, MOST_DRAFTED)
        """Nodes of the largest draft that a forward may hold."""
        self.keeps_texts = False
        """Whether requests are to leave their texts here for others. Whoever acquires and releases acts on it; drafters
        that hold a cache of their own do as the target's says."""
        self.saved_texts: SavedTexts | None = None
        """Where texts may come from that no slot holds."""
        self.lengths = [0] * slots
        self._free = list(reversed(range(slots)))  # the last is the one that was given back last
        self._texts = [HeldText()] * slots

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def memory(self) -> int:
        """Bytes that keys, values and states take."""
        states = 0 if self.states is None else self.states.memory()
        return bytes_of((*self.keys.values(), *self.values.values())) + states

    def acquire(self, tokens: Sequence[int] = (), salt: Hashable = "") -> int:
        """Take a slot for a text that begins with `tokens`. The caller has seen that there is a free one.

        The slot holds the longest beginning of them that any slot of this `salt` holds, as its length says: it is the
        one that holds it, or has a copy where that one is busy, or holds more of another text than of this one. Without
        `tokens` it is empty.
        """
        best = longest_beginning(tokens, salt, self._texts, self.lengths, self._reach) if tokens else None
        length = 0 if best is None else best.length
        slot = self._idlest()
        if (
            best is not None
            and best.slot in self._free
            and (2 * length >= self.lengths[best.slot] or slot == best.slot)
        ):
            slot = best.slot
        self._texts[slot] = HeldText()  # who writes this text into a file sees that it goes, before it does
        if best is not None and slot != best.slot:
            self.copy_from(self, best.slot, slot, length)
            if self.states is not None:
                self.states.copy(best.slot, slot, length)
            if best.slot in self._free:  # it has been of use just now
                self._free.remove(best.slot)
                self._free.append(best.slot)
        self._free.remove(slot)
        self._texts[slot] = HeldText(tuple(tokens), salt)
        self.lengths[slot] = length if self.states is None else self.states.cut(slot, length)
        return slot

    def take(self, slot: int) -> None:
        """Take this slot, which must be free, as `acquire` does without a text: it is empty."""
        self._texts[slot] = HeldText()
        self._free.remove(slot)
        self.lengths[slot] = 0 if self.states is None else self.states.cut(slot, 0)

    def kept(self) -> list[tuple[int, HeldText]]:
        """The free slots that hold a text, and the texts; those first that are to give way first. Any thread may
        ask."""
        free = tuple(self._free)  # looked at again below: a slot that was taken meanwhile has another text by now
        return [(slot, text) for slot in free if (text := self._texts[slot]).tokens and slot in tuple(self._free)]

    def held(self, slot: int) -> HeldText | None:
        """The text that a free slot holds; None of one that is in use. Any thread may ask."""
        text = self._texts[slot]  # before the slot is looked for: one that is taken meanwhile gets another text
        return text if slot in tuple(self._free) else None

    def keeps(self, slot: int, text: HeldText) -> bool:
        """Whether a slot still holds this very text of `kept`, as it was."""
        return self._texts[slot] is text

    def longest(self, tokens: Sequence[int], salt: Hashable) -> int:
        """The length of the longest beginning of a text that any slot holds; 0 where that is too short."""
        found = longest_beginning(tokens, salt, self._texts, self.lengths, self._reach)
        return 0 if found is None else found.length

    def _reach(self, slot: int, length: int) -> int:
        """How many of the first `length` tokens of a slot a text may begin with: all, or those up to a state."""
        return length if self.states is None else self.states.reach(slot, length)

    def _idlest(self) -> int:
        """The free slot whose text is missed least: an empty one, else that which was given back first."""
        return next((slot for slot in reversed(self._free) if self.lengths[slot] == 0), self._free[0])

    def release(self, slot: int, tokens: Sequence[int] = (), salt: Hashable = "") -> None:
        """Give a slot back. It keeps those of `tokens`, its text, that it holds; without them it is empty."""
        kept = tuple(tokens[: self.lengths[slot]])
        # whatever a failure has left of its states
        length = len(kept) if self.states is None else self.states.cut(slot, len(kept))
        self._texts[slot] = HeldText(kept[:length], salt)
        self.lengths[slot] = length
        self._free.append(slot)

    def keep(self, slot: int, causal: int, path: Sequence[int] = ()) -> None:
        """Commit the last forward of `slot`: its first `causal` rows, then the draft nodes of `path`, gathered.

        Node i of the draft was row causal + i; after this the accepted path lies in consecutive places.
        """
        base = self.lengths[slot] + causal
        if list(path) != list(range(len(path))):
            self._gather(slot, base, path)
        if self.states is not None:
            self.states.keep(slot, base, path, saves=self.keeps_texts)
        self.lengths[slot] = base + len(path)

    @abstractmethod
    def read(self, layer: int, slot: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values [1, heads, end, dim] of what is stored up to there: views where the layout allows it."""

    @abstractmethod
    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        """Move token base + path[i] to base + i, for all i at once."""

    @abstractmethod
    def copy_from(self, other: Slots, source: int, slot: int, length: int, begin: int = 0) -> None:
        """Make the first `length` tokens of a slot those of a slot of another cache of this kind, or of this one. Those
        before `begin` are there already, and may stay."""

    def rewind(self, slot: int, length: int) -> int:
        """Forget everything after the first `length` tokens; returns how many the slot holds then.

        Those are fewer where the states of recurrent layers do not reach so far: the rest is to be read again. Scratch
        behind the text stays where it is, unless they are fewer.
        """
        if length > self.lengths[slot]:
            raise ValueError(f"slot {slot} holds {self.lengths[slot]} tokens, cannot rewind to {length}")
        if self.states is not None:
            length = self.states.cut(slot, length, taken_back=self.lengths[slot] - length)
        self.lengths[slot] = length
        return length

    def scratch_room(self, slot: int) -> int:
        """Rows that forwards of the first layers alone may add behind the text of a slot."""
        room = self.capacity - self.lengths[slot]
        return room if self.states is None else min(room, self.states.room(slot, self.lengths[slot]))

    def pretend(self, slot: int, length: int) -> None:
        """Let a slot count as holding so many tokens, whatever it holds; for timing."""
        if self.states is not None:
            self.states.pretend(slot, length)
        self.lengths[slot] = length

    def check(self) -> None:
        """Audit the bookkeeping (called after tests): free slots are distinct and hold what they kept, lengths fit."""
        free = set(self._free)
        assert len(free) == len(self._free), f"a slot is free twice: {self._free}"
        for slot in free:
            text = self._texts[slot].tokens
            assert self.lengths[slot] == len(text), f"slot {slot} is free and holds more or less than it kept"
            if self.states is not None:
                self.states.check(slot, self.lengths[slot])
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
        states: Mapping[int, StateShape] = NO_STATES,
    ) -> None:
        super().__init__(slots, capacity, states_of(states, layers, slots, capacity, dtype, device))
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
        return self.read(layer, slot, end)

    def read(self, layer: int, slot: int, end: int) -> tuple[Tensor, Tensor]:
        return self.keys[layer][slot, :, :end].unsqueeze(0), self.values[layer][slot, :, :end].unsqueeze(0)

    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        for store in (*self.keys.values(), *self.values.values()):
            rows = store[slot]
            # the index makes a copy first, so overlapping source and target are safe
            rows[:, base : base + len(path)] = rows[:, [base + node for node in path]]

    def copy_from(self, other: Slots, source: int, slot: int, length: int, begin: int = 0) -> None:
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for layer, store in mine.items():
                store[slot, :, begin:length] = theirs[layer][source, :, begin:length]
