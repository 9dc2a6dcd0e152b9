"""Served traffic in one private file: what was asked and answered, in tokens, so that a drafter can be adapted to it.

The file is JSON Lines. The first line names the version and the target; every further line is one `Exchange`. It holds
what people wrote, in tokens that anybody can turn back into text: it is made with mode 600, and only when asked for.

Users are kept as HMAC-SHA256 of their name under a salt of 32 random bytes. The salt stands beside the file, in
`FILE.salt`, and not in it: whoever is given the file alone cannot try names out, and without the salt nobody can.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headstart.errors import InvalidFile
from headstart.files import replacing

try:
    import fcntl
except ImportError:  # there is no such lock on Windows
    fcntl = None  # type: ignore[assignment]

VERSION = 1
KEY = "headstart_traffic"
"""The key of the first line; its value is the version."""
_PRIVATE = 0o600
_SHAPES = 'each line is {"prompt": ..., "output": ...}, both a text or a list of token ids'

Tokens = tuple[int, ...]
Encode = Callable[[str, Tokens | None], Tokens]
"""From a text to its token ids; given the tokens that it follows, or None where it begins a prompt."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and what the target wrote after it.

    temperature: that it was sampled at; 0 is greedy, and stands where a file does not say.
    hour: since 1970, by the clock of the server; 0 where unknown. The minute is not kept.
    tag: the kind of work, as the client named it.
    user: the salted hash of the user's name; "" where there was none.
    """

    prompt: Tokens
    output: Tokens
    temperature: float = 0.0
    hour: int = 0
    tag: str = ""
    user: str = ""

    def line(self) -> bytes:
        """Its line of the file; what is not known is left out."""
        record: dict[str, Any] = {"prompt": self.prompt, "output": self.output, "temperature": self.temperature}
        record |= {name: value for name in ("hour", "tag", "user") if (value := getattr(self, name))}
        return (json.dumps(record, separators=(",", ":")) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a file holds.

    target: the fingerprint of the model that wrote the outputs; "" in a plain file, which does not say.
    damaged: whether the last line was broken off and left out, as it is when a server is killed.
    """

    exchanges: tuple[Exchange, ...]
    target: str = ""
    damaged: bool = False


