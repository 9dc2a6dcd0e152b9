"""Twins of a conversation's texts: the same texts, as a call of a tool spells them, for drafters that copy.

An agent reads a file and edits it: the call repeats lines of the file, but as a JSON string, in which each line break
and quotation mark is another token than in the prompt. A copying drafter loses its place at each of them. In the twin
of the file it does not. A twin is a guess and changes no text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headstart.engine.prompts import encode_after
from headstart.serve.conversation.formats import Format
from headstart.serve.conversation.turns import Conversation, ToolResult, User

SHORTEST = 64
"""Tokens of a text that has a twin: what is shorter saves little."""
MOST_TOKENS = 16_384
"""Of all twins of a request together. The latest texts come first."""
MOST_TEXTS = 32
_CHARACTERS = 4
"""That are tokenized for each token that a twin may still have: about as many as code has for each."""
_NUMBER = re.compile(r"^ *\d+(?:\t|→)", re.MULTILINE)
_JSON = ("json", "text", "channels")
"""Bodies of formats whose arguments are JSON; in "xml" strings stand as they are."""


def twins(tokenizer: Any, conversation: Conversation, form: Format | None) -> tuple[tuple[int, ...], ...]:
    """The token ids of the twins, the latest text's first; () where no tool may be called, or where the format spells
    strings neither as JSON nor as they are."""
    if form is None or not conversation.callable or form.body not in (*_JSON, "xml"):
        return ()
    found: dict[tuple[int, ...], None] = {}
    room = MOST_TOKENS
    texts = (turn.text for turn in reversed(conversation.turns) if isinstance(turn, ToolResult | User))
    for text in texts:
        if room < SHORTEST or len(found) >= MOST_TEXTS:
            break
        spelled = spelling(text[: _CHARACTERS * room], form)
        if len(spelled) < SHORTEST or spelled == text:
            continue
        tokens = encode_after(tokenizer, (), spelled)[:room]
        if len(tokens) > SHORTEST and tokens not in found:
            found[tokens] = None
            room -= len(tokens)
    return tuple(found)


def spelling(text: str, form: Format) -> str:
    """A text as a string argument in this form; without the numbers of lines, if it is a file shown with them."""
    if _NUMBER.match(text):
        text = _NUMBER.sub("", text)
    return json.dumps(text, ensure_ascii=False)[1:-1] if form.body in _JSON else text
