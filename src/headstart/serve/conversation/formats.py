"""The forms in which models write calls of tools, as one table; and the marks between which they think.

A `Format` says what is around a call and how its arguments are spelled. Reading a reply (`reply`), holding a model to
the form (`lark`), finding out which form a chat template has (`detect`) and writing calls of the past all follow from
it, so that they cannot disagree. The forms are those of the models' own chat templates; white space between the marks
may differ from template to template, and is never asked for when a reply is read.
"""
# ruff: noqa: RUF001 - DeepSeek's marks have wide bars

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headstart.base.errors import InvalidOption
from headstart.serve.conversation.turns import Call

Body = Literal["json", "text", "xml", "python", "object", "channels"]
_MARK = re.compile(r"<[^>]*>|\[[A-Z_]+\]")
_SLOT = re.compile(r"\{(?:id|index)\}")


@dataclass(frozen=True, slots=True)
class Think:
    """The marks around a model's reasoning, at the beginning of a reply."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class Separators:
    """What stands between the members of JSON objects and lists, and behind a key."""

    item: str = ", "
    key: str = ": "


@dataclass(frozen=True, slots=True)
class Format:
    """How calls are written: begin, open CALL close, between, open CALL close, ..., end.

    body: what a CALL is.
        "json": an object with the members of `keys`.
        "text": NAME after_name ARGUMENTS, which are JSON.
        "xml": NAME after_name, then for each argument key[0] KEY key[1] VALUE value_close; strings stand there as they
            are, other values as JSON.
        "python": NAME(KEY=VALUE, ...), values as Python writes them.
        "object": NAME{KEY:VALUE, ...}, keys without quotes, strings between two `quote`.
        "channels": gpt-oss's messages, each with a channel and a recipient; the rest of the table does not apply.
    keys: of "json": what an object's members mean ("name", "arguments", "id", "index"), and what they are called, in
        order.
    after_name: may have the slots {id} and {index} (of the call, from 0).
    typed: of "xml": whether a key is followed by true"> or false">, for strings and other values.
    also: marks that some replies have in place of `begin` and `open`.
    at_start: whether a call has no mark, and so counts as one only at the beginning of a reply.
    parallel: whether one reply may have several calls.
    id_length: letters and digits of a call's id, where templates refuse other ids; 0 takes any.
    signs: where a template does not write calls of the past: what its prompts or its vocabulary have instead, all of
        them.
    """

    name: str
    body: Body
    begin: str = ""
    end: str = ""
    open: str = ""
    close: str = ""
    between: str = ""
    keys: tuple[tuple[str, str], ...] = (("name", "name"), ("arguments", "arguments"))
    after_name: str = ""
    key: tuple[str, str] = ("", "")
    value_close: str = ""
    typed: bool = False
    quote: str = ""
    also: tuple[str, ...] = ()
    at_start: bool = False
    parallel: bool = True
    id_length: int = 0
    signs: tuple[str, ...] = ()

    @property
    def trigger(self) -> str:
        """The mark with which calls begin; "" where they have none."""
        found = _MARK.match(self.begin or self.open)
        return "" if found is None or self.at_start else found[0]

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that are part of the form: a special token within them must stay in the text of a reply."""
        if self.body == "channels":
            return CHANNEL_MARKS
        found = (
            self.begin, self.end, self.open, self.close, self.between, self.after_name, *self.key, self.value_close,
            self.quote, *self.also,
        )  # fmt: skip
        return tuple(mark for mark in found if mark)

    def written(self, calls: Sequence[Call], separators: Separators | None = None) -> str:
        """Calls as a model writes them. Arguments that are no JSON object are written as text where JSON is allowed,
        else left out."""
        join = separators or Separators()
        texts = [self.open + self._call(index, call, join) + self.close for index, call in enumerate(calls)]
        return self.begin + self.between.join(texts) + self.end

    def _call(self, index: int, call: Call, join: Separators) -> str:
        found = _object(call.arguments)
        match self.body:
            case "json":
                members = {
                    "name": _dumps(call.name, join),
                    "arguments": call.arguments if found is None else _dumps(found, join),
                    "id": _dumps(call.id, join),
                    "index": _dumps(str(index), join),
                }
                pairs = (f"{_dumps(key, join)}{join.key}{members[meaning]}" for meaning, key in self.keys)
                return "{" + join.item.join(pairs) + "}"
            case "text":
                return call.name + self._after(index, call) + (call.arguments if found is None else _dumps(found, join))
            case "channels":
                return call.name + self.after_name + (call.arguments if found is None else _dumps(found, join))
            case "xml":
                return call.name + self.after_name + "".join(self._argument(*each) for each in (found or {}).items())
            case "python":
                return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in (found or {}).items())})"
            case "object":
                return call.name + relaxed(found or {}, self.quote)

    def _after(self, index: int, call: Call) -> str:
        return self.after_name.replace("{id}", call.id).replace("{index}", str(index))

    def _argument(self, key: str, value: Any) -> str:
        text = value if isinstance(value, str) else _dumps(value, Separators())
        kind = ("true" if isinstance(value, str) else "false") + '">' if self.typed else ""
        return self.key[0] + key + self.key[1] + kind + text + self.value_close


def literals(text: str) -> list[str]:
    """A text without its slots."""
    return _SLOT.split(text)


