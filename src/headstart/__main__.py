"""The `headstart` command, which is also `python -m headstart`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headstart.base import preload

_RUN = {"generate", "chat", "serve", "demo"}
"""Commands that run a model, unless they are asked for help."""


def main() -> None:
    """The console script."""
    if _runs(sys.argv[1:]):
        preload.begin()
    from headstart.commands.cli import main as run  # which takes as long as PyTorch's library, in Python

    run()


def _runs(words: Sequence[str]) -> bool:
    return bool(words) and words[0] in _RUN and not {"-h", "--help", "--help-all"} & set(words)


if __name__ == "__main__":
    main()
