"""`headstart chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Annotated, Literal

from rich.style import Style
from rich.text import Text

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.base.files import cache_directory
from headstart.base.options import option, values_of
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.figures import Total, stats_table
from headstart.commands.options import but, command
from headstart.commands.structure import StructureOptions
from headstart.commands.terminal import for_stdout, messages, output, print_error, say, unechoed
from headstart.commands.wrapping import WordWrap
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.serve.chat.conversation import Conversation, Piece, ask_with_room, check_chat
from headstart.serve.chat.slash import Slash, whole_message
from headstart.serve.conversation.detect import chat_form
from headstart.serve.conversation.formats import format_named
from headstart.types import Sampling

_CHAT = "Chat"
_GUESSED = Style(color="green")
_THOUGHT = Style(dim=True)


@command(
    "model drafter system temperature top-p max-tokens seed stats colors reasoning quantize num-speculative-tokens "
    "max-model-len threads"
)
def chat(
    *,
    words: list[str] = cli.words(
        "MODEL [MESSAGE]", "The model, as --model takes it, and a message: answer this one, and leave.", most=1
    ),
    system: str = option("", "The system message.", "-s", metavar="TEXT", panel=_CHAT),
    temperature: float | None = option(
        None,
        "Randomness: 0 always takes the likeliest token. Default: what the model's publisher recommends, else 1.",
        "-T",
        panel="Sampling",
    ),
    target: str = cli.TARGET,
    drafter: list[str] = cli.DRAFTER,
    loading: TargetOptions,
    options: Annotated[EngineOptions, but("max_batch_size", "prefix_cache")],
    sampling: Annotated[Sampling, but("temperature", "logprobs", "logprobs_mode", "ignore_eos")] = Sampling(  # noqa: B008
        max_tokens=1024
    ),
    structure: StructureOptions,
    reasoning: Literal["auto", "show", "hide"] = option(
        "auto",
        "Whether to show, dimmed, what a model thinks before it answers. 'auto' shows it on a terminal.",
        panel=_CHAT,
    ),
    chat_format: str = option(
        "",
        "The form of the model's replies, such as harmony. Default: what its tokenizer or chat template says.",
        metavar="NAME",
        panel=_CHAT,
    ),
    colors: bool = option(False, "Show from the start, in colours, which tokens were guessed.", panel=_CHAT),
    history: bool = option(
        True,
        "Remember what was typed, for the arrow keys, from one chat to the next.",
        "--history/--no-history",
        panel=_CHAT,
    ),
    stats: bool = option(False, "Print speed and acceptance after each answer.", panel=_CHAT),
) -> None:
    """Talk to a model. Its answers are those it would write without speculation, and come sooner.

    Without a terminal, standard input is one message, and the answer is all that standard output gets.

    **Examples**

        headstart chat HuggingFaceTB/SmolLM2-135M-Instruct
        headstart chat path/to/model "Why is the sky blue?"
        git diff | headstart chat path/to/model --system "Write a commit message for this diff."
    """  # fmt: skip
    message = words[0] if words else None
    sampling = structure.of(sampling)
    if chat_format:
        format_named(chat_format)
    talks = message is None and sys.stdin.isatty() and sys.stdout.isatty()
    read = _reader(history=history) if talks else None
    options = replace(options, max_batch_size=1, prefix_cache=True)
    with unechoed() if talks else nullcontext(), cli.shown_loading(messages(), target):
        from headstart.loading.load import Target

        loaded = Target(target, **values_of(loading))
        check_chat(loaded.name, loaded.tokenizer)  # before weights are read
        engine = loaded.engine(cli.one_or_all(drafter), **values_of(options))
    drawn = loaded.generation_config.get("temperature", 1.0) if temperature is None else temperature
    form = chat_form(engine.tokenizer, chat_format)
    talk = Conversation(engine, replace(sampling, temperature=drawn), system, form)
    shown = reasoning == "show" or (reasoning == "auto" and sys.stdout.isatty())
    front = _Front(talk, colors=colors, stats=stats, reasoning=shown)
    if read is not None:
        front.converse(read)
        return
    front.answer(sys.stdin.read() if message is None else message, strict=True)


def _reader(*, history: bool) -> Callable[[], str]:
    """Reads a line from a terminal, with editing and the lines of before at the arrow keys."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    lines: History = InMemoryHistory()
    if history:
        folder = cache_directory("chat")
        with suppress(OSError):  # then for this time only
            folder.mkdir(parents=True, exist_ok=True)
            lines = FileHistory(str(folder / "history"))
    session: PromptSession[str] = PromptSession(history=lines)
    return lambda: session.prompt(">>> ")


