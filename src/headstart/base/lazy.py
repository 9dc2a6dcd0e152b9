"""Packages that import a name when it is first used, so that `headstart --help` waits for neither torch nor NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str, **modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`. modules: for each module of the package, the names it provides, parted by spaces.

    No name may be that of a module of the package, which Python would put in its place.
    """
    where = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def attribute(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
