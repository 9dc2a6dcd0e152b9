"""A conversation with a model: its messages, how answers are sampled, and the answers as they come.

It knows no terminal, so that a test, or a front of another kind, can hold one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.base.errors import ContextExceeded, InvalidFile, InvalidOption, InvalidPrompt
from headstart.base.files import write_text
from headstart.base.prompt_sets import Message
from headstart.engine.detokenize import TextStream
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.parts import Content, Part, Reasoning
from headstart.serve.conversation.reply import Reply, ReplyForm
from headstart.types import Chunk, Sampling, Stats

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.engine.request import Request

_FIXED = ("logit_bias", "logprobs", "logprobs_mode", "cache_salt", "ignore_eos", "stop_token_ids", "structure",
          "shown_special_tokens")  # fmt: skip
SETTABLE = tuple(field.name for field in fields(Sampling) if field.name not in _FIXED)
"""What `set` changes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer."""

    text: str
    guessed: bool
    """Whether it was drafted and then accepted; else the target wrote it itself."""
    reasoning: bool = False
    """Whether it is what the model thinks before it answers."""


class Conversation:
    """Messages that grow, turn by turn.

    Args:
        engine: of a model with a chat template.
        sampling: of the answers, until `set` changes it.
        system: the first message, or nothing.
        form: what the model's chat template does. Where it may reason, its reasoning is told from its answer, and no
            later question shows it to the model. None reads all text as the answer.
    """

    def __init__(
        self, engine: Engine, sampling: Sampling, system: str = "", form: ChatForm | None = None
    ) -> None:  # fmt: skip
        self.sampling = sampling
        self.messages: list[Message] = []
        self.system = system
        self.stats: list[Stats] = []
        """Of every answer since the last `reset`."""
        self._engine = engine
        self._form = form or ChatForm()
        self._reply = ReplyForm(self._form.format, self._form.think)

    @property
    def drafter_reason(self) -> str:
        """Why this drafter."""
        return self._engine.reason

    def ask(self, text: str) -> Iterator[Piece]:
        """Answer a message, as the iterator is read. Closing it ends the answer; what there is of it stays in the
        conversation.

        Raises:
            InvalidPrompt: the model has no chat template, or refuses the conversation; the message is not kept then.
            ContextExceeded: the message leaves no room for an answer; it is not kept then.
        """
        asked: list[Message] = [*self.messages, {"role": "user", "content": text}]
        sampling = replace(self.sampling, shown_special_tokens=self._shown())
        request = self._engine.submit(self._sent(asked), sampling)
        self.messages = asked
        return self._answer(request, sampling)

    def _shown(self) -> tuple[int, ...]:
        return self._reply.shown(self._form.marks) if self._reply.reasons else ()

    def _answer(self, request: Request, sampling: Sampling) -> Iterator[Piece]:
        from headstart.engine.intake import text_of

        origins = _Origins(text_of(self._engine.tokenizer, sampling), request.prompt)
        reader = self._reader(request.prompt) if self._reply.reasons else None
        said: list[str] = []
        try:
            while request.finish_reason is None or request.chunks:
                while request.chunks:
                    for piece in origins.pieces(request.chunks.popleft()):
                        for part in [piece] if reader is None else reader.read(piece):
                            said += [] if part.reasoning else [part.text]
                            yield part
                if request.finish_reason is None:
                    self._engine.step()
            for part in () if reader is None else reader.rest():
                said += [] if part.reasoning else [part.text]
                yield part
        finally:
            self._engine.cancel(request)
            out = request.finish()
            self.stats.append(out.stats)
            text = out.text if reader is None else "".join(said)
            if text or out.finish_reason not in ("cancelled", "error"):
                self.messages.append({"role": "assistant", "content": text})
            else:
                self.messages.pop()  # a question without an answer would stand in the way of the next one
        if out.error is not None:
            raise out.error

    def _reader(self, prompt: Sequence[int]) -> _Reader:
        think = self._form.think
        begun = self._engine.tokenizer.decode(list(prompt[-16:]), skip_special_tokens=False)
        opened = think is not None and begun.rstrip().endswith(think.open.rstrip())
        return _Reader(replace(self._reply, thinking=opened).begin())

    def forget_oldest(self) -> bool:
        """Drop the oldest question and its answer, to make room; False where there is none."""
        if len(self.messages) < 2:
            return False
        del self.messages[:2]
        return True

    def reset(self) -> None:
        """Start again. The system message and the sampling stay."""
        self.messages.clear()
        self.stats.clear()

    def set(self, name: str, value: str) -> Any:
        """Change one field of the sampling; returns its new value.

        Raises:
            InvalidOption: there is no such field, or it cannot be that.
        """
        name = name.replace("-", "_")
        if name not in SETTABLE:
            raise InvalidOption(f"{name} cannot be set", hint=f"these can: {', '.join(SETTABLE)}")
        try:
            parsed = None if value in ("", "none") else json.loads(value)
        except json.JSONDecodeError:
            parsed = value
        if name == "stop":
            parsed = () if parsed is None else parsed
        elif parsed is None and name != "seed":
            parsed = getattr(Sampling(), name)
        changed: dict[str, Any] = {name: parsed}
        self.sampling = replace(self.sampling, **changed)
        return getattr(self.sampling, name)

    def save(self, path: Path) -> None:
        """Write the messages as one line of a prompt file, which `--prompts` and `load` read.

        Raises:
            InvalidOption: it cannot be written.
        """
        write_text(path, json.dumps({"messages": self._sent(self.messages)}, ensure_ascii=False) + "\n")

    def load(self, path: Path) -> None:
        """Go on with the messages of a file that `save` wrote.

        Raises:
            InvalidFile: it cannot be read, or holds no conversation.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["messages"]
            messages = [{"role": str(one["role"]), "content": str(one["content"])} for one in found]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidFile(f"cannot read a conversation in {path}: {error}", hint="give a saved one") from error
        self.reset()
        if messages and messages[0]["role"] == "system":
            self.system = messages.pop(0)["content"]
        self.messages += messages

    def _sent(self, messages: Sequence[Message]) -> list[Message]:
        return [*([{"role": "system", "content": self.system}] if self.system else []), *messages]


