"""Chat templates rendered by jinja2 alone, as transformers renders them, whose import takes longer than a model's load.

What templates may use is what transformers documents for those who write them ("Writing a chat template"), and what
`transformers.utils.chat_template_utils` gives them. A template or values for which that is more than is done here are
left to transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from importlib import metadata
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_LEAST = 3, 1, 6
"""Of jinja2: older sandboxes let templates out, and transformers refuses them."""
_AS_HERE = 5, 23
"""Of transformers: 5.19 writes some conversations otherwise, those with reasoning among them."""
_TRACKED = re.compile(r"\{%[-+]?\s*generation\b")
"""Marks what an assistant said, for training."""
_OTHERWISE = frozenset(("documents", "continue_final_message", "messages", "tools"))
_REASONING = "reasoning_content", "thinking", "reasoning"
"""Names of what was thought before an answer, the first of which counts."""


def rendered(
    template: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, given: Mapping[str, Any]
) -> str | None:
    """A conversation as the template writes it; None where transformers must do it.

    given: further values by name.

    Raises:
        Exception: a template is a program, which raises what it likes.
    """
    known = _is_plain([*messages]) and _is_plain(tools) and _is_plain(dict(given))
    described = tools is None or all(type(tool) is dict for tool in tools)
    if not (known and described and _OTHERWISE.isdisjoint(name for name in given if given[name])):
        return None
    if _TRACKED.search(template) or _numbers(jinja2.__version__) < _LEAST or _of_transformers() < _AS_HERE:
        return None
    values = {"add_generation_prompt": False, "documents": None, **given}
    values.pop("continue_final_message", None)
    return _compiled(template).render(**{**values, "messages": [*map(_named, messages)], "tools": tools})


def _is_plain(value: Any) -> bool:
    """Whether nothing in it has methods beyond those that the sandbox knows."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return value is None or type(value) in (str, int, float, bool)


def _named(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose reasoning has all the names that templates ask for."""
    thought = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if thought is None:
        return dict(message)
    return {"thinking": thought, **message, "reasoning_content": thought}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


@cache
def _of_transformers() -> tuple[int, ...]:
    return _numbers(metadata.version("transformers"))


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    within = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    within.filters["tojson"] = _to_json
    within.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),  # the user's own clock
        "dict": _Dicts(),
        "namespace": _Variables,
    }
    return within.from_string(template)


def _to_json(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Without the escapes of HTML that jinja2's own filter writes."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


class _Dicts:
    """`dict` without what a class could be used for."""

    def __call__(self, *pairs: Any, **named: Any) -> dict[Any, Any]:
        return dict(*pairs, **named)

    def fromkeys(self, *keys: Any) -> dict[Any, Any]:
        return dict.fromkeys(*keys)


class _Variables(Namespace):
    """jinja2's namespace, in which no name begins with an underscore."""

    def __init__(*given: Any, **named: Any) -> None:
        self, *pairs = given  # so that "self" can be a name too
        found = dict(*pairs, **named)
        for name in found:
            _check(name)
        Namespace.__init__(self, found)

    def __setitem__(self, name: str, value: Any) -> None:
        _check(name)
        super().__setitem__(name, value)


def _check(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template keeps no variable of the name {name!r}")
