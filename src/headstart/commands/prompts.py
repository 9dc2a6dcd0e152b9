"""Where prompts come from: an argument, standard input, a file of prompts (`headstart.base.prompt_sets`)."""

from __future__ import annotations

import sys
from pathlib import Path

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.base.prompt_sets import JSONL, PromptItem, checked, paragraphs, read_prompt_set
from headstart.commands.terminal import messages, say


def read_prompts(argument: str | None, file: Path | None, *, split: bool = False) -> list[PromptItem]:
    """The prompts of one call, from its argument ("-" is standard input), its file, or what is piped into it.

    One newline at the very end of standard input or a text file is dropped: shells and editors add it.
    split: each part of a text file or of standard input between blank lines is a prompt.
    """
    if file is not None:
        if argument is not None:
            raise InvalidOption("both a prompt and --prompts were given", hint="give one of them")
        return read_file(file, split=split)
    if argument not in (None, "-"):
        if split:
            raise InvalidOption("--split is for files and standard input", hint="give --prompts FILE, or pipe text in")
        return [PromptItem(checked(argument, "the prompt"))]
    if argument is None and sys.stdin.isatty():
        raise InvalidPrompt(
            "there is no prompt",
            hint='headstart generate "def add(a, b):", or pipe one in, or --prompts FILE',
        )
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"standard input is not text: {error}", hint="a prompt is UTF-8 text") from error
    if split and (parts := paragraphs(text)):
        return [PromptItem(part, name=f"line {number}") for number, part in parts]
    return [PromptItem(checked(text.removesuffix("\n"), "standard input"))]


def read_file(file: Path, *, split: bool = False) -> list[PromptItem]:
    """The prompts of a file or directory. Says on standard error where a text of several lines is one prompt."""
    items = read_prompt_set(file, split=split)
    if not split and file.is_file() and file.suffix.lower() not in JSONL:
        lines = len(str(items[0].prompt).splitlines())
        parts = len(paragraphs(str(items[0].prompt)))
        advice = f"; --split makes {parts} prompts of it, at its blank lines" if parts > 1 else ""
        if lines > 1:
            say(messages(), f"{file.name}: its {lines} lines are one prompt{advice}", "dim")
    return items
