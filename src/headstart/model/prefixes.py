"""Which slot holds the longest beginning of a text: what is known of the texts in a cache, and of how lately they were
used. The keys and values themselves are the cache's business."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

SHORTEST = 16
"""Tokens that a text must have in common with another for it to be worth anything: reading fewer costs no more than a
step does anyway."""
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class HeldText:
    """What a slot holds: the keys and values of at least so many of these tokens as its length says."""

    tokens: tuple[int, ...] = ()
    salt: Hashable = ""
    """Texts of different salts know nothing of each other."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A beginning of a text that a slot holds already."""

    slot: int
    length: int


def longest_beginning(
    tokens: Sequence[int],
    salt: Hashable,
    texts: Sequence[HeldText],
    lengths: Sequence[int],
    reach: Callable[[int, int], int] = lambda _, length: length,
) -> Beginning | None:
    """Of the slots that hold a beginning of `tokens`, the one that holds most of it; None where all is too short.

    texts, lengths: of each slot, what it holds, and how much of that. reach: of a slot and a number of its first
    tokens, how many of them a text may begin with.
    """
    wanted = tuple(tokens)
    found = [
        Beginning(slot, reach(slot, min(length, common_prefix(text.tokens, wanted))))
        for slot, (text, length) in enumerate(zip(texts, lengths, strict=True))
        if length >= SHORTEST and text.salt == salt
    ]
    best = max(found, key=lambda each: each.length, default=None)
    return best if best is not None and best.length >= SHORTEST else None


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike. Both are tuples, or both are lists."""
    most = min(len(first), len(second))
    for begin in range(0, most, _BLOCK):  # whole blocks are compared at once
        end = min(begin + _BLOCK, most)
        if first[begin:end] != second[begin:end]:
            return next(i for i in range(begin, end) if first[i] != second[i])
    return most
