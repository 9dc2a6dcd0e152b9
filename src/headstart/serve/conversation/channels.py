"""The messages of gpt-oss (harmony), each with a header: to whom it goes, and in which channel."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headstart.serve.conversation.characters import Characters, End, Reading
from headstart.serve.conversation.spoken import Spoken
from headstart.serve.conversation.turns import Tool
from headstart.serve.conversation.values import Say, is_object

_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")


def channels(text: Characters, said: Spoken, tools: Mapping[str, Tool]) -> Reading:
    """Messages, each with a header: to whom it goes, and in which channel."""
    while True:
        header: list[str] = []
        try:
            yield from text.until("<|message|>", header.append)
        except End:
            words = "".join(header)
            if words and not words.lstrip().startswith(("<|", "assistant", "to=")):
                said.content(words)  # a reply without any header
            raise
        words = "".join(header)
        channel, recipient = _CHANNEL.search(words), _RECIPIENT.search(words)
        text.taken.clear()
        if recipient is not None and tools:
            yield from _call(text, said, recipient[1])
        elif channel is not None and channel[1] == "analysis":
            yield from said.counted(_body(text, said.reasoning))
        else:
            yield from _body(text, said.content)


def _call(text: Characters, said: Spoken, name: str) -> Reading:
    said.open_call(name)
    try:
        yield from _body(text, said.arguments, keep=False)
    finally:
        if not said.written.strip():
            said.arguments("{}")
        said.whole = is_object(said.written)
        said.close_call()


def _body(text: Characters, say: Say, *, keep: bool = True) -> Reading:
    """Read a message up to the mark of its end; see `Characters.until`."""
    held = ""
    try:
        while held not in _ENDS:
            held += yield from text.next()
            while not any(mark.startswith(held) for mark in _ENDS):
                say(held[0])
                held = held[1:]
    except End:
        for character in held if keep else "":
            say(character)
        raise
    if held == "<|start|>":
        text.unread(held)
