"""Tokens to text while they come: characters split over tokens, stop strings, and what may be shown already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_CONTEXT = 6
"""Prompt tokens decoded along, so that the first output token keeps its leading space."""


class TextStream:
    """Decodes one request's output.

    `push` adds tokens; `take` hands out text that no later token can change: an incomplete character or the
    possible beginning of a stop string is held back until it is decided.
    """

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._decode = decode
        self._stops = [_Stop(string) for string in stop]
        self._stop_at: tuple[int, str] | None = None
        self.stop: str | None = None
        """The stop string that ended the text."""
        self._ids = list(prompt[-_CONTEXT:])
        self._prefix, self._read = 0, len(self._ids)
        self._shown = decode(self._ids)
        self._taken = 0
        self.text = ""

    def push(self, tokens: Sequence[int]) -> None:
        """Add tokens. A character may be spread over several: it appears with its last one."""
        self._ids += tokens
        self._stop_at = None
        window = self._decode(self._ids[self._prefix :])
        if window.endswith("\ufffd"):
            return
        self._look_for_stops(window[len(self._shown) :])
        self.text += window[len(self._shown) :]
        self._prefix, self._read = self._read, len(self._ids)
        self._shown = self._decode(self._ids[self._prefix :])

    def stopped(self) -> bool:
        """Whether a stop string ended in what the last `push` added; if so the text is cut before it, for good."""
        if self._stop_at is None:
            return False
        at, self.stop = self._stop_at
        self.text = self.text[:at]
        self._stops = []
        return True

    def flush(self) -> None:
        """Show what is left of an unfinished character, as replacement characters."""
        window = self._decode(self._ids[self._prefix :])
        self.text += window[len(self._shown) :]
        self._prefix = self._read = len(self._ids)
        self._shown = ""

    def take(self, *, final: bool = False) -> str:
        """The text not taken yet, less what could still turn out to be a stop string."""
        held = 0 if final else max((stop.begun for stop in self._stops), default=0)
        end = len(self.text) - held
        piece = self.text[self._taken : end]
        self._taken = max(self._taken, end)
        return piece

    def _look_for_stops(self, piece: str) -> None:
        """Note where the first stop string begins that ends in this next piece of text."""
        ends = ((stop, stop.read(piece)) for stop in self._stops)
        starts = [(len(self.text) + end - stop.length, stop.string) for stop, end in ends if end is not None]
        self._stop_at = min(starts, default=None)


class _Stop:
    """How much of one stop string the text ends with (Knuth, Morris and Pratt 1977).

    Work and memory grow with the text that is read, whatever the length of the string: clients choose that.
    """

    def __init__(self, string: str) -> None:
        self.length = len(string)
        self.begun = 0
        """Characters of the string, fewer than all, that the text ends with: the most that is possible."""
        self.string = string
        self._borders = [0, 0]
        """At n: the length of the longest end of the first n characters that is their beginning too; known as far
        as the text has come."""

    def read(self, piece: str) -> int | None:
        """Read the next piece of text. Returns after how many of its characters the string ended first, if it did."""
        found = None
        for at, character in enumerate(piece, start=1):
            self.begun = self._longer(self.begun, character)
            if self.begun == len(self._borders):
                self._borders.append(self._longer(self._borders[-1], self.string[self.begun - 1]))
            if self.begun == self.length:
                found = at if found is None else found
                self.begun = self._borders[self.begun]
        return found

    def _longer(self, begun: int, character: str) -> int:
        """The characters of the string that stand at the end when this one follows so many of them."""
        while begun and self.string[begun] != character:
            begun = self._borders[begun]
        return begun + (self.string[begun] == character)
