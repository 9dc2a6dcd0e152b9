"""How the optional packages are installed: the extras of pyproject.toml, of which errors speak in their hints.

headstart is not on a package index, so its bare name would find nothing there, or a stranger's package of that
name. What works is the clone that the package runs from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Extra = Literal["report", "serve"]

CLONE = Path(__file__).parents[3]
"""Where pyproject.toml is, if the package runs from a clone: `pip install -e`, or PYTHONPATH."""


def how_to_install(extra: Extra) -> str:
    """The hint of an error about a package of an extra that is missing: a command, with this clone's own path."""
    if (CLONE / "pyproject.toml").is_file():
        return f'pip install -e "{CLONE}[{extra}]"'
    return f'in a clone of headstart: pip install ".[{extra}]"'
