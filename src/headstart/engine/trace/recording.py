"""`Recording`: a trace while it is made, in a file or in memory. `Engine.trace` gives one, made by `recorded`.

Its `Recorder` looks at distributions and noise and touches neither: what is recorded is what would have happened
without it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.engine.trace.format import TOP
from headstart.engine.trace.lines import Json, Texts, end_line, header, request_line, step_line
from headstart.engine.trace.reader import Trace, TracedRequest, lines_of, parse_trace, read_trace
from headstart.model.tokens.spelling import Spelling

if TYPE_CHECKING:
    from headstart.drafters import Observation
    from headstart.engine.engine import Engine
    from headstart.engine.request import Request


class Recorder:
    """Makes the lines of all requests it is shown, from the first step on in which it sees them to their end.

    Args:
        write: is given each line, an object of JSON.
        tokenizer: of transformers, to tell what tokens write; None leaves texts out.
        top: how many of the likeliest tokens of each distribution are recorded.
        request: the number of the only request that is recorded; None is all.
    """

    def __init__(
        self,
        write: Callable[[Json], None],
        *,
        tokenizer: Any = None,
        top: int = TOP,
        request: int | None = None,
    ) -> None:
        self._write = write
        self._tokenizer = tokenizer
        self._spelling = None if tokenizer is None else Spelling(tokenizer)
        self._top = top
        self._only = request
        self._zero = time.perf_counter()
        self._open: dict[int, Texts | None] = {}

    def observe(self, observation: Observation, request: Request) -> None:
        """Write what a step made of a request, and that it has ended if it has. A request that ends between steps has
        no row then."""
        if self._only not in (None, request.number):
            return
        row = observation.row
        if request.number not in self._open:
            self._begin(request, () if row is None else row.tokens[len(request.prompt) :])
        if row is not None:
            self._tell(request, step_line(observation, self._top, self._zero))
        if observation.step.finish_reason is not None:
            self._tell(request, end_line(request.number, request.finish()))
            del self._open[request.number]

    def _begin(self, request: Request, before: tuple[int, ...]) -> None:
        self._open[request.number] = None if self._spelling is None else Texts(self._spelling.raw)
        self._tell(request, request_line(request, before, self._tokenizer))

    def _tell(self, request: Request, line: Json) -> None:
        texts = self._open[request.number]
        self._write(line if texts is None else texts.add_to(line))


def as_line(line: Mapping[str, Any]) -> str:
    """A line of the file, with its end."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


class Recording:
    """What is being recorded. With a path, each line is in the file as soon as its step is done; else they are kept.

    Args:
        engine: whose requests.
        path: of the file, which is written from its beginning; None keeps the lines in memory.
        top: how many of the likeliest tokens of each distribution are recorded.
        command: the command that is run, for the header.
        note: what else the header shall say.

    Raises:
        InvalidOption: the file cannot be written, or `top` is no count.
    """

    def __init__(
        self, engine: Engine, path: str | Path | None, *, top: int = TOP, command: str = "", note: str = ""
    ) -> None:
        check_number("top", top, low=1, integer=True)
        self.path = None if path is None else Path(path)
        self.failure: Exception | None = None
        """Why the recording ended early, if it did: a full disk, for example. The texts went on."""
        self._lines: list[Json] = []
        self._file: IO[str] | None = None if self.path is None else _opened(self.path)
        self._recorder = Recorder(self._write, tokenizer=engine.tokenizer, top=top)
        self._write(header(engine, command=command, note=note))

    def observe(self, observation: Observation, request: Request) -> None:
        """Record what a step made of a request; see `Recorder`."""
        if self.failure is None:
            try:
                self._recorder.observe(observation, request)
            except Exception as error:
                self.failure = error
                raise

    def close(self) -> None:
        """Nothing more is written. What was recorded can still be read."""
        if self._file is not None:
            self._file.close()

    @property
    def lines(self) -> list[Json]:
        """The lines so far, as objects of JSON."""
        if self.path is None:
            return list(self._lines)
        return lines_of(self.path)

    def read(self) -> Trace:
        """The trace so far."""
        return read_trace(self.path) if self.path is not None else parse_trace(map(as_line, self._lines))

    @property
    def requests(self) -> Sequence[TracedRequest]:
        """The recorded requests so far."""
        return self.read().requests

    def _write(self, line: Json) -> None:
        if self._file is None:
            self._lines.append(line)
        else:
            self._file.write(as_line(line))
            self._file.flush()


@contextmanager
def recorded(
    engine: Engine, path: str | Path | None, *, top: int | None = None, command: str = "", note: str = ""
) -> Iterator[Recording]:
    """Meanwhile every step of every request of the engine is recorded. See `Engine.trace`.

    top: None is `TOP`.
    """
    recording = Recording(engine, path, top=TOP if top is None else top, command=command, note=note)
    remove = engine.record(recording.observe)
    try:
        yield recording
    finally:
        remove()
        recording.close()


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        hint = "name a file in a folder that you may write to"
        raise InvalidOption(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
