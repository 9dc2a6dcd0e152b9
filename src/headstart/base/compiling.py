"""C++ sources -> libraries of plain C functions, one for each level: those in the package, or the machine's compiler.

A library is one .cpp file and the headers in its folder. The same sources and flags make the same library on every
machine, so one that came with the package and one compiled at first use are interchangeable: both carry a digest of
sources and flags in their names, and a library of other sources is never taken. Nothing here needs a package that is
not Python's own, since building the package runs it too.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.base.levels import Level, architecture, forced, levels_of, usable, wanted

STRICT = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
"""Flags of every build: the last three let sums become vector operations and change no order of a sum."""

PREBUILT = Path(__file__).parents[1] / "prebuilt"
"""The libraries that came with the package, and the compiler that made them; a clone has none."""

_COMPILER = "compiler.txt"
_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
_LINK = {"darwin": ("-shared",), "win32": ("-shared", "-static")}.get(sys.platform, ("-shared", "-Wl,--gc-sections"))
PORTABLE = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL") if sys.platform == "linux" else ()
"""What a library for other machines is linked with: they may have an older C++ runtime, or none."""

_COMPILERS = {
    "darwin": "which 'xcode-select --install' gives it",
    "win32": "such as llvm-mingw or MSYS2's GCC in the PATH; Microsoft's has no vectors",
}.get(sys.platform, "such as g++ or clang++")

_BELIEVED = 600
"""Seconds for which it is believed that a library cannot be compiled: what it failed for may be mended by then."""

_CPU = Path(__file__).with_name("cpu.cpp")
_GENERIC = levels_of(architecture())[-1]

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """Why there is no compiled code on this machine."""


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled library in a file."""

    path: Path
    level: str
    """The name of its level."""
    prebuilt: bool
    """Whether it came with the package."""
    compiler: str
    """What made it; empty where nothing says so."""


def _logged(what: str) -> AbstractContextManager[None]:
    @contextmanager
    def said() -> Iterator[None]:
        log.info("%s", what)
        yield

    return said()


SHOWN: ContextVar[Callable[[str], AbstractContextManager[None]]] = ContextVar("shown", default=_logged)
"""How it is shown that something is compiled, which can take a minute: called with what it is, it is entered
meanwhile."""


def library(main: Path) -> Library:
    """The library of this .cpp file for the best level that this processor has and that can be had: from the package,
    from the user's cache directory, or compiled into it.

    Raises:
        Unavailable: none is there already, and there is no C++ compiler, or it failed.
        InvalidOption: the same of a level that is forced, or it does not exist.
    """
    from headstart.base.files import cache_directory  # what it needs is not there while the package is built

    try:
        return _best(main, cache_directory("kernels"))
    except Unavailable as reason:
        if (name := forced()) is None:
            raise
        raise _cannot_be_had(name, reason) from reason


def _best(main: Path, directory: Path) -> Library:
    failed = None
    for level in wanted(features(), architecture(), forced()):
        try:
            return at_level(main, level, directory)
        except Unavailable as reason:
            failed = failed or reason
    raise failed or Unavailable("this processor has no level")


@functools.cache
def features() -> frozenset[str]:
    """What this processor offers, as `cpu.cpp` names it.

    Raises:
        Unavailable: nothing can be compiled here, and there is no library that says it.
    """
    from headstart.base.files import cache_directory

    found = at_level(_CPU, _GENERIC, cache_directory("kernels"))
    try:
        loaded = ctypes.CDLL(str(found.path))
    except OSError as error:
        raise Unavailable(f"{found.path.name} could not be loaded: {error}") from error
    loaded.headstart_features.restype = ctypes.c_char_p
    return frozenset(loaded.headstart_features().decode().split())


def levels_here() -> tuple[str, ...]:
    """The names of the levels that this processor has, the best first; none where it cannot be asked."""
    try:
        return tuple(level.name for level in usable(features(), architecture()))
    except Unavailable:
        return ()


def check_level(name: str) -> None:
    """Raises:
    InvalidOption: this level does not exist, or this processor cannot run it.
    """
    try:
        wanted(features(), architecture(), name)
    except Unavailable as reason:
        raise _cannot_be_had(name, reason) from reason


def _cannot_be_had(name: str, reason: Unavailable) -> InvalidOption:
    hint = f"name no level, or install a C++ compiler; this processor has: {', '.join(levels_here()) or 'nobody knows'}"
    return InvalidOption(f"the level {name!r} cannot be had: {reason}", hint=hint)