def relaxed(value: Any, quote: str) -> str:
    """A value in the spelling of "object": keys without quotes, strings between two quotes of this kind."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{relaxed(each, quote)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(relaxed(each, quote) for each in value) + "]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else json.dumps(value)


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _dumps(value: Any, join: Separators) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(join.item, join.key))


CHANNEL_MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")

_LIST: dict[str, Any] = {"body": "json", "between": ", "}
_WITH_ID = (("name", "name"), ("arguments", "arguments"), ("id", "id"))
_INVOKE: dict[str, Any] = {
    "body": "xml", "open": '<invoke name="', "after_name": '">\n', "key": ('<parameter name="', '">'),
    "value_close": "</parameter>\n", "close": "</invoke>\n",
}  # fmt: skip
_DSML: dict[str, Any] = {
    "body": "xml", "open": '<｜DSML｜invoke name="', "after_name": '">\n', "typed": True,
    "key": ('<｜DSML｜parameter name="', '" string="'), "value_close": "</｜DSML｜parameter>\n",
    "close": "</｜DSML｜invoke>\n",
}  # fmt: skip
_DEEPSEEK: dict[str, Any] = {
    "body": "text", "begin": "<｜tool▁calls▁begin｜>", "end": "<｜tool▁calls▁end｜>",
    "between": "\n",
}  # fmt: skip

FORMATS: tuple[Format, ...] = (
    Format("hermes", "json", open="<tool_call>\n", close="\n</tool_call>", between="\n",
           signs=("<tool_call>", '"arguments"')),
    Format("qwen-xml", "xml", open="<tool_call>\n<function=", after_name=">\n", key=("<parameter=", ">\n"),
           value_close="\n</parameter>\n", close="</function>\n</tool_call>", between="\n", also=("<function=",)),
    Format("llama-json", "json", keys=(("name", "name"), ("arguments", "parameters")), also=("<|python_tag|>",),
           between="; ", at_start=True, parallel=False),
    Format("pythonic", "python", begin="[", end="]", between=", ", at_start=True,
           signs=("[func_name1(params_name1=params_value1",)),
    Format("lfm2", "python", begin="<|tool_call_start|>[", end="]<|tool_call_end|>", between=", ",
           signs=("<|tool_list_start|>", "<|tool_call_start|>")),
    Format("mistral-list", **_LIST, begin="[TOOL_CALLS][", end="]", keys=_WITH_ID, id_length=9),
    Format("mistral-args", "text", open="[TOOL_CALLS]", after_name="[ARGS]", id_length=9),
    Format("mistral-ids", "text", open="[TOOL_CALLS]", after_name="[CALL_ID]{id}[ARGS]", id_length=9),
    Format("harmony", "channels", open="<|channel|>commentary to=functions.",
           after_name=" <|constrain|>json<|message|>", close="<|call|>", parallel=False,
           signs=("<|channel|>", "namespace functions")),
    Format("gemma4", "object", open="<|tool_call>call:", close="<tool_call|>", quote='<|"|>'),
    Format("functiongemma", "object", open="<start_function_call>call:", close="<end_function_call>", quote="<escape>"),
    Format("granite3", **_LIST, begin="<|tool_call|>[", end="]", signs=("<|tool_call|>", "JSON list of tools")),
    Format("phi4", **_LIST, begin="<|tool_call|>[", end="]<|/tool_call|>", signs=("<|tool|>", "<|tool_call|>")),
    Format("glm", "xml", open="<tool_call>", after_name="\n", key=("<arg_key>", "</arg_key>\n<arg_value>"),
           value_close="</arg_value>\n", close="</tool_call>", between="\n"),
    Format("deepseek-v3", **_DEEPSEEK, open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
           after_name="\n```json\n", close="\n```<｜tool▁call▁end｜>"),
    Format("deepseek-v3.1", **(_DEEPSEEK | {"between": ""}), open="<｜tool▁call▁begin｜>",
           after_name="<｜tool▁sep｜>", close="<｜tool▁call▁end｜>"),
    Format("deepseek-dsml", **_DSML, begin="<｜DSML｜function_calls>\n", end="</｜DSML｜function_calls>"),
    Format("deepseek-v4", **_DSML, begin="<｜DSML｜tool_calls>\n", end="</｜DSML｜tool_calls>"),
    Format("minimax", **_INVOKE, begin="<minimax:tool_call>\n", end="</minimax:tool_call>"),
    Format("kimi", "text", begin="<|tool_calls_section_begin|>", end="<|tool_calls_section_end|>",
           open="<|tool_call_begin|>functions.", after_name=":{index}<|tool_call_argument_begin|>",
           close="<|tool_call_end|>"),
    Format("cohere", **_LIST, begin="<|START_ACTION|>[\n    ", end="\n]<|END_ACTION|>",
           keys=(("index", "tool_call_id"), ("name", "tool_name"), ("arguments", "parameters"))),
    Format("seed", "xml", open="<seed:tool_call>\n<function=", after_name=">\n", key=("<parameter=", ">"),
           value_close="</parameter>\n", close="</function>\n</seed:tool_call>", between="\n"),
    Format("nemotron2", **_LIST, begin="<TOOLCALL>[", end="]</TOOLCALL>"),
    Format("apriel", **_LIST, begin="<tool_calls>[", end="]</tool_calls>"),
)  # fmt: skip
"""The table. Of two formats that fit a template, the one whose calls have more text around them is meant."""

BY_NAME = {each.name: each for each in FORMATS}


def format_named(name: str) -> Format:
    """Raises:
    InvalidOption: there is no format of this name.
    """
    if name not in BY_NAME:
        raise InvalidOption(f"there is no chat format {name[:60]!r}", hint=f"the formats are {', '.join(BY_NAME)}")
    return BY_NAME[name]


THINKS: tuple[Think, ...] = (
    Think("<|channel>thought\n", "<channel|>"),
    Think("[THINK]", "[/THINK]"),
    Think("<|START_THINKING|>", "<|END_THINKING|>"),
    Think("<seed:think>", "</seed:think>"),
    Think("<think>", "</think>"),
)
"""Marks of reasoning, those that are rarer first."""
