"""The commands within a chat that begin with a slash, and messages of several lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headstart.base.errors import InvalidOption
from headstart.base.words import counted
from headstart.serve.chat.conversation import Conversation
from headstart.types import Sampling

_BLOCK = '"""'
HELP = """\
/set NAME VALUE   change how answers are sampled, as in: /set temperature 0.7   /set max_tokens 200
/show             how answers are sampled, and the system message
/system TEXT      another system message; with no text, none
/colors           show in green what was guessed and then confirmed; again to end it
/reasoning        leave out what the model thinks before it answers; again to show it
/stats            speed and acceptance of the last answer
/reset            forget the conversation
/save FILE        write the conversation; /load FILE goes on with it
/bye              leave, as Ctrl-D does
\"\"\"               begins a message of several lines, and ends it
Ctrl-C            ends an answer, or clears a line"""


class Slash:
    """The commands that a user can give between two messages.

    more: commands of the front that shows the conversation, by name: from what follows the name to words for the user.
    """

    def __init__(self, talk: Conversation, more: Mapping[str, Callable[[str], str]]) -> None:
        self._talk = talk
        self._commands: dict[str, Callable[[str], str]] = {
            "set": self._set, "show": self._show, "system": self._system, "reset": self._reset, "save": self._save,
            "load": self._load, "help": lambda _: HELP, **more,
        }  # fmt: skip

    def run(self, line: str) -> str:
        """Do what a line with a slash says; returns words for the user, or "" where there are none.

        Raises:
            InvalidOption: there is no such command, or it cannot be done.
            InvalidFile: a conversation cannot be read.
        """
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if name not in self._commands:
            raise InvalidOption(f"/{name} is no command", hint="/help shows them all")
        return self._commands[name](rest.strip())

    def _set(self, rest: str) -> str:
        name, _, value = rest.partition(" ")
        return f"{name} is {self._talk.set(name, value.strip())!r}"

    def _show(self, _: str) -> str:
        found = [*_changed(self._talk.sampling), ("system", self._talk.system)]
        return "\n".join(f"{name} {value!r}" for name, value in found)

    def _system(self, rest: str) -> str:
        self._talk.system = rest
        return "the system message is set" if rest else "there is no system message"

    def _reset(self, _: str) -> str:
        self._talk.reset()
        return "forgotten"

    def _save(self, rest: str) -> str:
        self._talk.save(_path(rest))
        return f"written to {rest}"

    def _load(self, rest: str) -> str:
        self._talk.load(_path(rest))
        return counted(len(self._talk.messages), "message")


def whole_message(read: Callable[[], str]) -> str:
    """A line, or the lines between two lines that hold three quotation marks."""
    line = read()
    if not line.strip().startswith(_BLOCK):
        return line
    lines = [line.strip().removeprefix(_BLOCK)]
    while not lines[-1].rstrip().endswith(_BLOCK):
        lines.append(read())
    lines[-1] = lines[-1].rstrip().removesuffix(_BLOCK)
    return "\n".join(lines).strip("\n")


def _path(rest: str) -> Path:
    if not rest:
        raise InvalidOption("no file was named", hint="as in: /save talk.jsonl")
    return Path(rest).expanduser()


def _changed(sampling: Sampling) -> Iterator[tuple[str, object]]:
    """The fields that are not as they always are, and the three that everybody looks for."""
    usual = Sampling()
    for name in (*("temperature", "max_tokens", "seed"), *type(sampling).__dataclass_fields__):
        value = getattr(sampling, name)
        if name in ("temperature", "max_tokens", "seed") or value != getattr(usual, name):
            yield name, value
