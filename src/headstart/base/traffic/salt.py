"""Pseudonyms of users: HMAC-SHA256 of a name under a salt of 32 random bytes.

The salt stands beside the file of traffic, in `FILE.salt`, and not in it: whoever is given the file alone cannot try
names out, and without the salt nobody can. The lock on it is also the lock on the file of traffic.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import IO

from headstart.base.errors import InvalidFile

try:
    import fcntl
except ImportError:  # there is no such lock on Windows
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600
"""The mode of the salt and of the file of traffic: their owner alone reads them."""


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
        self._file = _locked(traffic)
        try:
            self._salt = _read(self._file)
        except BaseException:
            self._file.close()
            raise

    def pseudonym(self, user: str) -> str:
        """What stands in the file for a user: 16 hexadecimal digits; "" for nobody."""
        return hmac.new(self._salt, user.encode(), hashlib.sha256).hexdigest()[:16] if user else ""

    def close(self) -> None:
        self._file.close()


def _locked(traffic: Path) -> IO[bytes]:
    file = os.fdopen(os.open(salt_path(traffic), os.O_RDWR | os.O_CREAT, PRIVATE), "r+b")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise InvalidFile(
            f"{traffic} is being written by another process", hint="stop it, or name another file"
        ) from error
    return file


def _read(file: IO[bytes]) -> bytes:
    """The salt in an open file; a new one where it is empty."""
    if found := file.read():
        return found
    new = secrets.token_bytes(32)
    file.write(new)
    file.flush()
    return new
