"""PyTorch's library, read by a thread while Python imports the command line.

Half a gigabyte of code is found, its addresses are fitted and a million operators enter their names: a third of what
`import torch` takes, in which no Python runs. The import finds it done. Where that fails, the import does it, and says
why it cannot.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Thread

_GLOBAL, _OWN = "libtorch_global_deps.so", "libtorch_cpu.so"
"""In the order in which PyTorch reads them, the names in the first one for all others to use."""


def begin() -> Thread | None:
    """Begin to read it, where that is known to be what the import does; None elsewhere."""
    found = PathFinder.find_spec("torch") if sys.platform == "linux" and "torch" not in sys.modules else None
    if found is None or found.origin is None:
        return None
    thread = Thread(target=_read, args=(Path(found.origin).parent / "lib",), name="reads PyTorch's library")
    thread.start()
    return thread


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
