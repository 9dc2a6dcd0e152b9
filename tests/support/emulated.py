"""Kernels of another processor under an emulator, in place of this one's: only they are emulated, not the tests.

    HEADSTART_EMULATED=dotprod python -m pytest -p support.emulated tests/model/native/test_grouped.py

runs these tests with the AArch64 kernels of the level `dotprod`, cross-compiled and run by QEMU on a processor that has
that level and no better one.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from headstart.base.compiling import Library, Unavailable, flags_of, sources_of
from headstart.base.files import cache_directory
from headstart.base.levels import Level, levels_of
from headstart.model import native

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
VARIABLE = "HEADSTART_EMULATED"

PROCESSORS = {"neon": "cortex-a72", "dotprod": "neoverse-n1", "i8mm": "max,pauth-impdef=on", "generic": "cortex-a53"}
"""An emulated processor of each level, without the features of a better one where QEMU has such a processor."""

LEVELS = {level.name: level for level in levels_of("aarch64")}

DRIVER = Path(__file__).with_suffix(".cpp")


def lacking() -> str | None:
    """What there is not, of what cross-compiled kernels need; None if nothing."""
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    return f"there is no {' and no '.join(missing)}" if missing else None


def program(level: Level) -> Path:
    """The kernels of a level with the driver, as a program; compiled if it is not in the cache directory yet."""
    compiled = _made("o", level, (*flags_of(level), "-c"), (native.MAIN,))
    return _made("program", level, ("-O2", "-std=c++17", "-static", "-pthread"), (compiled, DRIVER))


def kept(kind: str, level: Level, flags: Sequence[str], inputs: Sequence[Path]) -> Path:
    """Where what is compiled from these files lies: by their contents, so that every clone finds it."""
    read = (each for path in inputs for each in (sources_of(path) if path == native.MAIN else (path,)))
    parts = (part for path in read for part in (path.name.encode(), path.read_bytes()))
    digest = hashlib.sha256(b"\0".join((*parts, *(flag.encode() for flag in flags)))).hexdigest()[:16]
    return cache_directory("kernels") / f"emulated-{level.name}-{digest}.{kind}"


def _made(kind: str, level: Level, flags: Sequence[str], inputs: Sequence[Path]) -> Path:
    """What the compiler makes of these files, kept in the cache directory."""
    path = kept(kind, level, flags, inputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}")
        command = [COMPILER, *flags, *map(str, inputs), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(done.stderr[-2000:])
        made.replace(path)
    return path


class Emulated:
    """A library whose functions run in an emulator: what `ctypes.CDLL` is for one that runs here."""

    def __init__(self, path: str | Path, processor: str) -> None:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        command = [EMULATOR, "-cpu", processor, str(path), str(memory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(memory,))
        os.close(memory)
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> _Function:
        if not name.startswith("headstart_"):
            raise AttributeError(name)
        return _Function(functools.partial(self._call, name.removeprefix("headstart_")))

    def close(self) -> None:
        with self._process:
            self._process.kill()

    def _call(self, name: str, arguments: list[int], *, text: bool) -> int | bytes:
        assert self._process.stdin is not None
        with self._lock:
            padded = arguments + [0] * (10 - len(arguments))
            self._process.stdin.write(struct.pack("=24s10qq", name.encode(), *padded, text))
            self._process.stdin.flush()
            result: int = struct.unpack("=q", self._read(8))[0]
            return self._read(result) if text else result

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        if len(found := self._process.stdout.read(size)) != size:
            raise RuntimeError(f"the emulated kernels ended with status {self._process.wait()}")
        return found


class _Function:
    """A function of the library, with the types that `ctypes` gives one."""

    argtypes: tuple[Any, ...] = ()
    restype: Any = None

    def __init__(self, call: Callable[..., int | bytes]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        numbers = [_number(each) for each in arguments]
        result = self._call(numbers, text=self.restype is ctypes.c_char_p)
        if self.restype is None or isinstance(result, bytes):
            return result
        if self.restype is ctypes.c_int64:
            return result
        whole = ctypes.c_int(result).value
        return whole if self.restype is ctypes.c_int else self.restype(whole)


def _number(argument: Any) -> int:
    if argument is None:
        return 0
    held = isinstance(argument, ctypes.Structure | ctypes.Array)
    return ctypes.addressof(argument) if held else int(argument)


@functools.cache
def kernels(level: str) -> native.Kernels:
    """The AArch64 kernels of this level."""
    path = program(LEVELS[level])

    def loaded(path: str) -> Emulated:
        library = Emulated(path, PROCESSORS[level])
        atexit.register(library.close)
        return library

    with mock.patch.object(ctypes, "CDLL", loaded), mock.patch.object(native, "_openmp", return_value=None):
        return native.Kernels(Library(path, level, prebuilt=False, compiler=COMPILER))


def pytest_configure() -> None:
    """As a plugin: the kernels of all tests are those of the level that the environment names."""
    if reason := lacking():
        pytest.exit(reason, returncode=5)
    found = kernels(os.environ[VARIABLE])
    native._outcome = functools.cache(lambda: found)  # type: ignore[assignment]
