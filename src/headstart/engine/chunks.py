"""How much of prompts a step reads: as much as is asked for, or so little that no other request waits long."""

from __future__ import annotations

MOST_SECONDS = 0.08
"""Of a step that reads while other requests write, so that readers of theirs see the text go on within a tenth of a
second although steps scatter. Where a step takes more than half of that without any prompt, it may take twice as long
with one, so that prompts are read all the same."""
LEAST = 16
"""Tokens. Rows of a forward cost little beside the weights until there are about so many."""
_LATEST = 0.25
"""Weight of the latest step without prompts."""


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
        self._bound = float(min(LEAST, most) if bounded else most)  # nobody has seen yet how fast prompts are read
        self._plain = 0.0

    def tokens(self, *, beside: bool) -> int:
        """beside: whether a request writes in this step that may not wait."""
        return round(self._bound) if beside else self.most

    def took(self, tokens: int, seconds: float) -> None:
        """Learn from a step, the drafter's part included. tokens: of prompts, among its rows."""
        if not self._bounded or seconds <= 0:
            return
        if not tokens:
            self._plain += (_LATEST if self._plain else 1.0) * (seconds - self._plain)
            return
        allowed = max(MOST_SECONDS, 2 * self._plain)
        if seconds <= allowed and tokens < round(self._bound):
            return  # a short prompt says nothing of long ones
        wanted = tokens * (allowed - self._plain) / max(seconds - self._plain, 1e-6)
        if wanted < self._bound:
            wanted = max(wanted, self._bound / 2)  # a step may have been disturbed
        else:
            wanted = (self._bound + min(wanted, 3 * self._bound)) / 2
        self._bound = min(self.most, max(min(LEAST, self.most), wanted))
