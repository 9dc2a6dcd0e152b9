"""The parts of a reply, in the order in which the model writes them. Each interface turns them into its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A call begins, and its tool is known. index: 0, 1, ... in the order of the reply."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments, which are JSON text when all pieces are put together."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """A call ends. complete: whether its arguments came to their end; not where the reply was cut in them."""

    index: int
    complete: bool = True


Part = Reasoning | Content | CallOpened | CallArguments | CallClosed


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same parts, where pieces of one kind that follow each other are one."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Reasoning) and isinstance(last, Reasoning):
            found[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, Content) and isinstance(last, Content):
            found[-1] = Content(last.text + part.text)
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments) and part.index == last.index:
            found[-1] = CallArguments(part.index, last.text + part.text)
        else:
            found.append(part)
    return found


@dataclass(frozen=True, slots=True)
class Called:
    """A whole call of a reply. arguments: JSON text, as far as it was written."""

    name: str
    arguments: str
    complete: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A whole reply."""

    reasoning: str
    content: str
    calls: tuple[Called, ...]

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Message:
        """The reply of these parts."""
        reasoning, content = "", ""
        names: dict[int, str] = {}
        arguments: dict[int, str] = {}
        complete: set[int] = set()
        for part in joined(parts):
            match part:
                case Reasoning(text):
                    reasoning += text
                case Content(text):
                    content += text
                case CallOpened(index, name):
                    names[index], arguments[index] = name, ""
                case CallArguments(index, text):
                    arguments[index] += text
                case CallClosed(index, whole) if whole:
                    complete.add(index)
        calls = tuple(Called(name, arguments[index], index in complete) for index, name in names.items())
        return cls(reasoning, content, calls)
