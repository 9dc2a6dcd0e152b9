"""How much of prompts a step reads: as much as is asked for, or so little that no other request waits long."""

from __future__ import annotations

MOST_SECONDS = 0.1
"""Of a step that reads while other requests write. A reader sees the text go on, and does not notice that."""
LEAST = 16
"""Tokens. Rows of a step cost little beside the weights until there are about so many."""


class Chunks:
    """Prompt tokens that a step reads, over all requests.

    Args:
        most: so many where nobody writes.
        bounded: whether they are fewer where somebody does. Where the width of a forward changes the bits of its rows,
            a text would depend on the clock then.
    """

    def __init__(self, most: int, *, bounded: bool) -> None:
        self.most = most
        self._bounded = bounded
        self._bound = float(most)

    def tokens(self, *, beside: bool) -> int:
        """beside: whether a request writes in this step."""
        return round(self._bound) if beside else self.most

    def took(self, tokens: int, seconds: float) -> None:
        """Learn from a step that has read so many. What it took for other things counts as theirs: a step of `tokens`
        that is on the bound stays on it."""
        if self._bounded and tokens and seconds > 0:
            wanted = tokens * MOST_SECONDS / seconds
            self._bound = min(self.most, max(min(LEAST, self.most), (self._bound + wanted) / 2))
