"""The optional packages: how they are installed, and having one on first use, or an error with a remedy.

headstart is not on a package index, so its bare name would find nothing there, or a stranger's package of that
name. What works is the clone that the package runs from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from headstart.base.errors import InvalidOption, ModelNotFound

Extra = Literal["agents", "fleet", "serve"]

CLONE = Path(__file__).parents[3]
"""Where pyproject.toml is, if the package runs from a clone: `pip install -e`, or PYTHONPATH."""

IN_CLONE = Path(__file__).parents[1] / "pair"
PAIR = "headstart_pair"
"""Where a clone has the bundled models, and the package of them that packages/pair builds, which holds no code."""

PLAINLY_IMPORTED: Mapping[str, Extra] = {"httpx2": "fleet", "prompt_toolkit": "serve", "yaml": "fleet"}
"""Modules of optional packages that a wing imports as any other, and the extra that installs each. Where one is absent,
the command line turns Python's own error into `missing`."""


def how_to_install(extra: Extra) -> str:
    """The hint of an error about a package of an extra that is missing: a command, with this clone's own path."""
    if (CLONE / "pyproject.toml").is_file():
        return f'pip install -e "{CLONE}[{extra}]"'
    return f'in a clone of headstart: pip install ".[{extra}]"'


def missing(error: ImportError) -> InvalidOption | None:
    """The error to show for a package of `PLAINLY_IMPORTED` that is not installed; None for any other import."""
    module = (error.name or "").partition(".")[0]
    if module not in PLAINLY_IMPORTED:
        return None
    return InvalidOption(
        f"this needs {module}, which cannot be imported", hint=how_to_install(PLAINLY_IMPORTED[module])
    )


NEEDS: dict[Extra, str] = {
    "agents": "a grammar needs llguidance",
    "serve": "a server needs fastapi, uvicorn and prometheus-client",
}
"""What `extra` says of an extra whose packages are missing."""


def extra(module: str, of: Extra) -> Any:
    """The module of an optional package, imported on first use.

    Raises:
        InvalidOption: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        problem = f"{NEEDS[of]}, and {error.name or module} cannot be imported"
        raise InvalidOption(problem, hint=how_to_install(of)) from error


def pair(name: str) -> Path:
    """The folder of one of the bundled models: "target", "draft", "eagle3" or "medusa". A clone holds them; else they
    are a package of their own, since they take 59 MB.

    Raises:
        ModelNotFound: that package is not installed.
    """
    if IN_CLONE.is_dir():
        return IN_CLONE / name
    spec = importlib.util.find_spec(PAIR)
    if spec is None or not spec.submodule_search_locations:
        raise ModelNotFound(
            "the models that 'bundled' means are not installed",
            hint="in a clone of headstart: pip install ./packages/pair; or name a model of your own with --model",
        )
    return Path(spec.submodule_search_locations[0]) / name


def require_server() -> None:
    """Raises:
    InvalidOption: a package that only the server needs is not installed.
    """
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        extra(module, "serve")
