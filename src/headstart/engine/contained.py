"""What a step contains of code that is not headstart's own, and how it says so in one line."""

from __future__ import annotations

CONTAINED = (Exception, SystemExit)
"""`SystemExit` too: a drafter that calls `sys.exit` must not end a server. `KeyboardInterrupt` goes through."""
_LONGEST = 300


def in_words(error: BaseException) -> str:
    """The type of an error and what it says, as one line."""
    try:
        said = " ".join(str(error).split())
    except CONTAINED:  # even that may raise
        said = ""
    short = said if len(said) <= _LONGEST else said[:_LONGEST] + "..."
    return type(error).__name__ + (f": {short}" if short else "")
