"""headstart's own ledger (`headstart serve --ledger FILE`) as a source of drift: by source, tag and position.

The ledger counts by the hour, so an hour is a window, taken when it is over. Its past is read at the first look.
Source of the tables: `headstart.serve.ledger`, version 1.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.drift import Cell

VERSION = 1
LATE = 60.0
"""Seconds after its end in which an hour may still grow: the server writes a little after the fact."""
_QUERY = """
SELECT hour, model, tag, source, position, tested, accepted FROM acceptance WHERE hour > ? AND hour < ?
ORDER BY hour, model, tag, source, position
"""
_HINT = "'headstart serve --ledger FILE' writes one; name that file"


@dataclass(slots=True)
class LedgerReader:
    """What of a ledger was read already."""

    path: Path
    hour: int = 0
    """The last hour that was taken, since 1970."""
    model: str = ""
    """Names the target and the drafter of that hour."""

    def read(self, now: float) -> dict[tuple[int, str], list[Cell]]:
        """By (hour, model) the cells of the hours that have ended since the last time, the oldest first.

        Raises:
            InvalidFile: there is no such file, or it is no ledger.
        """
        found: dict[tuple[int, str], list[Cell]] = {}
        for hour, model, tag, source, position, tested, accepted in self._rows(int((now - LATE) // 3600)):
            found.setdefault((hour, model), []).append(Cell(position + 1, source, tag, tested, accepted))
            self.hour, self.model = hour, model
        return found

    def _rows(self, before: int) -> list[Any]:
        if not self.path.is_file():
            raise InvalidFile(f"there is no ledger {self.path}", hint=_HINT)
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)) as ledger:
                (version,) = ledger.execute("PRAGMA user_version").fetchone()
                if version != VERSION:
                    raise InvalidFile(f"{self.path} is no ledger of version {VERSION}: it says {version}", hint=_HINT)
                return ledger.execute(_QUERY, (self.hour, before)).fetchall()
        except sqlite3.Error as error:
            raise InvalidFile(f"{self.path} cannot be read as a ledger: {error}", hint=_HINT) from error

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"hour": self.hour, "model": self.model}

    @classmethod
    def of(cls, path: Path, record: Mapping[str, Any] | None) -> LedgerReader:
        """What `record` has kept, or a new one."""
        return cls(path, **(record or {}))
