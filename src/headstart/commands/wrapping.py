"""Text that comes in pieces, broken between words at the edge of a terminal.

A word is shown as soon as its first letters are there. Where it turns out not to fit, it is taken back and written
again on the next line.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.style import Style

_TAB = 8
_NARROWEST = 20
"""Columns of a terminal below which its own wrapping must do."""


class WordWrap:
    """The place in the line at which a text stands. width: the terminal's columns."""

    def __init__(self, width: int) -> None:
        self._room = width - 1  # in the last column terminals differ in where the cursor then is
        self._column = 0
        self._word: list[tuple[str, Style | None]] = []

    def take(self, text: str, style: Style | None = None) -> Iterator[tuple[str, Style | None]]:
        """What to write for more of the text: pieces and their styles; what moves the cursor has none."""
        if self._room < _NARROWEST:
            yield text, style
            return
        ready = ""
        for char in text:
            size = _TAB - self._column % _TAB if char == "\t" else cell_len(char)
            if char != "\n" and self._column + size > self._room:
                yield ready, style
                ready = ""
                if char.isspace():  # the line ends here, and the space with it
                    yield "\n", None
                    self._column, self._word = 0, []
                    continue
                yield from self._break()
            ready += char
            if char == "\n":
                self._column, self._word = 0, []
            elif char.isspace():
                self._column, self._word = self._column + size, []
            else:
                self._column += size
                self._word.append((char, style))
        yield ready, style

    def _break(self) -> Iterator[tuple[str, Style | None]]:
        """A new line, and on it what there is of the word; a word that fills a whole line is cut."""
        size = sum(cell_len(char) for char, _ in self._word)
        if size == 0 or size >= self._column:
            yield "\n", None
            self._column, self._word = 0, []
            return
        yield f"\x1b[{size}D\x1b[K\n", None
        yield from self._word
        self._column = size
