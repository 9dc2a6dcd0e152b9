"""The kernels' library: its sources, and the OpenMP runtime that it shares with PyTorch."""

from __future__ import annotations

from pathlib import Path

import torch

from headstart.base import compiling
from headstart.base.compiling import STRICT, Unavailable, find_compiler
from headstart.base.files import cache_directory

__all__ = ["SOURCES", "STRICT", "Unavailable", "find_compiler", "library"]

_FILES = (
    "decoder.cpp",
    "attention.h",
    "mixers.h",
    "norms.h",
    "products.h",
    "grouped.h",
    "grouped_tiles.h",
    "rounding.h",
    "tiles.h",
    "team.h",
    "threads.h",
    "numbers.h",
)

SOURCES = tuple(Path(__file__).parent / name for name in _FILES)
"""What the library is made from; the first is what is compiled."""


def library() -> Path:
    """The compiled library, built if it is not in the cache directory yet.

    Raises:
        Unavailable: there is no C++ compiler, or it failed.
    """
    return compiling.library("decoder", SOURCES, cache_directory("kernels"), strict=STRICT, openmp=_openmp())


def _openmp() -> tuple[str, ...]:
    """Link against PyTorch's own OpenMP runtime where it has one: a second one would be a second pool of threads."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return (str(found[0]),) if found else ("-fopenmp",)