def ask_with_room(conversation: Conversation, text: str) -> tuple[Iterator[Piece], int]:
    """The answer, and how many of the oldest turns were dropped because the context had no room for them.

    Raises:
        InvalidPrompt: see `Conversation.ask`.
        ContextExceeded: not even the message alone leaves room for an answer.
    """
    dropped = 0
    while True:
        try:
            return conversation.ask(text), dropped
        except ContextExceeded:
            if not conversation.forget_oldest():
                raise
            dropped += 1


class _Origins:
    """Which characters of an answer were guessed. The text itself is the engine's, which holds back what a stop string
    may still cut; here the same tokens are decoded one by one."""

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int]) -> None:
        self._stream = TextStream(decode, prompt, ())
        self._guessed: list[bool] = []

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """The text of a chunk, cut where its origin changes."""
        for place, token in enumerate(chunk.tokens):
            self._stream.push((token,))
            self._guessed += [place < len(chunk.step.path)] * len(self._stream.take())
        known, self._guessed = self._guessed[: len(chunk.text)], self._guessed[len(chunk.text) :]
        known += [False] * (len(chunk.text) - len(known))
        start = 0
        for end in range(1, len(known) + 1):
            if end == len(known) or known[end] != known[start]:
                yield Piece(chunk.text[start:end], known[start])
                start = end


class _Reader:
    """Tells the reasoning in the pieces of an answer from the rest. Marks are left out."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._read: deque[tuple[str, bool]] = deque()

    def read(self, piece: Piece) -> Iterator[Piece]:
        """The pieces that are certain with this one."""
        self._read += [(character, piece.guessed) for character in piece.text]
        return self._pieces(self._reply.feed(piece.text))

    def rest(self) -> Iterator[Piece]:
        """The pieces that were held back; the answer has ended."""
        return self._pieces(self._reply.finish())

    def _pieces(self, parts: Sequence[Part]) -> Iterator[Piece]:
        for part in parts:
            if isinstance(part, Reasoning | Content):
                for guessed, characters in groupby(part.text, self._guessed):
                    yield Piece("".join(characters), guessed, isinstance(part, Reasoning))

    def _guessed(self, character: str) -> bool:
        """Whether this character was guessed, which is the next of its kind: what a reply says it has read."""
        while self._read:
            read, guessed = self._read.popleft()
            if read == character:
                return guessed
        return False


def check_chat(name: str, tokenizer: Any) -> None:
    """Refuse a model that cannot chat. name: of the model.

    Raises:
        InvalidPrompt: it has no chat template.
    """
    from headstart.engine.prompts import has_chat_template

    if not has_chat_template(tokenizer):
        hint = "give --model an instruction-tuned model; headstart generate continues a text with any model"
        raise InvalidPrompt(f"{name} has no chat template", hint=hint)
