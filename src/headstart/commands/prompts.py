"""Where prompts come from: an argument, standard input, a JSONL file (Spec-Bench or plain) or a text file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headstart.errors import InvalidOption, InvalidPrompt

Prompt = str | list[int]

_JSONL = (".jsonl", ".ndjson", ".json")
_SHAPES = 'each line is {"turns": ["..."]} (Spec-Bench), {"prompt": "..."} or {"text": "..."}; token ids work too'


def read_prompts(argument: str | None, file: Path | None) -> list[Prompt]:
    """The prompts of one call, from its argument ("-" is standard input), its file, or what is piped into it.

    One newline at the very end of standard input or a text file is dropped: shells and editors add it.
    """
    if file is not None:
        if argument is not None:
            raise InvalidOption("both a prompt and --prompts were given", hint="give one of them")
        return _jsonl(file) if file.suffix.lower() in _JSONL else [_checked(_text(file).removesuffix("\n"), str(file))]
    if argument not in (None, "-"):
        return [_checked(argument, "the prompt")]
    if argument is None and sys.stdin.isatty():
        raise InvalidPrompt(
            "there is no prompt",
            hint='headstart generate "def add(a, b):", or pipe one in, or --prompts FILE',
        )
    try:
        return [_checked(sys.stdin.read().removesuffix("\n"), "standard input")]
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"standard input is not text: {error}", hint="a prompt is UTF-8 text") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPrompt(f"cannot read {file}: {error.strerror}", hint="check the path of --prompts") from error
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"{file} is not text: {error}", hint="prompts are UTF-8 text, or JSONL") from error


def _jsonl(file: Path) -> list[Prompt]:
    lines = [(number, line) for number, line in enumerate(_text(file).split("\n"), start=1) if line.strip()]
    if not lines:
        raise InvalidPrompt(f"{file} holds no prompt", hint=_SHAPES)
    return [_from_json(line, f"{file}, line {number}") for number, line in lines]


def _from_json(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidPrompt(f"{where}: not JSON: {error.msg}", hint=_SHAPES) from error
    if not isinstance(record, dict):
        raise InvalidPrompt(f"{where}: not a JSON object", hint=_SHAPES)
    turns = record.get("turns")
    first_turn = turns[0] if isinstance(turns, list) and turns else None
    found = [value for value in (first_turn, record.get("prompt"), record.get("text")) if value is not None]
    return _checked(found[0] if found else None, where)


def _checked(prompt: object, where: str) -> Prompt:
    """The prompt if it is a non-empty string or list of token ids; refused here, before a model is loaded for it."""
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    if prompt in ("", []):
        raise InvalidPrompt(f"{where} is empty", hint="a prompt needs at least one character")
    raise InvalidPrompt(f"{where}: no prompt in it", hint=_SHAPES)
