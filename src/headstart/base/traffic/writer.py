"""Writing served traffic: lines are appended, the file is kept below a size, and a user's lines can be removed.

Users stand in it as pseudonyms: HMAC-SHA256 of a name under a salt of 32 random bytes, which stands beside the file, in
`FILE.salt`, and not in it: whoever is given the file alone cannot try names out, and without the salt nobody can. The
lock on the salt is also the lock on the file of traffic.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import IO

from headstart.base.errors import InvalidFile
from headstart.base.files import replacing
from headstart.base.traffic.format import Exchange, check_version, first_line, read, read_header, write

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PRIVATE = 0o600
"""The mode of the salt and of the file of traffic: their owner alone reads them."""
_LOCKED = 1 << 20
"""The byte that is locked on Windows: behind the salt, which can be read while it is."""


def salt_path(traffic: Path) -> Path:
    """Where the salt of a file of traffic lies."""
    return traffic.with_name(traffic.name + ".salt")


class Salt:
    """The salt of a file of traffic, made where there is none. Until `close` no other process writes the traffic.

    Raises:
        InvalidFile: another process writes the traffic.
        OSError: the salt cannot be read or made.
    """

    def __init__(self, traffic: Path) -> None:
        self._file = _private(salt_path(traffic))
        try:
            _lock(self._file, traffic)
            self._salt = self._file.read()
            if not self._salt:
                self._salt = secrets.token_bytes(32)
                self._file.write(self._salt)
                self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def pseudonym(self, user: str) -> str:
        """What stands in the file for a user: 16 hexadecimal digits; "" for nobody."""
        return hmac.new(self._salt, user.encode(), hashlib.sha256).hexdigest()[:16] if user else ""

    def close(self) -> None:
        self._file.close()


def _private(path: Path, flags: int = 0) -> IO[bytes]:
    """A file that is made where there is none, for its owner alone."""
    flags |= os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, PRIVATE), "r+b")


def _lock(file: IO[bytes], traffic: Path) -> None:
    """Take the lock that goes when the file is closed, or its process ends."""
    try:
        if sys.platform == "win32":
            file.seek(_LOCKED)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InvalidFile(
            f"{traffic} is being written by another process", hint="stop it, or name another file"
        ) from error


class TrafficWriter:
    """Appends exchanges to a file and keeps it below a size. One process at a time may write a file.

    When a line would not fit any more, the older half of the file is forgotten. A line that was broken off when the
    last writer was killed is removed.

    Args:
        path: of the file; it and missing folders are made, the file with mode 600.
        target: the fingerprint of the model that is served.
        limit: bytes that the file never exceeds.

    Raises:
        InvalidFile: another process writes it, it holds something else, or another model's traffic.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, target: str, *, limit: int) -> None:
        self.path, self._limit = path, limit
        self._first = first_line(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._salt = Salt(path)
        try:
            self._check(target)
            self._file = self._opened()
        except BaseException:
            self._salt.close()
            raise

    def pseudonym(self, user: str) -> str:
        """What stands in the file for a user: 16 hexadecimal digits; "" for nobody."""
        return self._salt.pseudonym(user)

    def append(self, exchanges: Iterable[Exchange]) -> int:
        """Write these exchanges; returns how many were too long for half of the file, and were left out."""
        left_out = 0
        for exchange in exchanges:
            line = exchange.line()
            if len(self._first) + len(line) > self._limit // 2:
                left_out += 1
                continue
            if self._file.tell() + len(line) > self._limit:
                self._forget_half()
            self._file.write(line)
        self._file.flush()
        return left_out

    def close(self) -> None:
        self._file.close()
        self._salt.close()

    def _check(self, target: str) -> None:
        """Refuse a file of something else; cut off a line that has no end."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("r+b") as file:
            first = read_header(file.readline().decode("utf-8", "replace"))
            if first is None:
                raise InvalidFile(
                    f"{self.path} is not a file of traffic",
                    hint="name a new file, or one that 'headstart serve --traffic' has written",
                )
            check_version(self.path, first)
            if first.get("target") != target:
                raise InvalidFile(
                    f"{self.path} holds what another model wrote", hint="name another file, or move this one away"
                )
            end = file.seek(0, os.SEEK_END)
            file.truncate(_last_line_end(file, end))

    def _opened(self) -> IO[bytes]:
        """The file, at its end."""
        file = _private(self.path, os.O_APPEND)
        if not file.seek(0, os.SEEK_END):
            file.write(self._first)
        return file

    def _forget_half(self) -> None:
        """Keep the newest lines that fill half of the limit at most."""
        size = self._file.tell()
        self._file.flush()
        try:
            with replacing(self.path) as partial, self._file, partial.open("wb") as kept:
                kept.write(self._first)
                self._file.seek(max(len(self._first), size - self._limit // 2 + len(self._first)) - 1)
                self._file.readline()  # the rest of a line that is forgotten
                while block := self._file.read(1 << 20):
                    kept.write(block)
        finally:
            self._file = self._opened()  # it was closed, since Windows replaces no file that is open


def forget(path: Path, user: str) -> int:
    """Remove all lines of a user from a file; returns how many there were.

    Raises:
        InvalidFile: the file or its salt cannot be read, or a server is writing it.
    """
    if not salt_path(path).exists():
        raise InvalidFile(f"{path} has no salt beside it", hint=f"without {salt_path(path)} no user can be found")
    with closing(Salt(path)) as salt:
        name = salt.pseudonym(user)
        traffic = read(path)
        kept = [exchange for exchange in traffic.exchanges if exchange.user != name]
        if len(kept) < len(traffic.exchanges):
            write(path, kept, traffic.target)
    return len(traffic.exchanges) - len(kept)


def _last_line_end(file: IO[bytes], end: int) -> int:
    """Where the last whole line ends; `end` is that of the file."""
    at = end
    while at > 0:
        begin = max(0, at - (1 << 16))
        file.seek(begin)
        found = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0
