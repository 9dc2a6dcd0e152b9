"""Texts that one cache takes over from another: a copy of the target need not read what the target has read."""

from __future__ import annotations

from headstart.model.cache import Slots


def alike(mine: Slots, other: Slots) -> bool:
    """Whether the other cache stores what this one does: of a model of the same shape, in the same types and layout,
    and of attention alone."""
    if type(mine) is not type(other) or mine.states is not None or other.states is not None:
        return False
    return _stored(mine) == _stored(other)


def take_over(mine: Slots, slot: int, other: Slots, source: int, length: int) -> int:
    """Make the text of a slot, which holds a beginning of it, the first `length` tokens of one of another cache, which
    is `alike`, as far as that holds them; returns how many they are. The new keys and values are those of the other's
    model."""
    begin, length = mine.lengths[slot], min(length, other.lengths[source], mine.capacity)
    if length > begin:
        mine.copy_from(other, source, slot, length, begin)
        mine.lengths[slot] = length
    return mine.lengths[slot]


def _stored(cache: Slots) -> list[tuple[object, ...]]:
    stores = [*cache.keys.items(), *cache.values.items()]
    return [(layer, x.dtype, x.device, x.shape[1], *x.shape[3:]) for layer, x in stores]
