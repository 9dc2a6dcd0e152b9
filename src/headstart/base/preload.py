"""A shorter `import torch` for commands that run a model.

PyTorch's library, half a gigabyte whose addresses are fitted and whose operators enter their names, is read by a thread
while Python imports the command line: no Python runs in it. And parts of the package that running a model does not need
are there by name, and are read when something is looked for in them. Where either is not possible, the import is what
it was.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

_GLOBAL, _OWN = "libtorch_global_deps.so", "libtorch_cpu.so"
"""In the order in which PyTorch reads them, the names in the first one for all others to use."""
_METAS = "torch._meta_registrations"
LATER = frozenset(
    (
        _METAS, "torch.ao", "torch.distributions", "torch.export", "torch.masked", "torch.nn.intrinsic", "torch.nn.qat",
        "torch.nn.quantizable", "torch.nn.quantized", "torch.quantization",
    )
)  # fmt: skip
"""Modules of which `import torch` uses nothing."""
_NEED_METAS = frozenset(("accelerate", "torch._dynamo", "torch._inductor", "torch.onnx", "transformers"))
"""What computes on tensors without memory, for which `_METAS` holds operators: none of them looks it up by name."""


def begin() -> Thread | None:
    """Prepare the import. Returns the thread that reads the library, or None where none does."""
    if "torch" in sys.modules:
        return None
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    found = PathFinder.find_spec("torch") if sys.platform == "linux" else None
    if found is None or found.origin is None:
        return None
    thread = Thread(target=_read, args=(Path(found.origin).parent / "lib",), name="reads PyTorch's library")
    thread.start()
    return thread


def complete() -> None:
    """Read what gives tensors without memory their operators: before code that is not known here uses PyTorch."""
    _wake(_METAS)


def _read(folder: Path) -> None:
    """Read what is there. Functions of C run without Python's lock, which `ctypes.CDLL` would hold meanwhile."""
    try:
        read = ctypes.CDLL(None).dlopen
    except (OSError, AttributeError):  # a C library that keeps it to itself
        return
    read.argtypes, read.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name, names in ((_GLOBAL, os.RTLD_GLOBAL), (_OWN, os.RTLD_LOCAL)):
        if (path := folder / name).is_file():
            read(os.fsencode(path), os.RTLD_NOW | names)


class _Waiting(ModuleType):
    """A module that is read when something is looked for in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # asked of every module by those who go through all of them
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _wake(self.__name__)
        return getattr(self, name)


class _NotYet(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Waiting(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: what is read now would be read for nobody."""


class _Finder:
    """Finds the modules that wait, and notices when something is imported that needs one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        _wake(name.rpartition(".")[0])  # what a module brings with it is there before what lies in it
        if name in _NEED_METAS:
            complete()
        if name not in LATER or target is not None:  # the latter when it is read at last
            return None
        if (found := PathFinder.find_spec(name, path)) is not None:
            found.loader = _NotYet()
        return found


def _wake(name: str) -> None:
    """Read a module, if it waits."""
    module = sys.modules.get(name)
    if isinstance(module, _Waiting):
        module.__class__ = ModuleType
        importlib.reload(module)
