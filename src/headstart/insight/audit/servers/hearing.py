"""What a server's answer says: its text, its tokens in whichever form they come, its log-probabilities.

Forms known: `token_ids` and `prompt_token_ids` of a choice (vLLM, SGLang); `logprobs` with `tokens`, `token_logprobs`,
`top_logprobs` (OpenAI, vLLM, SGLang), in which vLLM may write tokens as "token_id:123"; `logprobs` with `content`, a
list of objects that have an `id` (llama.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headstart.errors import EndpointFailed, IncompatibleTokenizer
from headstart.insight.audit.servers.spelling import Spelling
from headstart.types import TokenLogprob

_ID = "token_id:"


@dataclass(frozen=True, slots=True)
class Heard:
    """One choice of one answer.

    ids: its tokens, if they are told as numbers; strings: as text. logprobs: of each token, and of alternatives as
    (id or string, log-probability). count, prompt_tokens: as `usage` has them.
    """

    text: str
    finish_reason: str
    ids: tuple[int, ...] | None
    direct: bool
    strings: tuple[str, ...] | None
    logprobs: tuple[tuple[float, tuple[tuple[int | str, float], ...]], ...] | None
    count: int | None
    prompt_tokens: int | None
    prompt_ids: tuple[int, ...] | None

    def logprobs_of(self, tokens: Sequence[int], spelling: Spelling | None) -> tuple[TokenLogprob, ...] | None:
        """The log-probabilities of these tokens (an end that the server left out has none)."""
        if self.logprobs is None:
            return None
        return tuple(
            TokenLogprob(token, logprob, _alternatives(top, spelling))
            for token, (logprob, top) in zip(tokens, self.logprobs, strict=False)
        )


def tokens_told(heard: Heard) -> str:
    """In which form: "ids", "ids in the log-probabilities", "token strings" or "text"."""
    if heard.ids is not None:
        return "ids" if heard.direct else "ids in the log-probabilities"
    return "token strings" if heard.strings is not None else "text"


def hear(answer: dict[str, Any]) -> Heard:
    """Read an answer with one choice.

    Raises:
        EndpointFailed: it has not the shape of a completion.
    """
    try:
        return _hear(answer)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EndpointFailed(
            f"the server's answer has not the shape of a completion ({type(error).__name__}: {error})",
            hint="give the URL of an OpenAI-compatible server's completions, not of its chat",
        ) from error


def _hear(answer: dict[str, Any]) -> Heard:
    choice = answer["choices"][0]
    usage = answer.get("usage") or {}
    told = choice.get("logprobs")
    entries = None if told is None else _entries(told)
    direct = choice.get("token_ids")
    ids = _numbers(direct)
    strings: tuple[str, ...] | None = None
    if ids is None and entries is not None:
        names = [name for name, _, _ in entries]
        numbers = [name if isinstance(name, int) else _numbered(name) for name in names]
        if all(number is not None for number in numbers):
            ids = tuple(number for number in numbers if number is not None)
        else:
            strings = tuple(str(name) for name in names)
    prompt_ids = choice.get("prompt_token_ids", answer.get("prompt_token_ids"))
    return Heard(
        text=str(choice["text"]),
        finish_reason=_finish(choice["finish_reason"]),
        ids=ids,
        direct=direct is not None,
        strings=strings,
        logprobs=None if not entries else tuple((logprob, top) for _, logprob, top in entries),
        count=usage.get("completion_tokens", None if ids is None else len(ids)),
        prompt_tokens=usage.get("prompt_tokens"),
        prompt_ids=_numbers(prompt_ids),
    )


_Entry = tuple[int | str, float, tuple[tuple[int | str, float], ...]]


def _entries(told: dict[str, Any]) -> list[_Entry]:
    """(token, log-probability, alternatives) of each token; an id where there is one, else the string."""
    if "content" in told:
        return [
            (_named(entry), float(entry["logprob"]), tuple((_named(a), float(a["logprob"])) for a in _tops(entry)))
            for entry in told["content"]
        ]
    names = told["tokens"]
    logprobs = told.get("token_logprobs") or [math.nan] * len(names)
    tops = told.get("top_logprobs") or [None] * len(names)
    return [
        (str(name), math.nan if logprob is None else float(logprob), tuple((top or {}).items()))
        for name, logprob, top in zip(names, logprobs, tops, strict=True)
    ]


def _tops(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return entry.get("top_logprobs") or []


def _named(entry: dict[str, Any]) -> int | str:
    return int(entry["id"]) if isinstance(entry.get("id"), int) else str(entry["token"])


def _numbered(name: int | str) -> int | None:
    if isinstance(name, str) and name.startswith(_ID) and name[len(_ID) :].isdigit():
        return int(name[len(_ID) :])
    return None


def _numbers(ids: Any) -> tuple[int, ...] | None:
    return None if ids is None else tuple(int(token) for token in ids)


def _finish(reason: Any) -> str:
    return {"stop": "stop", "length": "length"}.get(str(reason), str(reason))


def _alternatives(top: Sequence[tuple[int | str, float]], spelling: Spelling | None) -> dict[int, float]:
    """Those whose token is known for sure."""
    found: dict[int, float] = {}
    for name, logprob in top:
        if isinstance(name, int):
            found[name] = logprob
        number = _numbered(name)
        if number is not None:
            found[number] = logprob
        if not isinstance(name, str) or number is not None or spelling is None:
            continue
        try:
            tokens, whole = spelling.tokens([name])
        except IncompatibleTokenizer:
            continue
        if whole:
            found[tokens[0]] = logprob
    return found
