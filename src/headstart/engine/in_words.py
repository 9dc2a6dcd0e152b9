"""How an error of code that is not headstart's own is said in one line."""

from __future__ import annotations

from headstart.base.errors import CONTAINED

_LONGEST = 300


def in_words(error: BaseException) -> str:
    """The type of an error and what it says, as one line."""
    try:
        said = " ".join(str(error).split())
    except CONTAINED:  # even that may raise
        said = ""
    short = said if len(said) <= _LONGEST else said[:_LONGEST] + "..."
    return type(error).__name__ + (f": {short}" if short else "")
