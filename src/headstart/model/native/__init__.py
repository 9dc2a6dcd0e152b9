"""The forward of decoders in C++, called through plain C.

A decoder's forward is hundreds of small operations, and for small models and few rows their calls cost more than
their work. Here it is one call, and each row is computed in one fixed order, so that its result does not depend on
what else is in the forward. The library is that of the package for the best level of this processor, or is built with
the machine's own C++ compiler at first use (`base.compiling`). Where neither can be had there are no row kernels, and
`Unavailable` says why.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base import compiling, levels
from headstart.base.compiling import Library, Unavailable
from headstart.base.errors import InvalidOption, NotEnoughMemory
from headstart.model.native.structs import Batch, BlockMatrix, Model, Product, difference

__all__ = [
    "LANES", "MAIN", "PARTS", "Here", "Kernels", "Unavailable", "available", "here", "kernels", "reason", "using_level",
]  # fmt: skip

MAIN = Path(__file__).with_name("decoder.cpp")
"""What is compiled, with the headers in its folder."""

FLOAT32, BF16_WIDE, BF16_PAIRS, INT8, GROUPED4, GROUPED5, GROUPED6, GROUPED8, GROUPED2, GROUPED3 = range(10)
"""How a product stores its weights; the enum Kind of products.h."""

LANES = 16
"""Widths of rows and heads must be multiples of this."""

PARTS = (
    "start", "norms", "qkv", "rotation", "attention", "recurrence", "out", "gate and up", "activation", "down",
    "experts", "head", "waiting",
)  # fmt: skip
"""What the time of a forward goes to; the enum Part of team.h."""

_pointer, _number, _int = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class Kernels:
    """The compiled functions, typed.

    Raises:
        Unavailable: the library's structures are not those of `structs`.
    """

    def __init__(self, of: Library) -> None:
        self.library = of
        self.name = of.path.name
        """Of the library, in which its level and a digest of its sources stand."""
        library = ctypes.CDLL(str(of.path))

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            found = getattr(library, f"headstart_{name}")
            found.argtypes, found.restype = arguments, result
            return found  # type: ignore[no-any-return]

        if other := difference(function("layout", ctypes.c_char_p)().decode()):
            raise Unavailable(f"the row kernels were compiled from other sources than this package's: {other}")
        self.use_openmp = function("use_openmp", None, _pointer, _pointer)
        self.use_runtime(_openmp())
        self.supported = function("supported", _int, _number)
        self.packed_bytes = function("packed_bytes", _number, _number, _number, _number)
        self.pack = function("pack", None, _number, _pointer, _int, *[_number] * 2, *[_pointer] * 3, _number)
        self.pack_whole = function("pack_whole", None, _pointer, *[_number] * 2, *[_pointer] * 2, _number)
        self.grouped_bytes = function("grouped_bytes", _number, ctypes.POINTER(Product))
        self.pack_grouped = function("pack_grouped", None, ctypes.POINTER(Product), *[_pointer] * 6, _number)
        self.pack_blocks = function("pack_blocks", _status, ctypes.POINTER(BlockMatrix), *[_number] * 2)
        self.nibbles = function("nibbles", None, _pointer, *[_number] * 3, _pointer)
        self.round_groups = function("round_groups", None, _number, _pointer, _number, *[_pointer] * 3)
        self.unpack_grouped = function("unpack_grouped", None, ctypes.POINTER(Product), _pointer, _number, _pointer)
        self.activate = function("activate", None, _number, _pointer, _pointer, _pointer, _number)
        self.rows_of_keys = function("rows_of_keys", _int, _number)
        self.gather = function("gather", None, _pointer, _pointer, _number, _int, *[_number] * 5, _pointer, _number)
        self.gather_rows = function("gather_rows", None, _pointer, *[_number] * 6, _pointer, _number)
        self.multiply = function("multiply", _status, ctypes.POINTER(Product), _pointer, _number, _pointer, _number)
        self.rows = function("rows", _number, *[_pointer, _number] * 2, _pointer, *[_number] * 2, _pointer)
        self.read = function("read", ctypes.c_uint32, _pointer, *[_number] * 2)
        self.time_parts = function("time_parts", None, _pointer)
        self.forward = function("forward", _status, ctypes.POINTER(Model), ctypes.POINTER(Batch))

    def use_runtime(self, runtime: ctypes.CDLL | None) -> None:
        """Run forwards on the threads of an OpenMP runtime (GNU's), or on threads of our own."""
        names = ("GOMP_parallel", "omp_get_thread_num")
        self.use_openmp(*(runtime and ctypes.cast(getattr(runtime, name), _pointer) for name in names))


def _openmp() -> ctypes.CDLL | None:
    """The GNU OpenMP runtime that PyTorch brings, on Linux: its threads are taken instead of others beside them."""
    torch = sys.modules.get("torch")
    found = sorted((Path(str(torch.__file__)).parent / "lib").glob("libgomp*.so*")) if torch else []
    return ctypes.CDLL(str(found[0])) if found else None


def _status(code: int) -> None:
    """What a kernel that allocates memory returns: not 0 if there was none."""
    if code:
        raise NotEnoughMemory(
            "there is no memory for the rows of a forward", hint="lower max_batch_size, or the length of prompts"
        )


def available() -> bool:
    """Whether the row kernels can be had here; finds or builds them at the first call."""
    return reason() is None


def reason() -> str | None:
    """Why there are no row kernels, or None if there are."""
    outcome = _outcome()
    return str(outcome) if isinstance(outcome, Unavailable) else None


@functools.cache
def _outcome() -> Kernels | Unavailable:
    import torch  # noqa: F401  # whose OpenMP runtime the library uses

    try:
        return Kernels(compiling.library(MAIN))
    except Unavailable as reason:
        return reason
    except OSError as error:
        return Unavailable(f"the row kernels could not be loaded: {error}")


def kernels() -> Kernels:
    """The kernels of this process.

    Raises:
        Unavailable: there is no C++ compiler, or it failed.
    """
    outcome = _outcome()
    if isinstance(outcome, Unavailable):
        raise outcome
    return outcome


@contextmanager
def using_level(name: str | None) -> Iterator[None]:
    """The kernels of this process, and what else is compiled, are to be of this level; None leaves that to the
    environment. It is taken back if the block fails, unless kernels have been loaded.

    Raises:
        InvalidOption: there is no such level here, or kernels of another one are running.
    """
    before = levels.force(_checked(name))
    try:
        yield
    except BaseException:
        if not _outcome.cache_info().currsize:
            levels.force(before)
        raise


def _checked(name: str | None) -> str | None:
    """The level that is to be forced by a call, if any."""
    found = _outcome() if _outcome.cache_info().currsize else None
    if (wanted := name or levels.forced()) is not None:
        compiling.check_level(wanted)
    if name is not None and name != levels.forced() and isinstance(found, Kernels) and found.library.level != name:
        raise InvalidOption(
            f"the level {name!r} comes too late: this process runs kernels of the level {found.library.level!r}",
            hint=f"name it before the first model is loaded, or set {levels.VARIABLE}",
        )
    return name or levels.forced_by_call()


@dataclass(frozen=True, slots=True)
class Here:
    """The row kernels of this process, and what else its processor could run."""

    level: str | None
    """None where there are none."""
    levels: tuple[str, ...]
    """All that this processor has, the best first."""
    forced: bool
    prebuilt: bool
    """Whether they came with the package; otherwise they were compiled on this machine."""
    compiler: str
    """What made them; empty where nothing says so."""
    why: str
    """Why there are none; empty where there are."""


def here() -> Here:
    """What runs here.

    Raises:
        InvalidOption: the level that is forced cannot be had.
    """
    outcome, forced = _outcome(), levels.forced() is not None
    if isinstance(outcome, Unavailable):
        return Here(None, compiling.levels_here(), forced, False, "", str(outcome))
    of = outcome.library
    return Here(of.level, compiling.levels_here(), forced, of.prebuilt, of.compiler, "")
