"""When drafters index texts: a prompt piece by piece while the target reads it, and what was indexed of ended requests
not again for the next turn of the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from headstart.drafters.capabilities import may_draft
from headstart.drafters.drafter import Drafter, Observation

SLICE = 2048
"""Tokens of a text that are indexed at once: some milliseconds of Python, for which the other requests of a step wait.
Of a long text that nobody has indexed, because the cache held it, each step indexes so many."""
_FEW = 64
"""Tokens that a step reads of a text at most, where it does not read a prompt."""
LIMIT = 1 << 16
"""Tokens whose memories are kept, over all requests; some hundred bytes each."""
LEAST = 1024
"""Tokens of a text whose memory is kept: a shorter one is indexed in a millisecond or two."""

Memory = TypeVar("Memory")


def read_of_prompt(drafter: Drafter, observation: Observation) -> int:
    """How many tokens of the request's text have been read, where the step has read a piece of a prompt and the drafter
    may be asked for this request: so many it can index now. 0 of other steps."""
    row, new = observation.row, len(observation.tokens)
    return observation.start + new if row is not None and new > _FEW and may_draft(drafter, row) else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept(Generic[Memory]):
    salt: str
    tokens: Sequence[int]
    memory: Memory


class KeptMemories(Generic[Memory]):
    """Memories of ended requests, by their texts. The oldest go first.

    A memory is given to one later request of the same salt, and only if that request's text begins with all of the text
    that the memory is of. So it becomes what it would be had the whole text been read anew.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._kept: list[_Kept[Memory]] = []

    def keep(self, salt: str, tokens: Sequence[int], memory: Memory) -> None:
        """Keep the memory of a text. Neither may change until it is taken."""
        if not LEAST <= len(tokens) <= self._limit:
            return
        self._kept.append(_Kept(salt, tokens, memory))
        while sum(len(each.tokens) for each in self._kept) > self._limit:
            del self._kept[0]

    def take(self, salt: str, tokens: tuple[int, ...]) -> Memory | None:
        """The memory of the longest text with which this one begins; it is kept no longer."""
        fits = [each for each in self._kept if each.salt == salt and _begins(tokens, each.tokens)]
        if not fits:
            return None
        best = max(fits, key=lambda each: len(each.tokens))
        self._kept.remove(best)
        return best.memory


def _begins(tokens: tuple[int, ...], beginning: Sequence[int]) -> bool:
    count = len(beginning)
    return count <= len(tokens) and tokens[count - 1] == beginning[-1] and tokens[:count] == tuple(beginning)
