"""Responses that clients may come back to, by owner and id: in memory, or in an SQLite file that outlives the server.

Another owner's response is answered exactly as one that is not there, after the same query.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headstart.base.errors import InvalidFile
from headstart.base.store import Database, Schema
from headstart.serve.options import Recording

T = TypeVar("T")
Json = dict[str, Any]
MOST_IN_MEMORY = 1000
"""Responses of one owner that are kept where there is no file."""
_DAY, _MEGABYTE = 86_400, 2**20

RESPONSES = Schema(
    what="store of responses",
    version=1,
    application=0x68737270,  # "hsrp"
    tables="""
CREATE TABLE IF NOT EXISTS responses (
    owner TEXT, id TEXT, created INTEGER, used INTEGER, response BLOB, items BLOB, bytes INTEGER,
    PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_age ON responses (owner, used);
""",
    hint="'headstart serve --responses FILE' writes one; name that file, or a new one",
    user="server",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A response, and the conversation up to its end."""

    response: Json
    items: list[Json]
    """What was asked, with all that came before it, and the output."""


class ResponseStore:
    """Keeps responses for their owners, the least used out first. All work is done on one thread of its own.

    Args:
        path: of the file (mode 600); None keeps them in memory, at most `MOST_IN_MEMORY` an owner.
        days: after so many, responses are forgotten.
        limit: megabytes of one owner, compressed.
        clock: seconds since 1970.

    Raises:
        InvalidFile: the file is none of this kind, or cannot be written.
    """

    def __init__(
        self, path: Path | None = None, *, days: int = 30, limit: float = 64.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._seconds, self._limit, self._clock = days * _DAY, int(limit * _MEGABYTE), clock
        self._most = MOST_IN_MEMORY if path is None else 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headstart-responses")
        try:
            self._database: Database = self._thread.submit(Database, path, RESPONSES, private=True).result()
        except BaseException:
            self._thread.shutdown()
            raise

    @classmethod
    def of(cls, options: Recording) -> ResponseStore:
        """As the server's options say.

        Raises:
            InvalidFile: the file is none of this kind, or cannot be written.
        """
        return cls(options.responses, days=options.responses_days, limit=options.responses_limit)

    def close(self) -> None:
        """Finish what is being written, and close the file. It may be said again."""
        with suppress(RuntimeError):  # the thread has ended
            self._thread.submit(self._database.close)
        self._thread.shutdown()

    async def keep(self, owner: str, response: Json, items: Sequence[Json]) -> None:
        """Keep a response. One larger than an owner's limit is not kept."""
        await self._do(lambda: self._keep(owner, response, items))

    async def find(self, owner: str, number: str) -> Kept | None:
        """A response of this owner; None where there is none."""
        return await self._do(lambda: self._find(owner, number))

    def find_now(self, owner: str, number: str) -> Kept | None:
        """The same, for a thread that may wait."""
        return self._submit(lambda: self._find(owner, number)).result()

    async def forget(self, owner: str, number: str) -> bool:
        """Forget a response of this owner; whether there was one."""
        return await self._do(lambda: self._forget(owner, number))

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        try:
            return self._thread.submit(work)
        except RuntimeError:  # an answer that ends while the server does
            raise InvalidFile("the store of responses is closed", hint="the server is ending") from None

    def _keep(self, owner: str, response: Json, items: Sequence[Json]) -> None:
        packed = _packed(response), _packed(list(items))
        size, now = sum(map(len, packed)), int(self._clock())
        if size > self._limit:
            return
        with self._database.writing():
            row = (owner, response["id"], now, now, *packed, size)
            self._database.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._database.execute("DELETE FROM responses WHERE created < ?", (now - self._seconds,))
            self._make_room(owner)

    def _make_room(self, owner: str) -> None:
        query = "SELECT count(*), coalesce(sum(bytes), 0) FROM responses WHERE owner = ?"
        ((rows, size),) = self._database.execute(query, (owner,))
        oldest = "SELECT id, bytes FROM responses WHERE owner = ? ORDER BY used, created, id LIMIT 1"
        while size > self._limit or (self._most and rows > self._most):
            ((number, freed),) = self._database.execute(oldest, (owner,))
            self._forget(owner, number)
            rows, size = rows - 1, size - freed

    def _find(self, owner: str, number: str) -> Kept | None:
        query = "SELECT response, items FROM responses WHERE owner = ? AND id = ? AND created >= ?"
        now = int(self._clock())
        rows = self._database.execute(query, (owner, number, now - self._seconds))
        if not rows:
            return None
        self._database.execute("UPDATE responses SET used = ? WHERE owner = ? AND id = ?", (now, owner, number))
        response, items = rows[0]
        return Kept(_unpacked(response), _unpacked(items))

    def _forget(self, owner: str, number: str) -> bool:
        query = "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING 1"
        return bool(self._database.execute(query, (owner, number)))


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), 1)


def _unpacked(data: bytes) -> Any:
    return json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