class _Front:
    """A conversation at a terminal."""

    def __init__(self, talk: Conversation, *, colors: bool, stats: bool, reasoning: bool = True) -> None:
        self._talk = talk
        self._colors, self._stats, self._reasoning = colors, stats, reasoning
        self._console = output()
        self._wrap = WordWrap(self._console.width)
        self._thought = False
        more = {"colors": self._toggle_colors, "reasoning": self._toggle_reasoning, "stats": self._figures}
        self._slash = Slash(talk, more)

    def converse(self, read: Callable[[], str]) -> None:
        """Until /bye or the end of the input."""
        say(messages(), f"Temperature {self._talk.sampling.temperature:g}. Type a message, or /help. /bye ends.", "dim")
        while True:
            try:
                line = whole_message(read)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if line.strip() in ("/bye", "/exit", "/quit"):
                return
            if line.strip():
                self.handle(line)

    def handle(self, line: str) -> None:
        """A message, or a command that begins with a slash. An error is shown, and nothing is lost."""
        try:
            if not line.lstrip().startswith("/"):
                self.answer(line)
            elif words := self._slash.run(line):
                say(messages(), words, "dim")
        except HeadstartError as error:
            print_error(error)

    def answer(self, text: str, *, strict: bool = False) -> None:
        """Write the answer as it comes. Ctrl-C ends it; if `strict`, also the program."""
        start = time.perf_counter()
        pieces, dropped = ask_with_room(self._talk, text)
        self._thought = False
        self._wrap = WordWrap(self._console.width)
        try:
            if dropped:
                gone = counted(dropped, "oldest question")
                say(messages(), f"the context is full: its {gone} and what was answered are forgotten", "dim")
            for piece in pieces:
                self._write(piece)
        except KeyboardInterrupt:
            pieces.close()  # type: ignore[attr-defined]
            if strict:
                raise
        finally:
            print(flush=True)
        if self._stats:
            self._table(time.perf_counter() - start)

    def _write(self, piece: Piece) -> None:
        if piece.reasoning and not self._reasoning:
            return
        if self._thought and not piece.reasoning:
            self._show("\n\n", None)
        self._thought = piece.reasoning
        styles = [_GUESSED] * (self._colors and piece.guessed) + [_THOUGHT] * piece.reasoning
        self._show(for_stdout(piece.text), Style.combine(styles) if styles else None)
        sys.stdout.flush()

    def _show(self, text: str, style: Style | None) -> None:
        """On a terminal in its style, and broken between words."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            sys.stdout.write(text)
            return
        for part, of in self._wrap.take(text, style):
            if of is None:
                sys.stdout.write(part)
            elif part:
                self._console.print(Text(part, of), end="", soft_wrap=True)

    def _toggle_colors(self, _: str) -> str:
        self._colors = not self._colors
        return "green was guessed and then confirmed" if self._colors else "no colours"

    def _toggle_reasoning(self, _: str) -> str:
        self._reasoning = not self._reasoning
        return "what the model thinks is shown" if self._reasoning else "what the model thinks is left out"

    def _figures(self, _: str) -> str:
        if not self._talk.stats:
            raise InvalidOption("there is no answer yet", hint="ask something first")
        self._table(self._talk.stats[-1].total_seconds)
        return ""

    def _table(self, seconds: float) -> None:
        total = Total((self._talk.stats[-1],), seconds)
        messages().print(stats_table(total, chosen=self._talk.drafter_reason))
