"""`Recorder`: is shown what steps made of requests, and writes the lines of a trace.

It looks at distributions and noise and touches neither: what is recorded is what would have happened without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headstart.engine.trace.format import TOP
from headstart.engine.trace.lines import Json, end_line, request_line, step_line
from headstart.engine.trace.texts import Texts
from headstart.model.tokens.spelling import Spelling

if TYPE_CHECKING:
    from headstart.drafters import Observation
    from headstart.engine.request import Request
    from headstart.types import Rule


class Recorder:
    """Makes the lines of all requests it is shown, from the first step on in which it sees them to their end.

    Args:
        write: is given each line, an object of JSON.
        rule: the engine's.
        tokenizer: of transformers, to tell what tokens write; None leaves texts out.
        top: how many of the likeliest tokens of each distribution are recorded.
        request: the number of the only request that is recorded; None is all.
    """

    def __init__(
        self,
        write: Callable[[Json], None],
        *,
        rule: Rule,
        tokenizer: Any = None,
        top: int = TOP,
        request: int | None = None,
    ) -> None:
        self._write = write
        self._rule = rule
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
            self._tell(request, step_line(observation, self._rule, self._top, self._zero))
        if observation.step.finish_reason is not None:
            self._tell(request, end_line(request.number, request.finish()))
            del self._open[request.number]

    def _begin(self, request: Request, before: tuple[int, ...]) -> None:
        self._open[request.number] = None if self._spelling is None else Texts(self._spelling.raw)
        text = None
        if self._tokenizer is not None:
            text = str(self._tokenizer.decode(list(request.prompt), skip_special_tokens=False))
        line = request_line(
            request.number,
            request.prompt,
            text,
            before=before,
            sampling=request.sampling,
            seed=request.noise.seed,
            rule=self._rule,
        )
        self._tell(request, line)

    def _tell(self, request: Request, line: Json) -> None:
        texts = self._open[request.number]
        self._write(line if texts is None else texts.add_to(line))
