"""The grammar of a reply, in llguidance's Lark: calls of these tools in this form, before them reasoning, beside them
an answer of a given form. It follows from the same table as reading does, so that what may be written can be read.

Free text costs nothing: reasoning that the prompt has opened, and text before a call that need not come, are left to
the model up to the token that ends them (`Structure.after`, `Structure.trigger`). Only where such a mark is not one
token does the grammar go through the text itself (`text_rules`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

from headstart.base.errors import InvalidGrammar
from headstart.engine.prompts import encode_after
from headstart.serve.conversation.call_rules import CallRules, in_regex, quoted, schema_item
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.formats import Separators
from headstart.serve.conversation.text_rules import text_with_calls
from headstart.serve.conversation.turns import ANY_OBJECT, Conversation, Tool
from headstart.types import Structure

ConstrainTools = Literal["auto", "always", "never"]
"""Whether calls that need not come are held to their tools' schemas: "auto" where llguidance is installed; "always", or
the request is refused; "never" leaves them to the model. Calls that must come always are, and all calls where a tool is
strict or takes a text of a grammar."""
_FINAL = "<|channel|>final<|message|>"
_ANALYSIS = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")


@dataclass(frozen=True, slots=True)
class Constraint:
    """What holds a reply to its form.

    structure: None where nothing does.
    stop: strings that end the reply.
    forbidden: a token that may not come.
    opens: text that is put behind the prompt: the mark of reasoning whose length is limited.
    warnings: what cannot be enforced.
    """

    structure: Structure | None = None
    stop: tuple[str, ...] = ()
    forbidden: int | None = None
    opens: str = ""
    warnings: tuple[str, ...] = ()


def constraint_of(
    conversation: Conversation, form: ChatForm, tokenizer: Any, *, thinking: bool, answer: Structure | None = None,
    constrain: ConstrainTools = "auto",
) -> Constraint:  # fmt: skip
    """What holds the reply to a conversation to its form.

    thinking: whether the prompt has opened the reasoning.
    answer: the form of its text, where the request asks for one.
    constrain: whether calls that need not come are held to their schemas.

    Raises:
        InvalidGrammar: a strict tool's schema cannot be enforced.
    """
    calls, choice, budget = form.format, conversation.choice, conversation.thinking.budget
    marks = form.marks
    tools = conversation.callable if calls is not None else ()
    warnings: list[str] = []
    opens = ""
    if budget is not None and not thinking:
        if form.think is None or conversation.thinking.on is False:
            budget = None
            warnings.append("thinking_budget does nothing here: the reply has no reasoning")
        else:
            opens, thinking = form.think.open.rstrip("\n") + "\n", True
    writing = CallRules(calls, form.separators, marks, warnings) if calls is not None else None
    whole: Structure | None = None
    stop: tuple[str, ...] = ()
    forbidden: int | None = None
    free = False
    if calls is not None and writing is not None and tools and (choice.mode == "required" or answer is not None):
        start = writing.calls(tools, several=conversation.parallel and calls.parallel and not choice.one)
        if answer is not None and choice.mode != "required":
            start = f"{start} | {_answer(answer, writing)}"
        whole = Structure("lark", writing.grammar(start))
    elif answer is not None:
        whole = answer
    elif calls is not None and writing is not None and tools:
        several = conversation.parallel and calls.parallel
        trigger = marks.ids.get(calls.trigger)
        if not _held(tools, constrain, warnings):
            pass
        elif trigger is not None and calls.body != "channels":
            start = writing.calls(tools, several=several and bool(calls.begin), behind=calls.trigger)
            whole = Structure("lark", writing.grammar(start), trigger=(trigger,))
        elif not (calls.at_start and conversation.continued):
            outside = () if form.think is None or thinking else (form.think.open.rstrip(),)
            found = text_with_calls(writing, tools, several=several, outside=outside)
            free = found is not None
            whole = None if found is None else Structure("lark", writing.grammar(found))
        if not conversation.parallel and calls.parallel and not free:
            end = (calls.end or calls.close).strip()
            stop = (end,) if len(end) > 1 else ()
    elif calls is not None and conversation.tools and choice.mode == "none":
        forbidden = marks.ids.get(calls.trigger) if calls.body != "channels" else None
    structure = _behind_reasoning(whole, form, tokenizer, thinking=thinking, budget=budget, free=free)
    return Constraint(structure, stop, forbidden, opens, tuple(warnings))


def _held(tools: Sequence[Tool], constrain: ConstrainTools, warnings: list[str]) -> bool:
    """Whether calls that need not come are held to their schemas."""
    if any(tool.strict or tool.grammar is not None for tool in tools) or constrain == "always":
        return True
    if constrain == "auto" and find_spec("llguidance") is None:
        warnings.append("calls are not held to the schemas of their tools: llguidance is not installed")
        return False
    return constrain == "auto"


def _behind_reasoning(
    whole: Structure | None, form: ChatForm, tokenizer: Any, *, thinking: bool, budget: int | None, free: bool
) -> Structure | None:
    """The structure of what follows the reasoning, as that of the whole reply. free: whether it allows any text."""
    marks = form.marks
    if form.format is not None and form.format.body == "channels":
        if whole is None or free:
            return whole
        rules = (
            f"start: analysis? reply\nanalysis: {marks.items(_ANALYSIS[0])} /(.|\\n)*/ {marks.items(_ANALYSIS[1])}\n"
            f"reply: {marks.items(_FINAL) + ' ' if whole.kind != 'lark' else ''}"
        )  # fmt: skip
        return Structure("lark", rules + _inner(whole), spelling=whole.spelling)
    if form.think is None or (whole is None and budget is None):
        return whole
    close = form.think.close
    one = marks.ids.get(close)
    if thinking:
        after = (one,) if one is not None else encode_after(tokenizer, (), close)
        if budget is not None or one is not None:
            if whole is None:
                return Structure("text", after=after, thinking=budget)
            if not whole.trigger and not free:
                whole = Structure("lark", f"start: /\\n{{0,2}}/ reply\nreply: {_inner(whole)}", spelling=whole.spelling)
            return replace(whole, after=after, thinking=budget)
    if whole is None or whole.trigger:
        return whole
    thought = f"/(.|\\n)*/ {marks.items(close)}" if marks.within(close) else "ended"
    opened = "" if thinking else marks.items(form.think.open.rstrip()) + " "
    unended = " | text" if free else ""  # a text that is free may end before its reasoning does
    rules = f"start: thought{'' if thinking else '?'} /\\n{{0,2}}/ reply{unended}\nthought: {opened}{thought}\n"
    if thought == "ended":
        rules += f"ended[lazy]: /(.|\\n)*{in_regex(close)}/\n"
    return Structure("lark", f"{rules}reply: {_inner(whole)}", spelling=whole.spelling)


def _inner(whole: Structure) -> str:
    """A structure as the right side of a rule, and what rules it needs behind it."""
    if whole.kind == "lark":
        return whole.text.removeprefix("start: ")
    if whole.kind == "json":
        return "%json " + schema_item(ANY_OBJECT, None, lenient=True)
    if whole.kind == "schema":
        separators = None if whole.whitespace == "flexible" else _SEPARATORS[whole.whitespace]
        return "%json " + schema_item(json.loads(whole.text), separators, lenient=whole.lenient)
    if whole.kind == "regex":
        return f"/{whole.text.replace('/', chr(92) + '/')}/"
    if whole.kind == "choice":
        return " | ".join(quoted(each) for each in json.loads(whole.text))
    raise InvalidGrammar(
        f"a grammar of the kind {whole.kind!r} goes together neither with tools nor with reasoning",
        hint="leave the tools out, and set enable_thinking to false in chat_template_kwargs",
    )


_SEPARATORS = {"compact": Separators(",", ":"), "spaced": Separators()}


def _answer(answer: Structure, writing: CallRules) -> str:
    if answer.kind == "lark":
        raise InvalidGrammar("a grammar and tools exclude each other", hint="ask for a JSON schema, or leave out tools")
    writing.rules.append(f"answer: {_inner(answer)}")
    return "answer"
