"""The file of served traffic: JSON Lines. The first line names the version and the target, every further one is an
`Exchange`; plain files of prompts and outputs, which have no such first line, are read as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.base.files import replacing

VERSION = 1
KEY = "headstart_traffic"
"""The key of the first line; its value is the version."""
_SHAPES = 'each line is {"prompt": ..., "output": ...}, both a text or a list of token ids'

Tokens = tuple[int, ...]
Encode = Callable[[str, Tokens | None], Tokens]
"""From a text to its token ids; given the tokens that it follows, or None where it begins a prompt."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and what the target wrote after it.

    temperature: that it was sampled at; 0 is greedy, and stands where a file has none.
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

    target: the fingerprint of the model that wrote the outputs; "" in a plain file, which has none.
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
    if lines and (header := read_header(lines[0][1])) is not None:
        target = str(header.get("target", ""))
        check_version(path, header)
        del lines[0]
    exchanges = [_exchange(line, f"{path}, line {number}", encode) for number, line in lines]
    damaged = False
    if rest.strip():  # without a line break at its end: written by hand, or broken off
        try:
            if read_header(rest) is None:
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
        file.write(first_line(target))
        file.writelines(exchange.line() for exchange in exchanges)


# -- lines ------------------------------------------------------------------------------------------------------------


def is_header(record: object) -> bool:
    """Whether a JSON value is the first line of a file that a server wrote."""
    return isinstance(record, dict) and KEY in record


def first_line(target: str) -> bytes:
    """Of a file whose outputs this model wrote; target: its fingerprint."""
    return (json.dumps({KEY: VERSION, "target": target}) + "\n").encode()


def read_header(line: str) -> dict[str, Any] | None:
    """What a first line holds; None where the line is no header."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if is_header(record) else None


def check_version(path: Path, header: dict[str, Any]) -> None:
    """Raise `InvalidFile` if the header is not of the version that this headstart knows."""
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
