"""Recording one job of a server: the lines of its trace, handed on with the chunks they belong to.

A recorder is attached to the engine only while such a job runs, so that other jobs do not pay for it. Texts of tokens
are added later, on the event loop's side, where reading a large vocabulary does not delay the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from headstart.engine.engine import Engine
from headstart.engine.request import Request
from headstart.engine.trace.lines import header
from headstart.engine.trace.recording import Recorder
from headstart.serve.bridge import TracedChunk
from headstart.types import Chunk


class JobRecording:
    """The recording of one request of an engine. The engine's thread alone calls it."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._lines: deque[dict[str, Any]] = deque()
        self._lines.append(header(engine, command="headstart serve", note=""))
        recorder = Recorder(self._lines.append, rule=engine.rule, request=request.number)
        self.close = engine.record(recorder.observe)
        """Ends it; further calls do nothing."""

    def added_to(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """The chunks, each with the lines up to its own step; the last one with all there are."""
        found: list[Chunk] = []
        for number, chunk in enumerate(chunks, start=1):
            lines = []
            while self._lines and (number == len(chunks) or self._lines[0].get("i", 0) <= chunk.step.index):
                lines.append(self._lines.popleft())
            found.append(TracedChunk(chunk.text, chunk.tokens, chunk.step, tuple(lines)))
        return found
