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
        self._stop = tuple(stop)
        self._ids = list(prompt[-_CONTEXT:])
        self._prefix, self._read = 0, len(self._ids)
        self._shown = decode(self._ids)
        self._taken = 0
        self.text = ""

    def push(self, tokens: Sequence[int]) -> None:
        """Add tokens. A character may be spread over several: it appears with its last one."""
        self._ids += tokens
        window = self._decode(self._ids[self._prefix :])
        if window.endswith("\ufffd"):
            return
        self.text += window[len(self._shown) :]
        self._prefix, self._read = self._read, len(self._ids)
        self._shown = self._decode(self._ids[self._prefix :])

    def stopped(self, since: int) -> bool:
        """Whether a stop string stands in the text after `since` characters; if so the text is cut before it."""
        reach = max((len(stop) for stop in self._stop), default=1) - 1
        found = [self.text.find(stop, max(0, since - reach)) for stop in self._stop]
        starts = [start for start in found if start >= 0]
        if starts:
            self.text = self.text[: min(starts)]
        return bool(starts)

    def flush(self) -> None:
        """Show what is left of an unfinished character, as replacement characters."""
        window = self._decode(self._ids[self._prefix :])
        self.text += window[len(self._shown) :]
        self._prefix = self._read = len(self._ids)
        self._shown = ""

    def take(self, *, final: bool = False) -> str:
        """The text not taken yet, less what could still turn out to be a stop string."""
        end = len(self.text) if final else len(self.text) - self._undecided()
        piece = self.text[self._taken : end]
        self._taken = max(self._taken, end)
        return piece

    def _undecided(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        lengths = (n for stop in self._stop for n in range(1, len(stop)) if self.text.endswith(stop[:n]))
        return max(lengths, default=0)
