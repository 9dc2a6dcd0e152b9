"""`Reply`: what a model writes, read into reasoning, content and calls while it comes.

The readers (`calls`, `channels`, `values`) take one character after the other (`characters`). So the parts of a reply,
joined, cannot depend on how its text was cut into pieces: drafts come several tokens at once, and most faults of
servers that stream calls have been faults of pieces. Nothing here fails: text that breaks the form becomes content,
what had been opened is closed, and `warnings` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headstart.serve.conversation.calls import CallReader
from headstart.serve.conversation.channels import channels
from headstart.serve.conversation.characters import Broken, Characters, End, Reading, Word
from headstart.serve.conversation.detect import Marks
from headstart.serve.conversation.formats import Format, Think
from headstart.serve.conversation.parts import Part
from headstart.serve.conversation.spoken import Spoken
from headstart.serve.conversation.turns import Tool

_MOST_BROKEN = 16
"""Calls that break their form; text behind them is content, whatever it holds. Reading again what follows a broken
beginning would take time that grows with the square of the text."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What is known of replies before they come: the arguments of `Reply`."""

    form: Format | None = None
    think: Think | None = None
    thinking: bool = False
    tools: tuple[Tool, ...] = ()

    def begin(self) -> Reply:
        """A reader of one of them."""
        return Reply(self.form, self.think, thinking=self.thinking, tools=self.tools)

    @property
    def reasons(self) -> bool:
        """Whether they may begin with reasoning."""
        return self.think is not None or (self.form is not None and self.form.body == "channels")

    def shown(self, marks: Marks) -> tuple[int, ...]:
        """The special tokens that belong to the form, and must stay in the text. marks: of the tokenizer."""
        texts = list(self.form.marks) if self.form is not None and (self.tools or self.form.body == "channels") else []
        if self.think is not None:
            texts += [self.think.open, self.think.close]
        return tuple(marks.ids[each] for each in sorted(marks.special) if any(each in text for text in texts))


class Reply:
    """Reads one reply.

    Args:
        form: how its calls are written; None where there are none to read.
        think: the marks of its reasoning, if it may reason.
        thinking: whether the prompt has opened the reasoning already.
        tools: that the reply may call. Without any, what looks like a call is content.
    """

    def __init__(
        self, form: Format | None = None, think: Think | None = None, *, thinking: bool = False,
        tools: Sequence[Tool] = (),
    ) -> None:  # fmt: skip
        self._form, self._think = form, think
        self._tools = {tool.name: tool for tool in tools}
        self._reads_calls = form is not None and bool(tools)
        self._thinking = thinking and think is not None
        self._text = Characters()
        self._said = Spoken(self._text, self._tools)
        self._broken = 0
        self._reader = self._all()
        self._done = False
        self._step(None)

    @property
    def warnings(self) -> list[str]:
        """What was not as it should be."""
        return self._said.warnings

    @property
    def calls(self) -> int:
        """Calls opened so far."""
        return self._said.calls

    @property
    def whole_calls(self) -> int:
        """Those whose arguments came to their end."""
        return self._said.whole_calls

    @property
    def reasoning_characters(self) -> int:
        """Characters read as reasoning so far, its marks included."""
        return self._said.reasoning_characters

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain with this text. It still has the special tokens that are marks of the form."""
        for character in text:
            self._step(character)
        return self._said.drained()

    def finish(self) -> list[Part]:
        """The parts that were held back; the reply has ended."""
        self._step("")
        return self._said.drained()

    def _step(self, character: str | None) -> None:
        if self._done:
            return
        try:
            if character is None:
                next(self._reader)
            else:
                self._reader.send(character)
        except StopIteration:
            self._done = True

    def _all(self) -> Reading:
        try:
            if self._form is not None and self._form.body == "channels":
                yield from channels(self._text, self._said, self._tools)
            if self._thinking:
                yield from self._reasoning()
            yield from self._free()
        except End:
            pass

    def _reasoning(self) -> Reading:
        assert self._think is not None
        space, mark = "", self._think.close

        def say(character: str) -> None:
            nonlocal space
            space = self._said.reasoning_behind(space, character)

        yield from self._said.counted(self._text.until(mark, say))
        self._said.reasoning_ended()

    def _marks(self) -> Mapping[str, bool]:
        """What may begin in free text: whether it is the beginning of a call, by the mark."""
        found: dict[str, bool] = {}
        if self._reads_calls and self._form is not None and self._broken < _MOST_BROKEN:
            found |= dict.fromkeys((each for each in (self._form.trigger, *self._form.also) if each), True)
        if self._think is not None and not self._said.content_said and not self._said.calls and not self._said.fresh:
            found[self._think.open.rstrip()] = False
        return found

    def _free(self) -> Reading:
        space, begun = "", ""
        try:
            while True:
                begun += yield from self._text.next()
                marks = self._marks()
                while begun:
                    if begun in marks:
                        mark, begun = begun, ""
                        before, space = space, ""
                        if marks[mark]:
                            space = yield from self._calls_behind(mark, before)
                        else:
                            self._said.count_reasoning(len(mark))
                            yield from self._reasoning()
                        marks = self._marks()
                        break
                    if any(mark.startswith(begun) for mark in marks):
                        break
                    if self._begins_unmarked(begun[0]):
                        self._text.unread(begun)
                        begun, before, space = "", space, ""
                        space = yield from self._calls_behind("", before)
                        break
                    first, begun = begun[0], begun[1:]
                    if marks or self._said.fresh:
                        space = self._said.content_behind(space, first)
                    else:
                        self._said.content(space + first)
                        space, self._said.content_said = "", True
        except End:
            for character in begun:
                space = self._said.content_behind(space, character)
            if space and not self._said.fresh:
                self._said.content(space)
            raise

    def _begins_unmarked(self, character: str) -> bool:
        form = self._form
        if form is None or not (form.at_start and self._reads_calls) or self._said.content_said or self._broken:
            return False
        return character == (form.begin or "{") and not (self._said.calls and not form.parallel)

    def _calls_behind(self, mark: str, space: str) -> Word:
        """Read calls behind their mark. Returns white space to be said with what follows."""
        assert self._form is not None
        calls = self._said.calls
        self._said.flush()
        self._text.taken.clear()
        try:
            yield from CallReader(self._form, self._tools, self._text, self._said).read(mark)
            return ""
        except Broken:
            rest = "".join(self._text.taken)
            self._text.unread(rest)
            self._note_broken()
        except End:
            rest = "".join(self._text.taken)
            if self._said.calls == calls:
                self._note_broken()
                for character in mark + rest:
                    space = self._said.content_behind(space, character)
                if space:
                    self._said.content(space)
            self._said.close_call()
            raise
        if self._said.calls > calls:
            self._said.close_call()
            return ""
        for character in mark or (yield from self._text.next()):
            space = self._said.content_behind(space, character)
        return space

    def _note_broken(self) -> None:
        self._broken += 1
        form = self._form
        if form is not None and not form.at_start and self._broken == 1:
            self._said.warnings.append("the model began a call and did not keep to its form")
