"""What models and drafters are called outside, never by a path of this machine; and the names that clients choose."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath

_AND = " + "
"""Stands between the names of drafters that work together, in `Engine.describe` and `Speculation.drafter`."""
_AHEAD = "ahead:"
"""Stands before the name of one that drafts ahead; `headstart.drafters.building.PREFIX`, without its imports."""
OTHER = "other"
MOST_NAMES = 20
LONGEST_NAME = 64
"""Characters that are kept of a name."""


@lru_cache(maxsize=256)  # metrics ask in every step
def public_name(name: str) -> str:
    """The name of a model or a drafter; of a path its last part alone, of several drafters each of theirs."""
    return _AND.join(_public(part) for part in name.split(_AND))


def sources_of(drafter: str) -> dict[str, str]:
    """The drafters of an engine: what requests call them, and what the engine does."""
    return {_public(name): name for name in drafter.split(_AND)}


def public_words(words: str, drafter: str) -> str:
    """A sentence about drafters, with their public names. drafter: the names of all of them, as the engine has them."""
    for public, name in sources_of(drafter).items():
        words = words.replace(name, public) if public != name else words
    return words


def _public(name: str) -> str:
    if name.startswith(_AHEAD):
        return _AHEAD + _public(name.removeprefix(_AHEAD))
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    return PurePath(name).name or "model" if is_path else name


class Names:
    """Names that clients choose, kept few: the first twenty are kept as they are, every later one is "other"."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """The name under which something is counted."""
        name = name[:LONGEST_NAME]
        if name in self._known or name == OTHER:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name
