"""Rules of a text in which calls may come, where no single token begins a call.

The text is free until a call's beginning stands there, in whatever tokens it was written. From there on the call is
held to its tool. That rests on llguidance's lazy lexemes: one ends as soon as it matches, and free text that could have
gone on with the same characters is then no longer possible. So the mask is, as everywhere, a function of the grammar
and of the tokens before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from headstart.serve.conversation.call_rules import CallRules, in_regex, quoted
from headstart.serve.conversation.formats import CHANNEL_MARKS
from headstart.serve.conversation.turns import Tool

_TEXT = r"/(.|\n)*/"
_HEADER = "[^<]*"


def text_with_calls(
    rules: CallRules, tools: Sequence[Tool], *, several: bool, outside: Sequence[str] = ()
) -> str | None:
    """The right side of the first rule, for a text with calls; adds the rules that it needs. None where a call's
    beginning cannot be told from text.

    several: whether more text and more calls may follow a call.
    outside: texts whose tokens may not come: those that begin the reasoning.
    """
    form = rules.form
    if form.body == "channels":
        return _messages(rules, tools)
    if not form.at_start and not form.trigger:
        return None
    others = _ranges(token for mark, token in rules.marks.ids.items() if mark not in outside)
    rules.rules.append(f"text: {_TEXT}")
    plain = ""
    if others:
        rules.rules.append(f"plain: text <[{others}]>")
        plain = "plain"
    if form.at_start:
        return f"{_first_calls(rules, tools, several=several)} | {f'{plain}* ' if plain else ''}text"
    rules.rules.append(f"opened[suffix={quoted(form.trigger)}]: {_TEXT}")
    calls = f"opened {rules.calls(tools, several=several and bool(form.begin), behind=form.trigger)}"
    if several:
        return f"({plain + ' | ' if plain else ''}{calls})* text"
    return f"{plain + '* ' if plain else ''}(text | {calls})"


def _first_calls(rules: CallRules, tools: Sequence[Tool], *, several: bool) -> str:
    """Calls with which the text begins. They have no mark: what begins one is the name of its tool."""
    form = rules.form
    marks = [f"<[{rules.marks.ids[mark]}]>" for mark in form.also if mark in rules.marks.ids]
    before = f"({' | '.join(marks)})? " if marks else ""
    found = []
    bodies = rules.bodies(tools) if form.body == "python" else ""
    for number, tool in enumerate(tools):
        if form.body == "python":
            head = rf"\s*\[\s*{in_regex(tool.name)}\("
            rest = f'{rules.inner(number)} ")"'
        else:
            keys = dict(form.keys)
            name = in_regex(json.dumps(tool.name, ensure_ascii=False))
            head = (
                rf'\s*\{{\s*("type"\s*:\s*"function"\s*,\s*)?"{keys["name"]}"\s*:\s*{name}\s*,'
                rf'\s*"({keys["arguments"]}|arguments)"\s*:'
            )
            rest = rf"/ ?/ {rules.arguments(tool)} /\s*\}}/"
        rules.rules.append(f"head_{number}[lazy]: /{head}/")
        found.append(f"head_{number} {rest}")
    calls = f"{before}({' | '.join(found)})"
    if form.body != "python":
        return calls
    more = f" ({quoted(form.between)} ({bodies}))*" if several else ""
    return f'{calls}{more} "]"'


def _messages(rules: CallRules, tools: Sequence[Tool]) -> str | None:
    """gpt-oss's messages, of which the last may be a call. A header is free up to its recipient."""
    ids = rules.marks.ids
    if any(mark not in ids for mark in CHANNEL_MARKS):
        return None
    start, channel, constrain, message, end = (f"<[{ids[mark]}]>" for mark in CHANNEL_MARKS[:5])
    called = [f"{quoted(tool.name)} after {message} {rules.arguments(tool)}" for tool in tools]
    rules.rules += [
        f"message: (header mark)* header {message} {_TEXT}",
        f"header: /{_HEADER}/",
        f"mark: {channel} | {constrain}",
        rf"to[lazy]: /{_HEADER}to=functions\./",
        f"call: (header mark)* to ({' | '.join(called)})",
        "after: (/ [a-z]*/)? (mark /[a-z ]*/)*",
    ]
    return f"(message {end} {start})* (message | call) | header"


def _ranges(ids: Iterable[int]) -> str:
    """Ids as llguidance writes them: "1-3,7-7"."""
    found: list[list[int]] = []
    for each in sorted(set(ids)):
        if found and each == found[-1][1] + 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return ",".join(f"{first}-{last}" for first, last in found)
