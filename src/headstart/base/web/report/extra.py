"""The optional packages that pages need, asked for by name: a missing one is an error with a remedy."""

from __future__ import annotations

import importlib
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.base.extras import how_to_install


def extra(module: str) -> Any:
    """The module of plotly or jinja2, imported on first use, since both are optional and slow to import.

    Raises:
        InvalidOption: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidOption(
            f"a report page needs plotly and jinja2, and {error.name or module} cannot be imported",
            hint=how_to_install("report"),
        ) from error


def require_report() -> None:
    """Fail now if a page could not be written later: call it before hours of measuring.

    Raises:
        InvalidOption: plotly or jinja2 is not installed.
    """
    extra("jinja2")
    extra("plotly.graph_objects")
