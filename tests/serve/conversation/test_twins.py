"""Twins of a conversation's texts, and what drafters that copy gain by them where a call repeats a file."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from agents import forced
from support.tiny import byte_tokenizer

from headstart.drafters import Drafter
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.serve.conversation.formats import BY_NAME
from headstart.serve.conversation.turns import Assistant, Call, Conversation, Tool, ToolChoice, ToolResult, Turn, User
from headstart.serve.conversation.twins import MOST_TEXTS, MOST_TOKENS, twins
from headstart.types import Drafting

FILE = "".join(f'def f{n}(x):\n    """Doc of {n}."""\n\n    return "{n * 7}" + x\n\n\n' for n in range(8))
NUMBERED = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(FILE.splitlines(), start=1))
HERMES = BY_NAME["hermes"]
TOKENIZER = byte_tokenizer()


def said(*turns: Turn, choice: ToolChoice | None = None) -> Conversation:
    return Conversation(turns, (Tool("edit"),), choice or ToolChoice())


def texts(conversation: Conversation, form: str | None = "hermes") -> list[str]:
    found = twins(TOKENIZER, conversation, None if form is None else BY_NAME[form])
    return [TOKENIZER.decode(list(tokens)) for tokens in found]


def test_long_texts_of_users_and_tools_are_spelled_as_arguments_the_latest_first() -> None:
    wide = "\u00e9\n" * 40
    turns = (User(wide), Assistant(FILE), ToolResult(NUMBERED), User("short\n"), ToolResult("plain " * 30))
    lines = "\n".join(FILE.splitlines())
    assert texts(said(*turns)) == [json.dumps(lines)[1:-1], wide.replace("\n", "\\n")]
    assert texts(said(*turns), "qwen-xml") == [lines], "only the numbers of the lines are another text there"


@pytest.mark.parametrize("form", [None, "lfm2", "gemma4"])
def test_there_are_none_where_strings_are_spelled_otherwise(form: str | None) -> None:
    assert texts(said(ToolResult(NUMBERED)), form) == []


def test_there_are_none_where_nothing_may_be_called() -> None:
    assert texts(said(ToolResult(NUMBERED), choice=ToolChoice("none"))) == []
    assert texts(Conversation((ToolResult(NUMBERED),))) == []


def test_they_are_few_and_short_however_much_was_said() -> None:
    huge = twins(TOKENIZER, said(User(FILE), ToolResult("line\n" * 1_000_000)), HERMES)
    assert [len(tokens) for tokens in huge] == [MOST_TOKENS]
    many = [ToolResult(f"{n}\n" * 40) for n in range(100, 200)]
    assert len(twins(TOKENIZER, said(*many, *many), HERMES)) == MOST_TEXTS
    same = [ToolResult(FILE)] * 50
    assert len(twins(TOKENIZER, said(*same), HERMES)) == 1


@pytest.mark.parametrize("drafter", [NgramDrafter(budget=16), SuffixDrafter(budget=16)], ids=["ngram", "suffix"])
def test_an_edit_of_a_file_takes_fewer_forwards_with_them(drafter: Drafter) -> None:
    old = "\n".join(FILE.splitlines()[12:22])
    arguments = {"old_string": old, "new_string": old.replace("Doc", "Text")}
    call = HERMES.written([Call("edit", json.dumps(arguments))])
    prompt, reply = (TOKENIZER(text)["input_ids"] for text in (f"<tool>\n{NUMBERED}\n</tool>\n", call))

    def forwards(further: Sequence[Sequence[int]]) -> int:
        drafting = Drafting(texts=tuple(tuple(each) for each in further))
        return forced(drafter, prompt, reply, drafting)[0]

    given = twins(TOKENIZER, said(ToolResult(NUMBERED)), HERMES)
    without, with_them = forwards(()), forwards(given)
    assert with_them < 0.8 * without
    assert forwards([[1, 2, 3] * 30]) == without, "texts that do not match change nothing"
