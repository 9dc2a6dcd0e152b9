"""What tokens write, as a trace tells it: leading spaces kept, and parts of characters shown as the bytes they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headstart.engine.trace.lines import ids_of

_RAW = re.compile("[\udc80-\udcff]")


def as_text(raw: bytes) -> str:
    """Bytes as text; one that belongs to no whole character stands as <0xE2>."""
    return _RAW.sub(lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", raw.decode("utf-8", "surrogateescape"))


class Texts:
    """Adds the text of each token of a request to the first line that names it. raw: what a token writes, in bytes."""

    def __init__(self, raw: Callable[[int], bytes]) -> None:
        self._raw = raw
        self._named: set[int] = set()

    def add_to(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The line with the texts of the tokens that no line before it named."""
        new = dict.fromkeys(token for token in ids_of(line) if token not in self._named)
        self._named.update(new)
        return {**line, "texts": {str(token): as_text(self._raw(token)) for token in new}} if new else dict(line)
