"""A server whose model says what a test has written, so many tokens at once: the forms of answers without weights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headstart.engine.detokenize import TextStream
from headstart.engine.intake import text_of
from headstart.serve.api.app import Application
from headstart.serve.api.service import Served
from headstart.serve.bridge import Answer, Job, SlotState
from headstart.serve.options import ServerOptions
from headstart.types import Chunk, Draft, Output, Seconds, Speculation, Stats, Step, Structure
from support.http_server import MODEL, listening

CONTEXT = 100_000


@dataclass
class ScriptedBridge:
    """A bridge without an engine. Each job is answered by the next reply; the last one is said again and again.

    burst: tokens that come at once.
    finish: why replies end.
    """

    tokenizer: Any
    replies: list[str]
    burst: int = 3
    finish: str = "stop"
    jobs: list[Job] = field(default_factory=list)
    queued: int = 0
    failure: None = None

    async def start(self) -> None: ...

    async def stop(self, grace_seconds: float) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        found = []
        for job in jobs:
            self.jobs.append(job)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            found.append(ScriptedAnswer(self, job, reply))
        return found

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        return tuple(self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt)

    def prepare(self, structure: Structure) -> None: ...

    def describe(self) -> Mapping[str, Any]:
        return {
            "rule": "coupled", "pacing": "fixed", "dtype": "float32", "quantize": None, "decoder": "scripted",
            "width_invariant": True, "vocab_size": len(self.tokenizer), "max_length": CONTEXT, "max_batch_size": 4,
            "prefix_cache": True, "spelling": "canonical", "target": MODEL, "drafter": "none",
        }  # fmt: skip

    def slots(self) -> Sequence[SlotState]:
        return []

    def prompt(self, number: int = -1) -> str:
        """The prompt of a job, as text with its special tokens."""
        return str(self.tokenizer.decode(list(self.jobs[number].prompt), skip_special_tokens=False))


class ScriptedAnswer:
    def __init__(self, bridge: ScriptedBridge, job: Job, reply: str) -> None:
        tokenizer = bridge.tokenizer
        ids = tuple(tokenizer(reply, add_special_tokens=False)["input_ids"])[: job.sampling.max_tokens]
        text = TextStream(text_of(tokenizer, job.sampling), job.prompt, job.sampling.stop)
        state = Speculation(False, "none")
        self._chunks: list[Chunk] = []
        for begin in range(0, len(ids), bridge.burst):
            tokens = ids[begin : begin + bridge.burst]
            text.push(tokens)
            last = text.stopped() or begin + bridge.burst >= len(ids)
            reason: Any = bridge.finish if last else None
            step = Step(
                0, len(self._chunks), len(job.prompt) + begin, Draft((), ()), (), tokens, None, 1, 1, Seconds(), reason,
                state,
            )  # fmt: skip
            self._chunks.append(Chunk(text.take(final=last), tokens, step))
            if last:
                break
        stats = Stats(
            len(ids), len(job.prompt), len(self._chunks), 1, 0, 0, (), (), Seconds(), 0.1, 0.2, state, cached_tokens=4
        )
        finish: Any = bridge.finish
        self._output = Output(text.text, ids, finish, None, stats, job.prompt, job.sampling.seed or 0, stop=text.stop)

    def __aiter__(self) -> AsyncIterator[Sequence[Chunk]]:
        async def each() -> AsyncIterator[Sequence[Chunk]]:
            for chunk in self._chunks:
                yield [chunk]

        return each()

    async def output(self) -> Output:
        return self._output

    def cancel(self) -> None: ...


@contextmanager
def scripted(tokenizer: Any, *replies: str, **fields: Any) -> Iterator[tuple[str, ScriptedBridge]]:
    """The address of such a server's interface, and its bridge. fields: further ones of the bridge."""
    bridge = ScriptedBridge(tokenizer, list(replies), **fields)
    app = Application(Served(bridge), ServerOptions(served_model_name=(MODEL,)), grace_seconds=0.0)
    with listening(app) as url:
        yield f"{url}/v1", bridge
