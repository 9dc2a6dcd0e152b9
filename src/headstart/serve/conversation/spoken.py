"""`Spoken`: the parts of a reply, as far as the text that has come makes them certain."""

from __future__ import annotations

import json
from collections.abc import Collection

from headstart.serve.conversation.characters import Characters, Reading
from headstart.serve.conversation.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning, joined


class Spoken:
    """What the readers of one reply have made of it.

    tools: names of those that may be called; the call of another is a warning.
    calls: opened so far. whole_calls: those whose arguments came to their end.
    opened: the number of the call that is open; None where none is.
    whole: whether its arguments have come to their end. written: those arguments, so far.
    fresh: whether a call or the reasoning has ended and no content has followed; line breaks there are the format's.
    content_said: whether there was any content.
    """

    def __init__(self, text: Characters, tools: Collection[str]) -> None:
        self.warnings: list[str] = []
        self.calls = self.whole_calls = 0
        self.opened: int | None = None
        self.whole = self.fresh = self.content_said = False
        self.written = ""
        self._text, self._tools = text, tools
        self._parts: list[Part] = []
        self._pieces: list[str] = []
        self._kind: type[Reasoning] | type[Content] | int | None = None
        self._reasoned = 0
        self._since: int | None = None

    def drained(self) -> list[Part]:
        """The parts since the last time."""
        self.flush()
        found, self._parts = self._parts, []
        return joined(found)

    def flush(self) -> None:
        """End the piece that is being said."""
        text, self._pieces = "".join(self._pieces), []
        if text and self._kind is not None:
            self._parts.append(CallArguments(self._kind, text) if isinstance(self._kind, int) else self._kind(text))

    def _say(self, kind: type[Reasoning] | type[Content] | int, text: str) -> None:
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(text)
        self._text.taken.clear()

    # -- calls ------------------------------------------------------------------------------------------------------

    def open_call(self, name: str) -> None:
        """A call begins."""
        self.flush()
        if name not in self._tools:
            self.warnings.append(f"the model called {json.dumps(name[:60])}, which is none of the tools")
        self.opened, self.whole, self.written = self.calls, False, ""
        self.calls += 1
        self._parts.append(CallOpened(self.opened, name))
        self._text.taken.clear()

    def arguments(self, text: str) -> None:
        """More of the open call's arguments."""
        if self.opened is not None and text:
            self.written += text
            self._say(self.opened, text)

    def close_call(self) -> None:
        """The open call ends, if one is open."""
        if self.opened is None:
            return
        self.flush()
        if self.whole:
            self.whole_calls += 1
            try:
                json.loads(self.written)
            except (ValueError, RecursionError):
                self.warnings.append("the arguments of a call are not JSON")
        self._parts.append(CallClosed(self.opened, self.whole))
        self.opened, self._kind, self.fresh = None, None, True
        self._text.taken.clear()

    # -- content and reasoning --------------------------------------------------------------------------------------

    def content(self, text: str) -> None:
        """More of the answer."""
        self._say(Content, text)

    def content_behind(self, space: str, character: str) -> str:
        """A character of the answer behind white space. White space itself is returned: what follows decides on it."""
        if character.isspace():
            return space + character
        if self.fresh:
            space, self.fresh = space.lstrip("\n"), False
        self._say(Content, space + character)
        self.content_said = True
        return ""

    def reasoning(self, text: str) -> None:
        """More of the reasoning."""
        self._say(Reasoning, text)

    def reasoning_behind(self, space: str, character: str) -> str:
        """As `content_behind`; line breaks at the beginning of the reasoning are the format's."""
        if not character.isspace():
            self._say(Reasoning, space + character)
            return ""
        space += character
        return space if self._kind is Reasoning else space.lstrip("\n")

    def reasoning_ended(self) -> None:
        """What follows is no reasoning."""
        self.flush()
        self.fresh, self._kind = True, None

    @property
    def reasoning_characters(self) -> int:
        """Characters read as reasoning so far, its marks included."""
        return self._reasoned + (0 if self._since is None else self._text.position - self._since)

    def count_reasoning(self, characters: int) -> None:
        """So many more characters were of the reasoning: a mark of it."""
        self._reasoned += characters

    def counted(self, reading: Reading) -> Reading:
        """The same reading, whose characters count as reasoning."""
        self._since = self._text.position
        try:
            yield from reading
        finally:
            self._reasoned, self._since = self.reasoning_characters, None
