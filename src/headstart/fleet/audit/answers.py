"""What a server's answer holds: its text, its tokens in whichever form they come, its log-probabilities.

Forms known: `token_ids` and `prompt_token_ids` of a choice (vLLM, SGLang); `logprobs` with `tokens`, `token_logprobs`,
`top_logprobs` (OpenAI, vLLM, SGLang), in which vLLM may write tokens as "token_id:123"; `logprobs` with `content`, a
list of objects that have an `id` (llama.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from headstart.base.as_json import first_problem
from headstart.base.errors import EndpointFailed, IncompatibleTokenizer
from headstart.fleet.audit.spelling import Name, Spelling
from headstart.types import TokenLogprob

_ID = "token_id:"


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of one answer.

    tokens: in the form they come in; None if there is text alone
    direct: whether they come by themselves, not with the log-probabilities
    logprobs: of each token, and of its alternatives
    count, prompt_tokens: tokens as the server counts them
    prompt_ids: the prompt as the server read it
    """

    text: str
    finish_reason: str
    tokens: tuple[Name, ...] | None
    direct: bool
    logprobs: tuple[tuple[float, dict[Name, float]], ...] | None
    count: int | None
    prompt_tokens: int | None
    prompt_ids: tuple[int, ...] | None

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The tokens, if all of them come as numbers."""
        ids = tuple(name for name in self.tokens or () if isinstance(name, int))
        return ids if self.tokens is not None and len(ids) == len(self.tokens) else None

    @property
    def token_source(self) -> str:
        """Where tokens are taken from: "ids", "ids in the log-probabilities", "token strings" or "text"."""
        if self.ids is not None:
            return "ids" if self.direct else "ids in the log-probabilities"
        return "text" if self.tokens is None else "token strings"

    def logprobs_of(self, tokens: Sequence[int], spelling: Spelling | None) -> tuple[TokenLogprob, ...] | None:
        """The log-probabilities of these tokens (an end that the server left out has none)."""
        if self.logprobs is None:
            return None
        return tuple(
            TokenLogprob(token, logprob, _alternatives(top, spelling))
            for token, (logprob, top) in zip(tokens, self.logprobs, strict=False)
        )


# -- the JSON: fields of other servers are ignored -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Alternative:
    token: str
    logprob: float
    id: int | None = None

    @property
    def name(self) -> Name:
        return self.token if self.id is None else self.id


@dataclass(frozen=True, slots=True)
class _Token(_Alternative):
    top_logprobs: list[_Alternative] | None = None


@dataclass(frozen=True, slots=True)
class _Logprobs:
    content: list[_Token] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None

    def entries(self) -> list[tuple[Name, float, dict[Name, float]]]:
        """(token, log-probability, alternatives) of each token; an id where there is one, else the string."""
        if self.content is not None:
            return [
                (each.name, each.logprob, {other.name: other.logprob for other in each.top_logprobs or ()})
                for each in self.content
            ]
        names = self.tokens or []
        logprobs = self.token_logprobs or [None] * len(names)
        tops = self.top_logprobs or [None] * len(names)
        return [
            (
                _numbered(name),
                math.nan if logprob is None else logprob,
                {_numbered(other): value for other, value in (top or {}).items() if value is not None},
            )
            for name, logprob, top in zip(names, logprobs, tops, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Choice:
    text: str
    finish_reason: str | None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None


@dataclass(frozen=True, slots=True)
class _Usage:
    completion_tokens: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Completion:
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None
    prompt_token_ids: tuple[int, ...] | None = None


_SHAPE = TypeAdapter(_Completion)


def read_answer(answer: dict[str, Any]) -> Answer:
    """Read an answer with one choice.

    Raises:
        EndpointFailed: it does not have the shape of a completion.
    """
    try:
        found = _SHAPE.validate_python(answer)
        choice, usage = found.choices[0], found.usage or _Usage()
        entries = [] if choice.logprobs is None else choice.logprobs.entries()
    except ValidationError as error:
        raise _wrong_shape(first_problem(error)) from error
    except ValueError as error:
        raise _wrong_shape(f"choices.0.logprobs: {error}") from error
    tokens: tuple[Name, ...] | None = choice.token_ids
    if tokens is None and choice.logprobs is not None:
        tokens = tuple(name for name, _, _ in entries)
    return Answer(
        text=choice.text,
        finish_reason=str(choice.finish_reason),
        tokens=tokens,
        direct=choice.token_ids is not None,
        logprobs=tuple((logprob, top) for _, logprob, top in entries) or None,
        count=len(tokens) if usage.completion_tokens is None and tokens else usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        prompt_ids=found.prompt_token_ids if choice.prompt_token_ids is None else choice.prompt_token_ids,
    )


def _wrong_shape(what: str) -> EndpointFailed:
    return EndpointFailed(
        f"the server's answer does not have the shape of a completion: {what}",
        hint="give the URL of an OpenAI-compatible server's completions, not of its chat",
    )


def _numbered(name: str) -> Name:
    """vLLM's "token_id:123" as the number."""
    number = name.removeprefix(_ID)
    return int(number) if number != name and number.isdigit() else name


def _alternatives(top: dict[Name, float], spelling: Spelling | None) -> dict[int, float]:
    """Those whose token is known for sure."""
    found: dict[int, float] = {}
    for name, logprob in top.items():
        if isinstance(name, int):
            found[name] = logprob
        elif spelling is not None:
            try:
                tokens, whole = spelling.tokens([name])
            except IncompatibleTokenizer:
                continue
            if whole:
                found[tokens[0]] = logprob
    return found
