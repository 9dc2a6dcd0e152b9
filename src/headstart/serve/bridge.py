"""`Bridge`: what stands between a server's event loop and the engine that one thread, or one process, steps.

In front of it stand pure translations, from requests of some interface to a `Job` and from chunks to its answers; they
know no engine. Behind it stands an engine, which knows no interface. Everything that crosses is a value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headstart.base.errors import HeadstartError
from headstart.model.slot_files import SlotFile
from headstart.types import Chunk, Drafting, Output, Sampling, Structure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """One text to generate."""

    prompt: tuple[int, ...]
    """Token ids, checked already."""
    sampling: Sampling = field(default_factory=Sampling)
    drafting: Drafting = field(default_factory=Drafting)
    tag: str = ""
    """The kind of work, as the client names it; statistics are kept for each."""
    trace: bool = False
    """Whether its steps are recorded; its chunks then are `TracedChunk`s."""
    user: str = ""
    """Whom the client asks for, as it names them."""
    store: bool | None = None
    """Whether the client allows its text to be written down; None where it does not say."""
    deadline: float | None = None
    """`time.monotonic()` seconds after which the request ends with what it has; None waits for ever."""


@dataclass(frozen=True, slots=True)
class TracedChunk(Chunk):
    """A chunk of a job that is recorded."""

    lines: tuple[dict[str, Any], ...] = ()
    """The lines of the trace that came with it, without texts: `headstart.engine.trace.format` says what they hold. The
    first chunk of a job has a header and the request's line before its steps, the last one the line of the end
    behind."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """One slot of the target's cache."""

    number: int
    request: int | None
    """The request that runs there, or None."""
    tokens: int
    """Tokens whose keys and values it holds, of a running request or kept of an ended one."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    not_guessing: str = ""
    """Why nothing is guessed for the request at the moment, in a sentence; empty where something is."""


class Answer(Protocol):
    """What becomes of one job: its chunks while it runs, its output at the end."""

    def __aiter__(self) -> AsyncIterator[Sequence[Chunk]]:
        """The chunks that have come since the last ones, until the request has ended.

        Raises:
            InvalidOption, InvalidPrompt: the engine refused the job; nothing has come before.
            EngineFailed: the engine itself failed.
        """
        ...

    async def output(self) -> Output:
        """The whole result, once the request has ended. A request that ended with an error says so in it.

        Raises:
            HeadstartError: as iterating does.
        """
        ...

    def cancel(self) -> None:
        """End the request at once, also where it still waits or its prompt is being read. Its slot becomes free."""
        ...


class SlotNames(Protocol):
    """Slots in files that clients have named; see `headstart.serve.named_slots`."""

    def save(self, slot: int, name: str, salt: Hashable) -> SlotFile: ...

    def find(self, name: str, salt: Hashable) -> SlotFile: ...

    def restore(self, slot: int, file: SlotFile, salt: Hashable) -> Generator[None, None, int]: ...

    def erase(self, slot: int, salt: Hashable) -> int: ...


class Bridge(Protocol):
    """An engine behind an inbox. All methods are called from one event loop."""

    async def start(self) -> None:
        """Begin to step the engine."""
        ...

    async def stop(self, grace_seconds: float) -> None:
        """Take no more jobs, let the running ones finish for so long, and end the rest with what they have."""
        ...

    def submit(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        """Queue jobs, all or none of them; those of one call may share the reading of their common prompt.

        Raises:
            Overloaded: the queue is full; it says after how many seconds to come back.
            InvalidOption: they are more than could ever run and wait.
            ServerStopping: no more jobs are taken.
            EngineFailed: see `failure`.
        """
        ...

    async def between_steps(self, action: Callable[[], T]) -> T:
        """Have the engine's thread do something before its next step, which waits for it. What it raises comes through.

        Raises: ServerStopping, EngineFailed.
        """
        ...

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """The token ids of a prompt, checked as the engine does."""
        ...

    def prepare(self, structure: Structure) -> None:
        """Compile the grammar of jobs to come. Any thread may call it, and the engine goes on meanwhile.

        Raises: InvalidGrammar, InvalidOption.
        """
        ...

    @property
    def tokenizer(self) -> Any:
        """Of transformers."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What runs here: `Engine.describe`."""
        ...

    def slots(self) -> Sequence[SlotState]:
        """Who runs where, as of the last step."""
        ...

    @property
    def queued(self) -> int:
        """Jobs that wait."""
        ...

    @property
    def failure(self) -> HeadstartError | None:
        """Why the engine runs no more, where it has failed for good; a health check must say so."""
        ...
