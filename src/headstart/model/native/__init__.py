"""The row kernels: compiled once per machine from rows.cpp, called through plain C.

Between two matrix products a decoder has a dozen small operations on each token's row. In PyTorch each is a call;
here they are four (norm, rotate, attend, gate), and each computes a row in one fixed order, so that a row's result
does not depend on what else is in the forward. The library is built with the machine's own C++ compiler at first
use and kept in the user's cache directory. Without a compiler there are no row kernels, and `load` says why.
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

import torch

FLOAT32, BFLOAT16, INT8 = 0, 1, 2
"""How numbers are stored; the enum Kind of rows.cpp."""

KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.uint8: INT8}
LANES = 16
"""Every width the kernels see must be a multiple of this."""

_SOURCE = Path(__file__).with_name("rows.cpp")
_STRICT = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")


class Unavailable(Exception):
    """Why there are no row kernels on this machine."""


class Kernels:
    """The compiled functions, typed."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        pointer, number, real, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int

        def function(name: str, *arguments: type) -> Callable[..., None]:
            found = getattr(library, f"headstart_{name}")
            found.argtypes, found.restype = arguments, None
            return found  # type: ignore[no-any-return]

        y = (pointer, flag, pointer, pointer)
        out = (pointer, flag, pointer, flag)
        self.norm = function("norm", pointer, *y, pointer, real, pointer, number, number, *out)
        self.gated = function("gated", *y, number, number, *out)
        self.rotate = function("rotate", *y, pointer, pointer, real, *[pointer] * 5, number, *[pointer] * 4, flag, flag)
        self.attend = function(
            "attend", *[pointer] * 3, flag, *[pointer] * 6, number, pointer, real, number, pointer, *out
        )
        self.gather = function("gather", pointer, pointer, flag, pointer, number, number, pointer, number)


def available() -> bool:
    """Whether the row kernels can be had here; builds them at the first call."""
    try:
        kernels()
    except Unavailable:
        return False
    return True


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
    key = "\0".join((_SOURCE.read_text(), compiler, _version(compiler), platform.machine(), _cpu(), *openmp))
    name = f"rows-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
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
            made, part = Path(scratch) / name, Path(scratch) / "rows.o"
            compile_ = [compiler, *_STRICT, *flags, "-c", str(_SOURCE), "-o", str(part)]
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