def at_level(main: Path, level: Level, directory: Path) -> Library:
    """The same for one level. directory: where compiled libraries are kept.

    Raises:
        Unavailable: it is not there already, and there is no C++ compiler, or it failed now or in the last minutes.
    """
    stem = f"{main.stem}-{level.name}-{digest(main, level)}"
    ready = PREBUILT / f"{stem}{_SUFFIX}"
    if ready.exists():
        return Library(ready, level.name, True, (PREBUILT / _COMPILER).read_text(encoding="utf-8").strip())
    try:
        compiler = find_compiler()
    except Unavailable:
        for kept in sorted(directory.glob(f"{stem}-*{_SUFFIX}")):  # when there still was one
            return Library(kept, level.name, False, "")
        raise
    version = version_of(compiler)
    file = f"{stem}-{_short(compiler, version)}{_SUFFIX}"
    made = version.partition("\n")[0]
    if (directory / file).exists():
        return Library(directory / file, level.name, False, made)
    failed = Failed(directory / f"{file}.failed")
    if level.name != forced() and (reason := failed.lately()):
        raise Unavailable(reason)
    with SHOWN.get()(f"compiling {main.name} for the level {level.name}, once on this machine"):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            build(compiler, main, level, directory / file)
        except _Killed:
            raise
        except Unavailable as reason:
            failed.say(str(reason))
            raise
        except OSError as error:
            log.warning("%s cannot hold the compiled kernels (%s): they are compiled at every start", directory, error)
            directory = Path(tempfile.mkdtemp(prefix="headstart-"))
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            build(compiler, main, level, directory / file)
    return Library(directory / file, level.name, False, made)


class _Killed(Unavailable):
    """The compiler was ended from outside, for want of memory, say, so that it may do better at once."""


class Failed:
    """That compiling a library failed: a file in its place, which is believed for ten minutes, so that not every start
    tries in vain and a reason that was mended is forgotten."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lately(self) -> str:
        """Why it failed, and how to try again at once; empty if it did not, or not lately."""
        with suppress(OSError, UnicodeDecodeError):
            if 0 <= (since := time.time() - self._path.stat().st_mtime) < _BELIEVED:
                why = self._path.read_text(encoding="utf-8")
                return f"{why} (found {since:.0f} seconds ago; it is tried again without {self._path})"
        return ""

    def say(self, why: str) -> None:
        """Keep it, if possible."""
        with suppress(OSError):
            self._path.write_text(why, encoding="utf-8")


def build_all(main: Path, directory: Path) -> Iterator[Callable[[], Path]]:
    """For each level of this architecture, what compiles the library that is to lie in `PREBUILT`, into a directory."""
    compiler = find_compiler()
    (directory / _COMPILER).write_text(version_of(compiler).partition("\n")[0], encoding="utf-8")
    for level in (_GENERIC,) if main == _CPU else levels_of(architecture()):
        path = directory / f"{main.stem}-{level.name}-{digest(main, level)}{_SUFFIX}"
        yield functools.partial(build, compiler, main, level, path, PORTABLE)


def sources_of(main: Path) -> tuple[Path, ...]:
    """What a library is made from: the file itself, and all headers in its folder."""
    return (main, *sorted(main.parent.rglob("*.h")))


def digest(main: Path, level: Level) -> str:
    """Of the sources and of the flags they are compiled with."""
    texts = [part for source in sources_of(main) for part in (source.name, source.read_text(encoding="utf-8"))]
    return _short(*texts, architecture(), sys.platform, *flags_of(level))


def flags_of(level: Level) -> tuple[str, ...]:
    """What the sources are compiled with."""
    return (*STRICT, *level.flags)


def build(compiler: str, main: Path, level: Level, path: Path, link: Sequence[str] = ()) -> Path:
    """Compile into a temporary file and move it into place: two processes may do this at once. Returns the path.

    Raises:
        Unavailable: the compiler failed.
        OSError: nothing can be written there.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made, part = Path(scratch) / path.name, Path(scratch) / "part.o"
        compile_ = [compiler, *flags_of(level), *_repair(compiler), "-c", str(main), "-o", str(part)]
        for command in (compile_, [compiler, *_LINK, *link, str(part), "-o", str(made)]):
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                killed = done.returncode < 0 or "Killed" in done.stderr  # GCC's driver says it of the compiler itself
                raise (_Killed if killed else Unavailable)(
                    f"the C++ compiler {compiler} failed on {main.name} for the level {level.name}: "
                    f"{done.stderr.strip()[-300:]}"
                )
        try:
            os.replace(made, path)
        except PermissionError:
            if not path.exists():  # it does on Windows, where another process has made it and has it loaded
                raise
    return path


def _repair(compiler: str) -> tuple[str, ...]:
    """GCC does not align Windows' stack for wide registers and yet moves them as if it were aligned (its bug 54412)."""
    gcc = sys.platform == "win32" and "clang" not in version_of(compiler)
    return ("-Wa,-muse-unaligned-vector-move",) if gcc else ()


def find_compiler() -> str:
    """The path of the C++ compiler: the environment's CXX, or the first of the usual ones. Raises `Unavailable`."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise Unavailable(f"there is no C++ compiler on this machine, {_COMPILERS}")


def version_of(compiler: str) -> str:
    """What the compiler says of itself."""
    return subprocess.run(
        [compiler, "--version"],
        env={**os.environ, "LC_ALL": "C"},  # it is part of a file's name, and GCC says it in the user's language
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    ).stdout


def _short(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def address(array: Any) -> int:
    """Of the first number of a NumPy array, as compiled code is given it."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # in a quarter of the time
    except (TypeError, ValueError, BufferError):  # it is read only, empty or in pieces
        found: int = array.__array_interface__["data"][0]
        return found