def read(path: Path, encode: Encode | None = None) -> Traffic:
    """The exchanges of a file, oldest first: one that a server wrote, or plain JSON Lines of prompts and outputs.

    encode: makes tokens of texts, which only plain files have.

    Raises:
        InvalidFile: it cannot be read, is of a later version, or has a line that is not an exchange; it names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"cannot read {path}: {error}", hint=f"give a file of traffic: {_SHAPES}") from error
    whole, _, rest = text.rpartition("\n")
    lines = [(number, line) for number, line in enumerate(whole.split("\n"), start=1) if line.strip()]
    target = ""
    if lines and (header := _header(lines[0][1])) is not None:
        target = str(header.get("target", ""))
        _check_version(path, header)
        del lines[0]
    exchanges = [_exchange(line, f"{path}, line {number}", encode) for number, line in lines]
    damaged = False
    if rest.strip():  # without a line break at its end: written by hand, or broken off
        try:
            if _header(rest) is None:
                exchanges.append(_exchange(rest, f"{path}, its last line", encode))
        except InvalidFile:
            damaged = True
    return Traffic(tuple(exchanges), target, damaged)


def write(path: Path, exchanges: Iterable[Exchange], target: str) -> None:
    """A new private file with these exchanges.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as partial, partial.open("wb") as file:  # mode 600 from its first byte
        file.write(_first_line(target))
        file.writelines(exchange.line() for exchange in exchanges)


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
        self._first = _first_line(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._salt_file = _locked(_salt_path(path))
        try:
            self._salt = _salt(self._salt_file)
            self._check(target)
            self._file = self._opened()
        except BaseException:
            self._salt_file.close()
            raise

    def pseudonym(self, user: str) -> str:
        """What stands in the file for a user: 16 hexadecimal digits; "" for nobody."""
        return _pseudonym(self._salt, user)

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
        self._salt_file.close()

    def _check(self, target: str) -> None:
        """Refuse a file of something else; cut off a line that has no end."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("r+b") as file:
            header = _header(file.readline().decode("utf-8", "replace"))
            if header is None:
                raise InvalidFile(f"{self.path} is not a file of traffic", hint="name another file")
            _check_version(self.path, header)
            if header.get("target") != target:
                raise InvalidFile(
                    f"{self.path} holds what another model wrote", hint="name another file, or move this one away"
                )
            end = file.seek(0, os.SEEK_END)
            file.truncate(_last_line_end(file, end))

    def _opened(self) -> IO[bytes]:
        """The file, at its end."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _PRIVATE)
        file = os.fdopen(descriptor, "r+b")
        if not file.seek(0, os.SEEK_END):
            file.write(self._first)
        return file

    def _forget_half(self) -> None:
        """Keep the newest lines that fill half of the limit at most."""
        size = self._file.tell()
        self._file.flush()
        with replacing(self.path) as partial, partial.open("wb") as kept:
            kept.write(self._first)
            self._file.seek(max(len(self._first), size - self._limit // 2 + len(self._first)) - 1)
            self._file.readline()  # the rest of a line that is forgotten
            while block := self._file.read(1 << 20):
                kept.write(block)
        self._file.close()
        self._file = self._opened()


def forget(path: Path, user: str) -> int:
    """Remove all lines of a user from a file; returns how many there were.

    Raises:
        InvalidFile: the file or its salt cannot be read, or a server is writing it.
    """
    if not _salt_path(path).exists():
        raise InvalidFile(f"{path} has no salt beside it", hint=f"without {_salt_path(path)} nobody can be told apart")
    with _locked(_salt_path(path)) as file:
        name = _pseudonym(_salt(file), user)
        traffic = read(path)
        kept = [exchange for exchange in traffic.exchanges if exchange.user != name]
        if len(kept) < len(traffic.exchanges):
            write(path, kept, traffic.target)
    return len(traffic.exchanges) - len(kept)


# -- lines ------------------------------------------------------------------------------------------------------------


def is_header(record: object) -> bool:
    """Whether a JSON value is the first line of a server's file."""
    return isinstance(record, dict) and KEY in record


def _first_line(target: str) -> bytes:
    return (json.dumps({KEY: VERSION, "target": target}) + "\n").encode()


def _header(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if is_header(record) else None


def _check_version(path: Path, header: dict[str, Any]) -> None:
    if header[KEY] != VERSION:
        raise InvalidFile(
            f"{path} is of version {header[KEY]}, this headstart knows {VERSION}", hint="use the one that wrote it"
        )


def _exchange(line: str, where: str, encode: Encode | None) -> Exchange:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidFile(f"{where}: not JSON", hint=_SHAPES) from error
    if not isinstance(record, dict):
        raise InvalidFile(f"{where}: not a JSON object", hint=_SHAPES)
    prompt = _tokens(record.get("prompt"), None, f'{where}: "prompt"', encode)
    output = _tokens(record.get("output"), prompt, f'{where}: "output"', encode)
    temperature, hour = record.get("temperature", 0.0), record.get("hour", 0)
    number = isinstance(temperature, int | float) and not isinstance(temperature, bool) and 0 <= temperature < 100
    if not number or type(hour) is not int:
        raise InvalidFile(f"{where}: no such temperature or hour", hint="both are numbers")
    tag, user = (record.get(name, "") for name in ("tag", "user"))
    return Exchange(prompt, output, float(temperature), hour, str(tag), str(user))


def _tokens(value: object, before: Tokens | None, where: str, encode: Encode | None) -> Tokens:
    if isinstance(value, list) and value and all(type(token) is int and token >= 0 for token in value):
        return tuple(value)
    if isinstance(value, str) and value:
        if encode is None:
            raise InvalidFile(f"{where} is text", hint="give token ids, or a target with a tokenizer")
        return encode(value, before)
    raise InvalidFile(f"{where} is missing, empty or neither a text nor token ids", hint=_SHAPES)


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


# -- the salt ---------------------------------------------------------------------------------------------------------


def _salt_path(path: Path) -> Path:
    return path.with_name(path.name + ".salt")


def _salt(file: IO[bytes]) -> bytes:
    """The salt in an open file; a new one where it is empty."""
    file.seek(0)
    if found := file.read():
        return found
    new = secrets.token_bytes(32)
    file.write(new)
    file.flush()
    return new


def _locked(path: Path) -> IO[bytes]:
    """The file of the salt, made where it is not there, and held so that nobody else writes the traffic."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE), "r+b")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise InvalidFile(
            f"{path.with_suffix('')} is being written by another process", hint="stop it, or name another file"
        ) from error
    return file


def _pseudonym(salt: bytes, user: str) -> str:
    return hmac.new(salt, user.encode(), hashlib.sha256).hexdigest()[:16] if user else ""
