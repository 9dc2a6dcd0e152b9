"""Prompts to measure with, each in a category: from a JSONL file (Spec-Bench or plain), a text file or a directory.

Text ("prompt", "text" and text files) is sent to the model as it stands. A conversation ("turns" and "messages") goes
through the model's chat template, see `headstart.engine.prompts.templated`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headstart.base.errors import InvalidPrompt

Prompt = str | list[int]

Message = Mapping[str, str]
"""{"role": "user", "content": "..."}, as chat templates take them."""
Form = Literal["raw", "template", "turns raw"]
"""How a prompt is sent: as it stands, through the chat template, or as the text of a conversation without one."""

JSONL = (".jsonl", ".ndjson", ".json")
SHAPES = (
    'each line is {"turns": ["..."]} (Spec-Bench), {"messages": [{"role": "user", "content": "..."}]}, '
    '{"prompt": "..."} or {"text": "..."}; token ids work too'
)
UNSORTED = "all"
"""The category of prompts that have none."""

_FORMS = {
    "template": "{} through the chat template",
    "raw": "{} raw",
    "turns raw": "{} turns raw, because the model has no chat template",
}


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation that the model is to continue."""

    messages: tuple[Message, ...]
    """What is known before the model's first answer."""
    later: tuple[str, ...] = ()
    """What the user says next, each after the model's answer to what came before."""

    @property
    def raw(self) -> str:
        """The messages' texts alone, for a model without a chat template."""
        return "\n\n".join(message["content"] for message in self.messages)

    def answered(self, text: str) -> Chat:
        """The conversation after the model's answer and the user's next turn."""
        turns = ({"role": "assistant", "content": text}, {"role": "user", "content": self.later[0]})
        return Chat((*self.messages, *turns), self.later[1:])


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt of a set."""

    prompt: Prompt
    """What is sent; of a conversation its raw text, until `headstart.engine.prompts.templated` has encoded it."""
    category: str = UNSORTED
    name: str = ""
    """Its `question_id`, or where it was read."""
    chat: Chat | None = None
    """The conversation, if it is one."""
    form: Form = "raw"
    """How it is sent; of a conversation this is known when there is a model."""


def read_prompt_set(path: Path, *, split: bool = False) -> list[PromptItem]:
    """The prompts of a file or directory, in order.

    A JSONL file holds one prompt a line, its category in "category". Any other file is one prompt; one newline at its
    very end is dropped, since editors add it. In a directory every file is read (hidden ones are not), and prompts
    without a category have the name of their folder, or of their file at the top.

    split: each part of a text file between blank lines is a prompt.

    Raises:
        InvalidPrompt: naming file and line; also where nothing is found.
    """
    if not path.is_dir():
        return _file(path, split)
    hidden = {file for file in path.rglob("*") if any(part.startswith(".") for part in file.relative_to(path).parts)}
    files = sorted(file for file in path.rglob("*") if file.is_file() and file not in hidden)
    if not files:
        raise InvalidPrompt(f"{path} holds no file", hint=f"put prompts into it: text files, or JSONL: {SHAPES}")
    folders = [file.parent.name if file.parent != path else file.stem for file in files]
    return [item for file, folder in zip(files, folders, strict=True) for item in _file(file, split, folder)]


def paragraphs(text: str) -> list[tuple[int, str]]:
    """The parts of a text between blank lines, each with the number of its first line."""
    parts = re.finditer(r"(?:^[^\S\n]*\S.*(?:\n|\Z))+", text, re.MULTILINE)
    return [(text.count("\n", 0, part.start()) + 1, part.group().removesuffix("\n")) for part in parts]


def words_of_forms(forms: Iterable[str]) -> str:
    """How prompts were sent, for reports: "24 through the chat template, 2 raw"; nothing where it is not known."""
    counts = Counter(forms)
    return ", ".join(words.format(counts[form]) for form, words in _FORMS.items() if counts[form])


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


def _file(file: Path, split: bool, category: str = UNSORTED) -> list[PromptItem]:
    text = _text(file)
    if file.suffix.lower() not in JSONL:
        parts = paragraphs(text) if split else []
        if len(parts) > 1:
            return [PromptItem(part, category, f"{file.name}, line {number}") for number, part in parts]
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
    name = record.get("question_id", record.get("id"))
    found = _prompt(record, where)
    chat = found if isinstance(found, Chat) else None
    prompt = found.raw if isinstance(found, Chat) else found
    return PromptItem(prompt, str(record.get("category") or category), where if name is None else str(name), chat)


def _prompt(record: Mapping[str, object], where: str) -> Prompt | Chat:
    """The first of "turns", "messages", "prompt" and "text" that is there; turns in token ids stay as they are."""
    turns, messages = record.get("turns"), record.get("messages")
    if isinstance(turns, list) and turns:
        first = checked(turns[0], where)
        if not isinstance(first, str):
            return first
        if not all(isinstance(turn, str) and turn for turn in turns):
            raise InvalidPrompt(f"{where}: a turn is empty or no text", hint=SHAPES)
        return Chat(({"role": "user", "content": first},), tuple(turns[1:]))
    if messages is not None:
        return Chat(check_messages(messages, where))
    text = record.get("prompt")
    return checked(record.get("text") if text is None else text, where)


def check_messages(messages: object, where: str = "the conversation") -> tuple[Message, ...]:
    """The messages if they can be answered: each with a role and a text, the last not the assistant's own.

    Raises:
        InvalidPrompt: naming the message that is wrong.
    """
    hint = 'messages are [{"role": "user", "content": "..."}, ...]; roles are system, user and assistant'
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise InvalidPrompt(f"{where}: messages are no list", hint=hint)
    found = tuple(messages)
    if not found:
        raise InvalidPrompt(f"{where}: there is no message", hint=hint)
    for number, message in enumerate(found, start=1):
        fields = message if isinstance(message, Mapping) else {}
        for name in ("role", "content"):
            if not isinstance(fields.get(name), str) or (name == "role" and not fields[name]):
                raise InvalidPrompt(f'{where}: message {number} has no "{name}", or it is no text', hint=hint)
    if found[-1]["role"] == "assistant":
        raise InvalidPrompt(f"{where}: the last message is the assistant's own", hint="end with what it is to answer")
    return found
