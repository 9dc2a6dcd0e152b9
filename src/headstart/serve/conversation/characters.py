"""`Characters`: a text that comes in pieces, read one character at a time by coroutines.

A coroutine that asks for the next character stops until there is one. So a reader is written as the grammar of what it
reads, and how the text was cut into pieces cannot matter to it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

LONGEST_NAME = 4096
"""Characters of a name, a key or a header; what is longer is none."""

Reading = Generator[None, str, Any]
Word = Generator[None, str, str]


class End(Exception):
    """There is no more text."""


class Broken(Exception):
    """The text is not of the form."""


class Characters:
    """The characters of one text. They are sent to the coroutine that waits for one; "" is the end of the text.

    taken: those read since the last that became a part of the reply: a reader that gives up can put them back.
    position: how many were read.
    """

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.position = 0
        self._back: list[str] = []
        self._ended = False

    def next(self) -> Word:
        """The next character.

        Raises:
            End: there is none. Every other method that reads raises it as well.
        """
        if self._back:
            character = self._back.pop()
        else:
            character = "" if self._ended else (yield)
            if not character:
                self._ended = True
                raise End
        self.taken.append(character)
        self.position += 1
        return character

    def unread(self, text: str) -> None:
        """Put back what was read last."""
        if text:
            self.position -= len(text)
            self._back += reversed(text)
            del self.taken[-len(text) :]

    def peek(self) -> Word:
        """The next character that is no white space, left unread; the white space is read."""
        while True:
            character = yield from self.next()
            if not character.isspace():
                self.unread(character)
                return character

    def which(self, options: Sequence[str]) -> Word:
        """The one of these texts that comes next, behind white space, and is read; "" where none does."""
        yield from self.peek()
        begun = ""
        while True:
            if begun in options:
                return begun
            if not any(each.startswith(begun) for each in options):
                self.unread(begun)
                return ""
            begun += yield from self.next()

    def literal(self, text: str) -> Reading:
        """Read a text of the form. White space within and before it may be any.

        Raises:
            Broken: another text comes.
        """
        for word in text.split():
            if not (yield from self.which((word,))):
                raise Broken

    def until(self, mark: str, say: Callable[[str], None], *, keep: bool = True) -> Reading:
        """Read up to a mark, and the mark.

        say: takes each character before it.
        keep: whether a beginning of the mark at which the text ends is said as well.
        """
        held = ""
        try:
            while held != mark:
                held += yield from self.next()
                while not mark.startswith(held):
                    say(held[0])
                    held = held[1:]
        except End:
            for character in held if keep else "":
                say(character)
            raise

    def word(self, ends: str) -> Word:
        """The characters up to white space or one of these.

        Raises:
            Broken: they are too many.
        """
        yield from self.peek()
        found = ""
        while True:
            try:
                character = yield from self.next()
            except End:
                if found and not ends:
                    return found
                raise
            if character.isspace() or character in ends:
                self.unread(character)
                return found
            found += character
            if len(found) > LONGEST_NAME:
                raise Broken
