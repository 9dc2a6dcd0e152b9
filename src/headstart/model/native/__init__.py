"""The forward of Llama-shaped decoders in C++, compiled once per machine and called through plain C.

A decoder's forward is hundreds of small operations, and for small models and few rows their calls cost more than
their work. Here it is one call, and each row is computed in one fixed order, so that its result does not depend on
what else is in the forward. The library is built with the machine's own C++ compiler at first use and kept in the
user's cache directory. Without a compiler there are no row kernels, and `Unavailable` says why.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

FLOAT32, BF16_WIDE, BF16_PAIRS, INT8 = range(4)
"""How a product stores its weights; the enum Kind of products.h."""

LANES = 16
"""Widths of rows and heads must be multiples of this."""

_DIRECTORY = Path(__file__).parent
_SOURCES = ("decoder.cpp", "attention.h", "products.h", "numbers.h")
_STRICT = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")

_pointer, _number, _real, _flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int32


class Unavailable(Exception):
    """Why there are no row kernels on this machine."""


class Product(ctypes.Structure):
    """struct Product of products.h."""

    _fields_ = (
        *((name, _pointer) for name in ("weights", "scale", "shift", "bias")),
        *((name, _number) for name in ("inputs", "outputs", "kind")),
    )


class Layer(ctypes.Structure):
    """struct Layer of decoder.cpp."""

    _fields_ = (
        *((name, _pointer) for name in ("before", "after", "q_gain", "k_gain")),
        *((name, Product) for name in ("qkv", "out", "gate_up", "down")),
        ("view", _number),
        ("scaling", _real),
    )


class Model(ctypes.Structure):
    """struct Model of decoder.cpp."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        *((name, _number) for name in ("layer_count", "width", "heads", "kv_heads", "dim")),
        *((name, _pointer) for name in ("embedding", "final_gain", "cosine", "sine")),
        ("head", Product),
        ("eps", _real),
        ("bf16", _flag),
    )


class View(ctypes.Structure):
    """struct View of attention.h."""

    _fields_ = tuple((name, _pointer) for name in ("first", "last", "extra_begin", "extra"))


class Head(ctypes.Structure):
    """struct Head of decoder.cpp."""

    _fields_ = (("fuse", Product), ("state_gain", _pointer), ("residual_normed", _flag), ("output_normed", _flag))


class Batch(ctypes.Structure):
    """struct Batch of decoder.cpp."""

    _fields_ = (
        ("count", _number),
        *((name, _pointer) for name in ("ids", "positions", "slots", "places", "segments")),
        ("segment_count", _number),
        ("views", ctypes.POINTER(View)),
        ("keys", _pointer),
        ("values", _pointer),
        ("capacity", _number),
        ("judged", _pointer),
        ("judged_count", _number),
        ("logits", _pointer),
        ("taps", _pointer),
        ("threads", _number),
        ("drafting", ctypes.POINTER(Head)),
        *((name, _pointer) for name in ("states", "features", "left")),
    )


class Kernels:
    """The compiled functions, typed."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            found = getattr(library, f"headstart_{name}")
            found.argtypes, found.restype = arguments, result
            return found  # type: ignore[no-any-return]

        self.supported = function("supported", ctypes.c_int, _number)
        self.packed_bytes = function("packed_bytes", _number, _number, _number, _number)
        self.pack = function("pack", None, _number, _pointer, ctypes.c_int, *[_number] * 2, *[_pointer] * 3, _number)
        self.multiply = function("multiply", None, ctypes.POINTER(Product), _pointer, _number, _pointer, _number)
        self.silu = function("silu", None, _pointer, _pointer, _number)
        self.forward = function("forward", None, ctypes.POINTER(Model), ctypes.POINTER(Batch))
        self.gather = function("gather", None, _pointer, _pointer, ctypes.c_int, *[_number] * 5, _pointer, _number)


def available() -> bool:
    """Whether the row kernels can be had here; builds them at the first call."""
    return reason() is None


def reason() -> str | None:
    """Why there are no row kernels, or None if there are."""
    outcome = _outcome()
    return str(outcome) if isinstance(outcome, Unavailable) else None


@functools.cache
def _outcome() -> Kernels | Unavailable:
    try:
        return Kernels(_library())
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


def cache_directory() -> Path:
    """Where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headstart" / "kernels"


def _library() -> Path:
    compiler = _compiler()
    openmp = _openmp()
    key = "\0".join(
        (
            *((_DIRECTORY / name).read_text() for name in _SOURCES),
            compiler,
            _version(compiler),
            platform.machine(),
            _cpu(),
            *openmp,
        )
    )
    name = f"decoder-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    directory = cache_directory()
    if (directory / name).exists():
        return directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _build(compiler, openmp, directory, name)
    except PermissionError:
        return _build(compiler, openmp, Path(tempfile.mkdtemp(prefix="headstart-")), name)


def _build(compiler: str, openmp: tuple[str, ...], directory: Path, name: str) -> Path:
    """Compile into a temporary file and move it into place: two processes may do this at once."""
    failures = []
    for flags in _attempts():
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made, part = Path(scratch) / name, Path(scratch) / "decoder.o"
            compile_ = [compiler, *_STRICT, *flags, "-c", str(_DIRECTORY / _SOURCES[0]), "-o", str(part)]
            threaded = "-fopenmp" in flags
            link = [compiler, "-shared", str(part), "-o", str(made), *(openmp if threaded else ())]
            for command in (compile_, link):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    failures.append(done.stderr.strip()[-300:])
                    break
            else:
                os.replace(made, directory / name)
                return directory / name
    raise Unavailable(f"the C++ compiler {compiler} failed on the row kernels: {failures[-1]}")


def _attempts() -> list[list[str]]:
    """Flags from the best to the plainest: not every compiler knows them all."""
    native = "-march=native" if platform.machine().lower() in ("x86_64", "amd64", "i686") else "-mcpu=native"
    wide = "-mprefer-vector-width=512"
    return [[native, wide, "-fopenmp"], [native, "-fopenmp"], ["-fopenmp"], [native], []]


def _openmp() -> tuple[str, ...]:
    """Link against PyTorch's own OpenMP runtime where it has one: a second one would be a second pool of threads."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return (str(found[0]),) if found else ("-fopenmp",)


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise Unavailable("there is no C++ compiler on this machine")


def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
