"""Finding out what a model's chat template does, by rendering conversations through it; names of models decide nothing.

A conversation with a call goes through the template, and the format whose call comes out is the model's. Templates that
leave calls of the past out are known by the signs that a format names. A checkpoint that declares the form of its
replies (`response_template`), and a user who names one, know better.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from headstart.base.errors import InvalidFile
from headstart.serve.conversation.formats import FORMATS, THINKS, Format, Separators, Think, format_named
from headstart.serve.conversation.response_template import Declared, declared
from headstart.serve.conversation.turns import Call

_NAME, _ID = "probe_one", "call00001"
_ARGUMENTS: dict[str, Any] = {"alpha": "first value", "beta": 41}
_SCHEMA = {
    "type": "object",
    "properties": {"alpha": {"type": "string", "description": "A."}, "beta": {"type": "integer", "description": "B."}},
    "required": ["alpha", "beta"],
}
_TOOL = {"type": "function", "function": {"name": _NAME, "description": "Probes.", "parameters": _SCHEMA}}
_JOINED = re.compile(r'"alpha"(:\s*)"first value"(,\s*)"beta"')


@dataclass(frozen=True)
class Marks:
    """The texts that a tokenizer reads as one token wherever they are.

    ids: by text.
    special: those of them that are left out of texts.
    """

    ids: Mapping[str, int] = field(default_factory=dict)
    special: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokenizer: Any) -> Marks:
        """Those of a tokenizer."""
        found = getattr(tokenizer, "added_tokens_decoder", None) or {}
        ids = {str(token.content): int(number) for number, token in found.items() if str(token.content)}
        return cls(ids, frozenset(str(token.content) for token in found.values() if token.special))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest = sorted(self.ids, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest)) + ")")

    def items(self, text: str) -> str:
        """A text as items of a rule of a grammar. llguidance takes such a token for none of its characters, whether it
        is special or not, so it is named by its id."""
        pieces = self._pattern.split(text) if self.ids else [text]
        named = (f"<[{self.ids[each]}]>" if each in self.ids else json.dumps(each, ensure_ascii=False)
                 for each in pieces if each)  # fmt: skip
        return " ".join(named)

    def within(self, text: str) -> bool:
        """Whether a text has one of them."""
        return bool(self.ids) and self._pattern.search(text) is not None


@dataclass(frozen=True, slots=True)
class ChatForm:
    """What a chat template does. Without a template, the defaults.

    format: how the model writes calls; None where it cannot be told, for the reason in `why`.
    writes_calls: whether the template writes calls of the past; else they are put into the text of their turn.
    arguments: whether it takes the arguments of a call as an object or as JSON text.
    separators: of the JSON that it writes.
    think: the marks of reasoning, if the model may reason.
    variables: the names that it reads and does not set.
    tools_as: the one of them that holds the tools.
    inline_system: whether a system message in the middle is written there, as a turn of its own.
    developer: whether it knows the role "developer".
    tool_role: whether it knows the role "tool".
    controls: texts that the tokenizer reads as control tokens, and that no content may therefore have as they are.
    marks: all texts that it reads as one token.
    """

    format: Format | None = None
    why: str = "the model has no chat template"
    writes_calls: bool = False
    arguments: Literal["object", "string"] = "object"
    separators: Separators = Separators()
    think: Think | None = None
    variables: frozenset[str] = frozenset()
    tools_as: str = "tools"
    inline_system: bool = False
    developer: bool = False
    tool_role: bool = False
    controls: frozenset[str] = frozenset()
    marks: Marks = Marks()


_KEPT = 32
_known_forms: dict[str, ChatForm] = {}


def chat_form(tokenizer: Any, name: str = "") -> ChatForm:
    """What the chat template of a tokenizer does. It takes a few renderings, once for a template.

    name: of the format in which the model writes calls; "" to find it out.

    Raises:
        InvalidOption: there is no format of this name.
    """
    source = template_source(tokenizer)
    given = format_named(name) if name else None
    if source is None:
        return ChatForm()
    marks = Marks.of(tokenizer)
    shipped = getattr(tokenizer, "response_template", None)
    said = [str(tokenizer.chat_template), shipped, name, str(getattr(tokenizer, "special_tokens_map", "")),
            sorted(marks.ids.items()), sorted(marks.special)]  # fmt: skip
    key = hashlib.sha256(json.dumps(said, default=str).encode("utf-8", "replace")).hexdigest()
    if key not in _known_forms:
        if len(_known_forms) >= _KEPT:
            _known_forms.clear()
        _known_forms[key] = _chat_form(tokenizer, source, marks, given, shipped)
    return _known_forms[key]


def _chat_form(tokenizer: Any, source: str, known: Marks, given: Format | None, shipped: Any) -> ChatForm:
    added = {text: text in known.special for text in known.ids}
    variables = _variables(source)
    tools_as = "tools" if "tools" in variables or "xml_tools" not in variables else "xml_tools"
    probe = _Probe(tokenizer, tools_as)
    found, trouble = Declared(), ""
    if given is not None:
        found = Declared(given)
    elif shipped is not None:
        try:
            found = declared(shipped)
        except InvalidFile as error:
            trouble = f"{error.message}; {error.hint}"
    form, writes, arguments, separators, why = _format(probe, added, _as_in_the_table(found.format))
    if trouble:
        form, why = None, trouble
    think = next((each for each in THINKS if each.close in source or _known(each, added)), None)
    if found.think is not None:
        think = next((each for each in THINKS if _same(each, found.think)), found.think)
    if form is not None and form.body == "channels":
        think = None
    marks = [*(() if form is None else form.marks), *((think.open, think.close) if think is not None else ())]
    return ChatForm(
        form, why, writes, arguments, separators, think, variables, tools_as,
        inline_system=probe.inline_system(), developer="developer" in source, tool_role=probe.tool_role(),
        controls=frozenset(
            text for text, special in added.items()
            if not any(map(str.isspace, text)) and (special or text in source or any(text in mark for mark in marks))
        ),
        marks=known,
    )  # fmt: skip


def _as_in_the_table(form: Format | None) -> Format | None:
    """A format of which only the marks are known, with the white space and all else that the table has for it."""
    if form is None:
        return None
    return next((each for each in FORMATS if each.body == form.body and _expected(each) == _expected(form)), form)


def _same(one: Think, other: Think) -> bool:
    return (one.open.strip(), one.close.strip()) == (other.open.strip(), other.close.strip())


def template_source(tokenizer: Any) -> str | None:
    """The text of the chat template; of several, of the one for tools. None where there is none."""
    found = getattr(tokenizer, "chat_template", None)
    if isinstance(found, Mapping):
        found = found.get("tool_use") or found.get("default") or next(iter(found.values()), None)
    return found if isinstance(found, str) and found else None


def _known(think: Think, added: Mapping[str, bool]) -> bool:
    return think.close in added and think.open.strip() in added


def _variables(source: str) -> frozenset[str]:
    from jinja2 import Environment, TemplateError, meta

    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source)
        return frozenset(meta.find_undeclared_variables(parsed))
    except TemplateError:  # it has a tag of transformers' own
        return frozenset(re.findall(r"\b(?:enable_thinking|thinking|reasoning_effort|tools|xml_tools)\b", source))


class _Probe:
    """Renders through one template; what it refuses is None."""

    def __init__(self, tokenizer: Any, tools_as: str) -> None:
        self._tokenizer, self._tools_as = tokenizer, tools_as

    def render(self, messages: Sequence[Mapping[str, Any]], *, tools: bool = False, begin: bool = False) -> str | None:
        more = {self._tools_as: [_TOOL]} if tools else {}
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages], tokenize=False, add_generation_prompt=begin, **more
                )
            )
        except Exception:  # a template is a program: it raises what it likes
            return None

    def inline_system(self) -> bool:
        turns = [("user", "TURN-ONE"), ("assistant", "TURN-TWO"), ("system", "TURN-THREE"), ("user", "TURN-FOUR")]
        text = self.render([{"role": role, "content": content} for role, content in turns]) or ""
        places = [text.find(content) for _, content in turns]
        return -1 not in places and places == sorted(places)

    def tool_role(self) -> bool:
        text = self.render([*_called(_ARGUMENTS), _RESULT]) or self.render([*_called(json.dumps(_ARGUMENTS)), _RESULT])
        return text is not None and str(_RESULT["content"]) in text


_USER = {"role": "user", "content": "Probe."}
_RESULT = {"role": "tool", "content": "TURN-RESULT", "tool_call_id": _ID, "name": _NAME}


def _called(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": _NAME, "arguments": arguments}
    call = {"id": _ID, "type": "function", "function": function}
    return [_USER, {"role": "assistant", "content": "", "tool_calls": [call]}]


_Found = tuple[Format | None, bool, Literal["object", "string"], Separators, str]


def _format(probe: _Probe, added: Mapping[str, bool], given: Format | None) -> _Found:
    """given: the format, where it is known; the renderings then only say how the template writes calls of the past."""
    known = FORMATS if given is None else (given,)
    prompt = probe.render([_USER], tools=True, begin=True)
    if prompt is None or _NAME not in prompt:
        why = "its chat template does not show tools to the model"
        return None, False, "object", Separators(), why
    kinds: tuple[tuple[Literal["object", "string"], Any], ...] = (
        ("object", _ARGUMENTS), ("string", json.dumps(_ARGUMENTS)),
    )  # fmt: skip
    for kind, arguments in kinds:
        for messages in (_called(arguments), [*_called(arguments), _RESULT]):
            text = probe.render(messages, tools=True)
            fits = [] if text is None else [each for each in known if _fits(each, text, prompt)]
            if text is not None and fits:
                joined = _JOINED.search(text)
                separators = Separators() if joined is None else Separators(joined[2], joined[1])
                return max(fits, key=lambda each: len(_expected(each))), True, kind, separators, ""
    if given is not None:
        return given, False, "object", Separators(), ""
    around = prompt + " ".join(added)
    signed = [each for each in FORMATS if each.signs and all(sign in around for sign in each.signs)]
    if signed:
        return max(signed, key=lambda each: sum(map(len, each.signs))), False, "object", Separators(), ""
    return None, False, "object", Separators(), "the form in which the model writes calls is not known here"


def _expected(form: Format) -> str:
    return _squeezed(form.written([Call(_NAME, json.dumps(_ARGUMENTS), _ID)]))


def _fits(form: Format, text: str, prompt: str) -> bool:
    """Whether a rendered conversation has the probe's call in this form."""
    if form.body == "channels":
        return f"to=functions.{_NAME}" in text and "<|channel|>commentary" in text
    found, expected = _squeezed(text), _expected(form)
    if form.at_start:
        expected = _squeezed(prompt)[-12:] + expected
    return expected in found


def _squeezed(text: str) -> str:
    return "".join(text.split())
