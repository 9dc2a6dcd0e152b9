"""Where prompts come from: an argument, standard input, a file of prompts (`insight.prompt_sets`)."""

from __future__ import annotations

import sys
from pathlib import Path

from headstart.errors import InvalidOption, InvalidPrompt
from headstart.prompt_sets import Prompt, checked, read_prompt_set

__all__ = ["Prompt", "read_prompts"]


def read_prompts(argument: str | None, file: Path | None) -> list[Prompt]:
    """The prompts of one call, from its argument ("-" is standard input), its file, or what is piped into it.

    One newline at the very end of standard input or a text file is dropped: shells and editors add it.
    """
    if file is not None:
        if argument is not None:
            raise InvalidOption("both a prompt and --prompts were given", hint="give one of them")
        return [item.prompt for item in read_prompt_set(file)]
    if argument not in (None, "-"):
        return [checked(argument, "the prompt")]
    if argument is None and sys.stdin.isatty():
        raise InvalidPrompt(
            "there is no prompt",
            hint='headstart generate "def add(a, b):", or pipe one in, or --prompts FILE',
        )
    try:
        return [checked(sys.stdin.read().removesuffix("\n"), "standard input")]
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"standard input is not text: {error}", hint="a prompt is UTF-8 text") from error
