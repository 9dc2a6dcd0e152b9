"""Compiling the kernels with the machine's own C++ compiler, once per machine, sources and compiler."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from headstart.files import cache_directory
from headstart.machine import cpu_features

SOURCES = tuple(Path(__file__).parent / name for name in ("decoder.cpp", "attention.h", "products.h", "numbers.h"))
"""What the library is made from; the first is what is compiled."""

STRICT = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
"""Flags of every build: the last three let sums become vector operations and change no order of a sum."""

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """Why there are no row kernels on this machine."""


def library() -> Path:
    """The compiled library, built if it is not in the cache directory yet.

    Raises:
        Unavailable: there is no C++ compiler, or it failed.
    """
    compiler, openmp = find_compiler(), _openmp()
    sources = (source.read_text() for source in SOURCES)
    key = "\0".join((*sources, compiler, _version(compiler), platform.machine(), cpu_features(), *openmp))
    name = f"decoder-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    directory = cache_directory("kernels")
    if (directory / name).exists():
        return directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _build(compiler, openmp, directory, name)
    except OSError as error:
        log.warning("%s cannot hold the compiled row kernels (%s): they are compiled at every start", directory, error)
        directory = Path(tempfile.mkdtemp(prefix="headstart-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _build(compiler, openmp, directory, name)


def _build(compiler: str, openmp: tuple[str, ...], directory: Path, name: str) -> Path:
    """Compile into a temporary file and move it into place: two processes may do this at once."""
    failures = []
    for flags in _attempts():
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made, part = Path(scratch) / name, Path(scratch) / "decoder.o"
            compile_ = [compiler, *STRICT, *flags, "-c", str(SOURCES[0]), "-o", str(part)]
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


def find_compiler() -> str:
    """The path of the C++ compiler: the environment's CXX, or the first of the usual ones. Raises `Unavailable`."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise Unavailable("there is no C++ compiler on this machine")


def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
