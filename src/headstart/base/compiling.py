"""C++ sources -> a library of plain C functions, with the machine's own compiler, once for each of its versions."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headstart.base.machine import cpu_features

STRICT = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
"""Flags of every build: the last three let sums become vector operations and change no order of a sum."""

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """Why there is no compiled code on this machine."""


def library(
    name: str, sources: Sequence[Path], directory: Path, *, strict: Sequence[str] = STRICT, openmp: Sequence[str] = ()
) -> Path:
    """The compiled library, built if the directory does not hold it yet.

    sources: the first is compiled, the others are what it includes. openmp: what a threaded build is linked against;
    without it the build has no threads.

    Raises:
        Unavailable: there is no C++ compiler, or it failed. Of a threaded build also where it has no OpenMP: on one
            thread the kernels would lose against PyTorch's operations on all of them.
    """
    compiler = find_compiler()
    texts = (source.read_text() for source in sources)
    flags = (*strict, *(" ".join(attempt) for attempt in _attempts(threaded=bool(openmp))))
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    key = "\0".join((*texts, compiler, version, platform.machine(), cpu_features(), *openmp, *flags))
    file = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if (directory / file).exists():
        return directory / file
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _build(compiler, sources[0], strict, openmp, directory / file)
    except OSError as error:
        log.warning("%s cannot hold the compiled kernels (%s): they are compiled at every start", directory, error)
        directory = Path(tempfile.mkdtemp(prefix="headstart-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _build(compiler, sources[0], strict, openmp, directory / file)


def _build(compiler: str, source: Path, strict: Sequence[str], openmp: Sequence[str], path: Path) -> Path:
    """Compile into a temporary file and move it into place: two processes may do this at once."""
    failures = []
    for flags in _attempts(threaded=bool(openmp)):
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made, part = Path(scratch) / path.name, Path(scratch) / "part.o"
            compile_ = [compiler, *strict, *flags, "-c", str(source), "-o", str(part)]
            link = [compiler, "-shared", str(part), "-o", str(made), *(openmp if "-fopenmp" in flags else ())]
            for command in (compile_, link):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    failures.append(done.stderr.strip()[-300:])
                    break
            else:
                os.replace(made, path)
                return path
    raise Unavailable(f"the C++ compiler {compiler} failed on {source.name}: {failures[-1]}")


def _attempts(*, threaded: bool) -> list[list[str]]:
    """Flags from the best to the plainest: not every compiler knows them all."""
    native = "-march=native" if platform.machine().lower() in ("x86_64", "amd64", "i686") else "-mcpu=native"
    wide = "-mprefer-vector-width=512"
    plain = [[native, wide], [native], []]
    return [[*flags, "-fopenmp"] for flags in plain] if threaded else plain


def find_compiler() -> str:
    """The path of the C++ compiler: the environment's CXX, or the first of the usual ones. Raises `Unavailable`."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise Unavailable("there is no C++ compiler on this machine")
