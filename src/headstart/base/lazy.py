"""Packages that import a name when it is first used, so that `headstart --help` waits for neither torch nor NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from threading import RLock
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


class Deferred:
    """A library that is imported when a name or a module of it is first used: what starts without it does not wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: list[Callable[[Any], object]] = []
        self._acting = RLock()

    def __getattr__(self, name: str) -> Any:
        library = import_module(self._name)
        with self._acting:  # another thread has nothing of the library before all is done
            while self._first:
                self._first.pop()(library)
        try:
            found = getattr(library, name)
        except AttributeError:  # a module that nothing has imported yet is no attribute
            found = self._module(name)
        setattr(self, name, found)
        return found

    def _module(self, name: str) -> Any:
        path = f"{self._name}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise AttributeError(f"module {self._name!r} has no attribute {name!r}") from None

    def first(self, act: Callable[[Any], object]) -> None:
        """Do this with the library before it is used: now, if it has been imported already."""
        with self._acting:
            if self._name in sys.modules:
                act(import_module(self._name))  # which waits for another thread that is importing it
            else:
                self._first.append(act)


huggingface_hub: Any = Deferred("huggingface_hub")
transformers: Any = Deferred("transformers")
"""Seconds of imports that a model whose probe was kept does without: see `headstart.model.kept`."""
