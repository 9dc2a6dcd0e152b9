"""Prompts to measure with, each in a category: from a JSONL file (Spec-Bench or plain), a text file or a directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import InvalidPrompt

Prompt = str | list[int]

JSONL = (".jsonl", ".ndjson", ".json")
SHAPES = 'each line is {"turns": ["..."]} (Spec-Bench), {"prompt": "..."} or {"text": "..."}; token ids work too'
UNSORTED = "all"
"""The category of prompts that have none."""


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A prompt (text, or token ids), what kind it is, and what to call it: its `question_id`, or where it was read."""

    prompt: Prompt
    category: str = UNSORTED
    name: str = ""


def read_prompt_set(path: Path) -> list[PromptItem]:
    """The prompts of a file or directory, in order.

    A JSONL file holds one prompt a line, its category in "category". Any other file is one prompt; one newline at its
    very end is dropped, since editors add it. In a directory every file is read (hidden ones are not), and prompts
    without a category have the name of their folder, or of their file at the top.

    Raises:
        InvalidPrompt: naming file and line; also where nothing is found.
    """
    if not path.is_dir():
        return _file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
    if not files:
        raise InvalidPrompt(f"{path} holds no file", hint=f"put prompts into it: text files, or JSONL: {SHAPES}")
    return [item for file in files for item in _file(file, _folder(file, path))]


def by_category(items: Iterable[PromptItem]) -> dict[str, list[PromptItem]]:
    """The prompts of each category, in the order in which categories first come."""
    found: dict[str, list[PromptItem]] = {}
    for item in items:
        found.setdefault(item.category, []).append(item)
    return found


def checked(prompt: object, where: str) -> Prompt:
    """The prompt if it is a non-empty string or list of token ids; refused here, before a model is loaded for it."""
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    if prompt in ("", []):
        raise InvalidPrompt(f"{where} is empty", hint="a prompt needs at least one character")
    raise InvalidPrompt(f"{where}: no prompt in it", hint=SHAPES)


def _file(file: Path, category: str = UNSORTED) -> list[PromptItem]:
    text = _text(file)
    if file.suffix.lower() not in JSONL:
        return [PromptItem(checked(text.removesuffix("\n"), str(file)), category, file.name)]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise InvalidPrompt(f"{file} holds no prompt", hint=SHAPES)
    return [_from_json(line, f"{file}, line {number}", category) for number, line in lines]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPrompt(f"cannot read {file}: {error.strerror}", hint="check the path of --prompts") from error
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"{file} is not text: {error}", hint="prompts are UTF-8 text, or JSONL") from error


def _from_json(line: str, where: str, category: str) -> PromptItem:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidPrompt(f"{where}: not JSON: {error.msg}", hint=SHAPES) from error
    if not isinstance(record, dict):
        raise InvalidPrompt(f"{where}: not a JSON object", hint=SHAPES)
    turns = record.get("turns")
    first_turn = turns[0] if isinstance(turns, list) and turns else None
    found = [value for value in (first_turn, record.get("prompt"), record.get("text")) if value is not None]
    name = record.get("question_id", record.get("id"))
    return PromptItem(
        checked(found[0] if found else None, where),
        str(record.get("category") or category),
        where if name is None else str(name),
    )


def _folder(file: Path, top: Path) -> str:
    return file.parent.name if file.parent != top else file.stem


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
