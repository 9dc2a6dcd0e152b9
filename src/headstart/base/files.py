"""Where cached files lie, and writing that leaves a whole file or none."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from headstart.base.errors import InvalidOption


def cache_directory(kind: str) -> Path:
    """The user's cache directory for files of this kind. The environment is read at each call: `XDG_CACHE_HOME`."""
    return user_cache_path("headstart", appauthor=False) / kind


def cache_file(kind: str, facts: Mapping[str, Any]) -> Path:
    """The file of this kind for exactly these facts; whatever JSON does not know counts as its text."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return cache_directory(kind) / f"{digest}.json"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write, which takes the place of `path` when the block ends, or is removed if the block fails.

    Another process never reads half a file. Missing folders are made.

    Raises:
        OSError: nothing can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        yield Path(name)
        _move(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only process that makes this file; others wait here. Where a file system has no locks nobody waits.

    The lock is a file beside it, which stays; it is let go when the process ends, however it ends.

    Raises:
        OSError: nothing can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a+b") as file:
        _lock(file.fileno())
        yield


def _lock(descriptor: int) -> None:
    """Wait until nobody else has locked this file, and lock it until it is closed."""
    if sys.platform == "win32":
        import msvcrt

        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EDEADLK):  # somebody else has it
                    time.sleep(0.1)
                    continue
            return
    else:
        import fcntl

        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _move(name: str, path: Path) -> None:
    """Replace `path`. Windows refuses that while another process, a virus scanner for one, has it open: mostly for
    an instant."""
    for seconds in (0.01, 0.1, 0.5) if sys.platform == "win32" else ():
        with suppress(PermissionError):
            os.replace(name, path)
            return
        time.sleep(seconds)
    os.replace(name, path)


def write_text(path: Path, text: str, *, hint: str = "name another file") -> Path:
    """Write a file that the user named; missing folders are made.

    Raises:
        InvalidOption: it cannot be written, and why.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
    return path
