"""A conversation as token ids, through the model's own chat template.

Content never becomes control tokens: where a text of a user, a tool or a call has the text of one, such as <|im_end|>,
it is written in ordinary tokens. A tool result may hold anything, and a template is tokenized with its control tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.base.errors import InvalidPrompt
from headstart.engine.prompts import encode_after, too_long, within
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.turns import Assistant, Call, Conversation, System, Tool, ToolResult, Turn, User

RESERVED = frozenset(
    {
        "chat_template", "conversation", "messages", "tokenize", "tools", "xml_tools", "documents",
        "add_generation_prompt", "continue_final_message", "padding", "truncation", "max_length", "return_tensors",
        "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
    }
)  # fmt: skip
"""Names that are not variables of a template."""
_OFF = ("none", "minimal")
_SWITCHES = ("enable_thinking", "thinking")


class NoTemplate(InvalidPrompt):
    """The model has no chat template."""


class TemplateRefused(InvalidPrompt):
    """The chat template does not take the conversation."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt.

    thinking: whether the reply begins within the reasoning, since the template has opened it.
    warnings: what of the request the template has no place for.
    """

    tokens: tuple[int, ...]
    thinking: bool = False
    warnings: tuple[str, ...] = ()


def render(tokenizer: Any, conversation: Conversation, form: ChatForm, *, context: int) -> Rendered:
    """The prompt of a conversation.

    context: tokens that there may be, about; of a conversation with far more only the beginning is tokenized.

    Raises:
        NoTemplate, TemplateRefused: see there.
        ContextExceeded: it has far more tokens than the context holds.
    """
    if not getattr(tokenizer, "chat_template", None):
        hint = "send the text to /v1/completions, in the form that the model was trained on"
        raise NoTemplate("this model has no chat template", hint=hint)
    plain = _Plain(form.controls)
    messages = [_message(turn, conversation, form, plain) for turn in _arranged(conversation.turns, form)]
    variables, warnings = _variables(conversation, form)
    if conversation.tools:
        variables[form.tools_as] = [_tool(tool, plain) for tool in conversation.tools]
    try:
        text = str(
            tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=conversation.begun and not conversation.continued,
                continue_final_message=conversation.continued, **variables,
            )
        )  # fmt: skip
    except Exception as error:  # a template is a program: it raises what it likes
        hint = "many templates want user and assistant in turn, and some know no system message"
        words = f"the model's chat template refuses the conversation: {_first_line(error)}"
        raise TemplateRefused(words, hint=hint) from error
    opened = form.think is not None and text.rstrip().endswith(form.think.open.rstrip())
    return Rendered(plain.tokens(tokenizer, text, context), opened, tuple(warnings))


def _variables(conversation: Conversation, form: ChatForm) -> tuple[dict[str, Any], list[str]]:
    """What the template is given beside the conversation."""
    asked, found = conversation.thinking, dict(conversation.variables)
    on = asked.on if asked.on is not None or asked.effort is None else asked.effort not in _OFF
    known = [name for name in _SWITCHES if name in form.variables]
    if on is not None:
        for name in known:
            found.setdefault(name, on)
    if asked.effort is not None and "reasoning_effort" in form.variables:
        found.setdefault("reasoning_effort", "low" if asked.effort in _OFF else asked.effort)
    elif asked.effort is not None and not known:
        return found, ["reasoning_effort does nothing here: the model's chat template has no place for it"]
    return found, []


def _arranged(turns: Sequence[Turn], form: ChatForm) -> list[Turn]:
    """The turns as templates take them: one system message at the beginning; a later one, where the template does not
    write it in its place, within a neighbour: never between a call and its result, and never as a turn of its own,
    since templates drop the reasoning before the last turn of the user."""
    leading = 0
    while leading < len(turns) and isinstance(turns[leading], System):
        leading += 1
    head = [turn for turn in turns[:leading] if isinstance(turn, System)]
    found: list[Turn] = []
    if head:
        role = "developer" if all(turn.role == "developer" for turn in head) else "system"
        found.append(System("\n\n".join(turn.text for turn in head), "developer" if role == "developer" else "system"))
    waiting = ""
    for turn in turns[leading:]:
        if isinstance(turn, System) and not form.inline_system:
            last = found[-1] if found else None
            if isinstance(last, User | ToolResult):
                found[-1] = replace(last, text=f"{last.text}\n\n{turn.text}")
            else:
                waiting = f"{waiting}{turn.text}\n\n"
            continue
        if waiting and isinstance(turn, User | ToolResult):
            turn, waiting = replace(turn, text=waiting + turn.text), ""
        found.append(turn)
    if waiting:
        found.append(User(waiting.removesuffix("\n\n")))
    return found


def _message(turn: Turn, conversation: Conversation, form: ChatForm, plain: _Plain) -> dict[str, Any]:
    """A turn as templates take it."""
    match turn:
        case System(text, role):
            return {"role": role if form.developer else "system", "content": text}
        case User(text, name):
            return {"role": "user", "content": plain.text(text)} | ({"name": name} if name else {})
        case ToolResult(text, call_id):
            if not form.tool_role:
                return {"role": "user", "content": plain.text(text)}
            name = conversation.named(turn)
            return {
                "role": "tool", "content": plain.text(text), "tool_call_id": _call_id(call_id, form),
                **({"name": name} if name else {}),
            }  # fmt: skip
        case Assistant():
            return _assistant(turn, form, plain)


def _assistant(turn: Assistant, form: ChatForm, plain: _Plain) -> dict[str, Any]:
    content = plain.text(turn.text)
    found: dict[str, Any] = {"role": "assistant", "content": content}
    if turn.name:
        found["name"] = turn.name
    if turn.reasoning:
        found["reasoning_content"] = plain.text(turn.reasoning)
        if form.format is not None and form.format.body == "channels":
            found["thinking"] = found["reasoning_content"]
    if turn.calls and form.writes_calls:
        found["tool_calls"] = [
            {
                "id": _call_id(call.id, form), "type": "function",
                "function": {"name": plain.text(call.name), "arguments": _arguments(call, form, plain)},
            }
            for call in turn.calls
        ]  # fmt: skip
    elif turn.calls and form.format is not None:
        calls = [Call(plain.text(each.name), plain.text(each.arguments), each.id) for each in turn.calls]
        written = form.format.written(calls, form.separators)
        found["content"] = f"{content}\n{written}" if content else written
    return found


def _arguments(call: Call, form: ChatForm, plain: _Plain) -> Any:
    """The arguments as the template takes them. Broken ones of the past must not end the conversation."""
    if form.arguments == "string":
        return plain.text(call.arguments)
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        found = None
    return plain.values(found if isinstance(found, dict) else {"arguments": call.arguments})


def _call_id(given: str, form: ChatForm) -> str:
    length = 0 if form.format is None else form.format.id_length
    if not length or (len(given) == length and given.isalnum()):
        return given
    return hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:length]


def _tool(tool: Tool, plain: _Plain) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": plain.values(function)}


@dataclass(slots=True)
class _Plain:
    """Texts of control tokens in content, in whose place a word is rendered that nobody can know beforehand."""

    controls: frozenset[str]
    found: dict[str, str] = field(default_factory=dict)
    """By word: the text that it stands for."""
    _words: dict[str, str] = field(default_factory=dict)
    _pattern: re.Pattern[str] | None = None

    def text(self, text: str) -> str:
        """A text of content, to be rendered."""
        if not self.controls:
            return text
        if self._pattern is None:
            longest = sorted(self.controls, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest)))
        return self._pattern.sub(lambda match: self._word(match[0]), text)

    def values(self, value: Any) -> Any:
        """The same for every text within a value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.values(each) for key, each in value.items()}
        return [self.values(each) for each in value] if isinstance(value, list | tuple) else value

    def _word(self, control: str) -> str:
        if control not in self._words:
            word = f"z{secrets.token_hex(12)}z"
            self._words[control], self.found[word] = word, control
        return self._words[control]

    def tokens(self, tokenizer: Any, text: str, context: int) -> tuple[int, ...]:
        """The token ids of what was rendered. The template has written the special tokens itself.

        Raises:
            ContextExceeded: there are far more than the context holds.
        """
        if not self.found:
            return tuple(within(lambda part: _ids(tokenizer, part), text, context))
        ids: list[int] = []
        written: dict[str, tuple[int, ...]] = {}
        for piece in re.split("(" + "|".join(self.found) + ")", text):
            if piece in self.found:
                if piece not in written:
                    written[piece] = in_ordinary_tokens(tokenizer, self.found[piece])
                ids += written[piece]
            elif piece:
                before = tuple(ids[-16:])
                following: Callable[[str], Sequence[int]] = (
                    (lambda part, before=before: encode_after(tokenizer, before, part))  # type: ignore[misc]
                    if ids
                    else (lambda part: _ids(tokenizer, part))
                )
                ids += within(following, piece, context)
            if len(ids) > 2 * context:
                raise too_long(f"more than {2 * context}", context)
        return tuple(ids)


def in_ordinary_tokens(tokenizer: Any, text: str) -> tuple[int, ...]:
    """The token ids of a text that the tokenizer reads as a control token: of its first character, then of the rest."""
    first = encode_after(tokenizer, (), text[:1])
    return (*first, *encode_after(tokenizer, first, text[1:]))


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _first_line(error: Exception) -> str:
    """What the template says, on one line; errors of the template's machinery are named by type only."""
    if type(error).__name__ == "TemplateError":  # jinja2's: raise_exception of the template itself
        return json.dumps(str(error).partition("\n")[0][:200], ensure_ascii=False)
    return type(error).__name__
