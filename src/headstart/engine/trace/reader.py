"""Reading a trace: every line checked, lines put together by request, and a clear error for what is no trace."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headstart.base.errors import InvalidFile
from headstart.engine.trace.format import LINES, READ, VERSION, EndLine, Header, RequestLine, StepLine

_MAKE_ONE = "record one with: headstart generate --trace FILE"
_SHOWN = 60
"""Characters of a file that an error quotes."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace."""

    line: RequestLine
    """What it was asked for."""
    steps: tuple[StepLine, ...] = ()
    end: EndLine | None = None
    """None where the recording ended before the request did."""
    texts: dict[int, str] = field(default_factory=dict)
    """What tokens write."""

    @property
    def number(self) -> int:
        return self.line.request

    @property
    def greedy(self) -> bool:
        """Temperature 0."""
        return bool(self.line.sampling.get("temperature", 0) == 0)

    @property
    def emitted(self) -> tuple[int, ...]:
        """The output's tokens as far as they were recorded, with those from before the recording."""
        return (*self.line.before, *(token for step in self.steps for token in step.emitted))

    def text(self, token: int) -> str:
        """What a token writes, or its number in angle brackets where the trace does not say."""
        return self.texts.get(token, f"<{token}>")


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run."""

    header: Header
    requests: tuple[TracedRequest, ...]
    warnings: tuple[str, ...] = ()
    """What is incomplete about it, in words: a last line that was cut off, for example."""

    def request(self, number: int) -> TracedRequest:
        """The request of this number.

        Raises:
            InvalidFile: there is none.
        """
        found = next((each for each in self.requests if each.number == number), None)
        if found is None:
            numbers = ", ".join(str(each.number) for each in self.requests) or "none at all"
            raise InvalidFile(f"the trace has no request {number}", hint=f"it has {numbers}")
        return found


def read_trace(path: str | Path) -> Trace:
    """A trace from a file.

    A last line that was cut off, because the run was, is left out, and `Trace.warnings` says so.

    Raises:
        InvalidFile: there is no such file, it is no trace, its version is unknown, or a line of it is damaged.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            return parse_trace(file, name=str(path))
    except OSError as error:
        raise InvalidFile(f"cannot read {path}: {error.strerror or error}", hint=_MAKE_ONE) from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not a trace: it is not text in UTF-8", hint=_MAKE_ONE) from error


def lines_of(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a file that `read_trace` has read, as objects of JSON; without one that was cut off."""
    found = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def parse_trace(lines: Iterable[str], *, name: str = "the trace") -> Trace:
    """A trace from its lines, each with its end. name: what errors call it.

    Raises:
        InvalidFile: see `read_trace`.
    """
    header: Header | None = None
    parts: dict[int, _Parts] = {}
    warnings: list[str] = []
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    for number, line in numbered:
        try:
            found = json.loads(line)
        except ValueError:
            if header is not None and (number, line) == numbered[-1] and not line.endswith("\n"):
                warnings.append(f"line {number} was cut off and is left out: the run did not end by itself")
                break
            raise _foreign(name, number, line, known=header is not None) from None
        if header is None:
            header = _header(name, found)
        else:
            _sort(name, number, found, parts)
    if header is None:
        raise InvalidFile(f"{name} is empty", hint=_MAKE_ONE)
    requests = tuple(each.whole() for each in parts.values())
    open_ = [str(each.number) for each in requests if each.end is None]
    if open_:
        plural = "s" if len(open_) > 1 else ""
        warnings.append(f"request{plural} {', '.join(open_)}: the recording ended before the request did")
    for each in requests:
        odd = [str(step.i) for step in each.steps if step.mismatch is not None]
        if odd:
            warnings.append(f"request {each.number}: the rule could not be repeated in step {', '.join(odd)}")
    return Trace(header, requests, tuple(warnings))


class _Parts:
    """A request while its lines come."""

    def __init__(self, line: RequestLine) -> None:
        self.line = line
        self.steps: list[StepLine] = []
        self.end: EndLine | None = None
        self.texts: dict[int, str] = {}
        self.learn(line.texts)

    def learn(self, texts: dict[str, str]) -> None:
        self.texts.update((int(token), text) for token, text in texts.items())

    def whole(self) -> TracedRequest:
        return TracedRequest(self.line, tuple(self.steps), self.end, self.texts)


def _header(name: str, found: Any) -> Header:
    if not isinstance(found, dict) or "headstart_trace" not in found:
        raise InvalidFile(f"{name} is not a trace: its first line has no headstart_trace", hint=_MAKE_ONE)
    given = found["headstart_trace"]
    if given not in READ:
        newer = isinstance(given, int) and given > VERSION
        hint = "update headstart, or record it again" if newer else "record it again"
        raise InvalidFile(f"{name} has version {given!r} of the format, and this headstart reads {VERSION}", hint=hint)
    try:
        return Header.model_validate(found)
    except ValidationError as error:
        raise _damaged(name, 1, error) from error


def _sort(name: str, number: int, found: Any, parts: dict[int, _Parts]) -> None:
    try:
        line = LINES.validate_python(found)
    except ValidationError as error:
        raise _damaged(name, number, error) from error
    if isinstance(line, Header):
        raise InvalidFile(f"line {number} of {name} is a second header", hint="keep each trace in a file of its own")
    if isinstance(line, RequestLine):
        if line.request in parts:
            raise InvalidFile(f"line {number} of {name} begins request {line.request} again", hint=_MAKE_ONE)
        parts[line.request] = _Parts(line)
        return
    mine = parts.get(line.request)
    if mine is None:
        hint = "its lines are not complete, or not in their order; record it again"
        raise InvalidFile(f"line {number} of {name} belongs to request {line.request}, which never began", hint=hint)
    mine.learn(line.texts)
    if isinstance(line, StepLine):
        mine.steps.append(line)
    else:
        mine.end = line


def _foreign(name: str, number: int, line: str, *, known: bool) -> InvalidFile:
    shown = line.strip()[:_SHOWN]
    if known:
        return InvalidFile(f"line {number} of {name} is not JSON: {shown}", hint="the file is damaged; record it again")
    return InvalidFile(f"{name} is not a trace: its first line is not JSON: {shown}", hint=_MAKE_ONE)


def _damaged(name: str, number: int, error: ValidationError) -> InvalidFile:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return InvalidFile(
        f"line {number} of {name} is damaged: {where or 'it'}: {first['msg']}",
        hint="docs/guides/read-a-trace.md says what a line holds; record it again",
    )
