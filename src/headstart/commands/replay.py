"""Two runs of one prompt, recorded token by token: drawn side by side in their true proportion, and compared.

Drawing costs time, on a small machine more than a step of a small model. So nothing is drawn while a run is
measured; what is drawn is a recording, with the time at which each token really came, and the screen says so.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.containers import Lines
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headstart.base.options import values_of
from headstart.base.words import counted
from headstart.commands.figures import Total, percent, percentages, speculation_in_words
from headstart.commands.terminal import harmless, table_of
from headstart.engine import in_turn
from headstart.engine.detokenize import TextStream
from headstart.engine.in_turn import PARTS_IN_WORDS, first_difference
from headstart.types import Output, Sampling, Step

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one token, whether the drafter guessed it, and when it came (seconds from the request)."""

    text: str
    guessed: bool
    at: float


@dataclass(frozen=True)
class Run(in_turn.Run):
    """One measured run, and the text of its tokens as they came."""

    prompt: str
    pieces: tuple[Piece, ...]

    @cached_property
    def _times(self) -> list[float]:
        return [piece.at for piece in self.pieces]

    def until(self, now: float) -> Sequence[Piece]:
        """What had come `now` seconds after the request."""
        return self.pieces[: bisect_right(self._times, now)]


def measure(name: str, engine: Engine, prompt: str, sampling: Sampling) -> Run:
    """Complete the prompt at full speed; all that is added is one clock reading per step.

    Raises:
        NonFiniteLogits: the request ended with an error; there is nothing to compare.
    """
    run = in_turn.run_once(name, engine, prompt, sampling)
    return Run(**values_of(run), prompt=prompt, pieces=_pieces(engine.tokenizer, run.output, run.arrivals))


def _pieces(tokenizer: Any, output: Output, arrivals: Sequence[tuple[float, Step]]) -> tuple[Piece, ...]:
    """The output cut into its tokens. A character spread over several appears with its last one."""
    stream = TextStream(lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)), output.prompt_tokens, ())
    pieces: list[Piece] = []
    for at, step in arrivals:
        for index, token in enumerate(step.tokens):
            stream.push((token,))
            pieces.append(Piece(stream.take(), index < step.accepted, at))
    return tuple(pieces)


GUESSED = "bold green"
_FRAME_SECONDS = 1 / 20
_LAST_FRAME_SECONDS = 0.6
_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.5, 8.0  # of a replay: long enough for the eye, short enough for five prompts
_BORDERS = 2
_STACKED_BELOW = 76  # columns: code in half of less than this would only wrap


def coloured(run: Run, now: float) -> Text:
    """Prompt and text so far; what the drafter guessed stands out."""
    text = Text().append(harmless(run.prompt), style="dim")
    for piece in run.until(now):
        text.append(harmless(piece.text), style=GUESSED if piece.guessed else "")
    return text


def legend() -> Text:
    """What the colour means."""
    return Text.assemble(("green", GUESSED), ": guessed by the drafter, accepted by the target")


def _panel(run: Run, now: float, console: Console, width: int, height: int) -> Panel:
    """The end of the text that fits, under a title with the tokens per second so far."""
    elapsed = min(now, run.seconds)
    shown = len(run.until(now))
    lines = _lines(run, now, console, width)
    return Panel(
        Text("\n").join(lines[-(height - _BORDERS) :]),
        title=f"[bold]{run.name} · {shown / elapsed if elapsed else 0:.0f} tokens/s[/bold]",
        subtitle=f"{counted(shown, 'token')} in {elapsed:.2f} s" + (" ✓" if now >= run.seconds else ""),
        border_style="dim",
        width=width,
        height=height,
    )


def _lines(run: Run, now: float, console: Console, width: int) -> Lines:
    return coloured(run, now).wrap(console, width - 4, tab_size=4)


def frame(runs: Sequence[Run], now: float, caption: str, console: Console) -> RenderableType:
    """The panels beside each other, or above each other on a narrow terminal.

    As high as the finished texts need, and never higher than the screen: a live display cannot scroll.
    """
    columns, rows = console.size
    beside = columns >= _STACKED_BELOW
    width = columns // len(runs) if beside else columns
    most = rows - 3 if beside else (rows - 3) // len(runs)
    needed = max(len(_lines(run, run.seconds, console, width)) for run in runs) + _BORDERS
    panels = [_panel(run, now, console, width, max(_BORDERS + 1, min(needed, most))) for run in runs]
    grid = Table.grid()
    for row in [panels] if beside else [[panel] for panel in panels]:
        grid.add_row(*row)
    return Group(grid, Text(caption, style="dim", no_wrap=True, overflow="ellipsis"))


def pace(run: Run, longest: Run | None = None) -> float:
    """How many times slower than it was (below 1: faster) a recording is to be shown, as a whole factor.

    True speed if the eye can follow it and it does not last long; otherwise slow motion or time lapse. So all prompts
    have the pace of the first run; where `longest` would stand still at it for long, because something else cut in,
    it has its own.
    """
    if longest is not None and longest.seconds * pace(run) > _LONGEST_SECONDS:
        return pace(longest)
    if run.seconds > _LONGEST_SECONDS:
        return 1 / math.ceil(run.seconds / _LONGEST_SECONDS)
    return float(max(1, round(_SHORTEST_SECONDS / run.seconds))) if run.seconds else 1.0


def _pace_in_words(slower: float) -> str:
    if slower == 1:
        return "at true speed"
    factor = f"{slower:.0f}x slower" if slower > 1 else f"{1 / slower:.0f}x faster"
    return f"{factor}, figures as measured"


def replay(runs: Sequence[Run], slower: float, name: str, console: Console) -> None:
    """Show the runs from their common start, `slower` times slower than they were; leave the last frame."""
    caption = f"{name} · measured undisturbed, replayed {_pace_in_words(slower)}"
    end = max(r.seconds for r in runs)
    start = time.perf_counter()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while (now := (time.perf_counter() - start) / slower) < end:
            live.update(frame(runs, now, caption, console), refresh=True)
            time.sleep(_FRAME_SECONDS)
        live.update(frame(runs, end, caption, console), refresh=True)
        time.sleep(_LAST_FRAME_SECONDS)


@dataclass(frozen=True)
class Pair:
    """One prompt's two runs, on the same weights, one right after the other."""

    plain: Run
    fast: Run
    twice: bool = False
    """Whether each was run twice and the faster kept."""

    @property
    def speedup(self) -> float:
        """By tokens per second, so that texts of different lengths compare too."""
        return _speedup(self.plain, self.fast)

    @property
    def differs_at(self) -> int | None:
        """Index of the first token that differs, or None if the runs are the same token for token."""
        return first_difference(self.plain.output.tokens, self.fast.output.tokens)


@dataclass(frozen=True)
class Comparison:
    """All pairs of a demo, and what decides whether their texts may differ."""

    pairs: Sequence[Pair]
    greedy: bool
    coupled: bool
    dtype: str
    width_invariant: bool = False
    """Whether the target's logits have the same bits in a forward of any width."""

    @property
    def plain(self) -> Total:
        return _total([pair.plain for pair in self.pairs])

    @property
    def fast(self) -> Total:
        return _total([pair.fast for pair in self.pairs])

    @property
    def same(self) -> int:
        return sum(pair.differs_at is None for pair in self.pairs)

    @property
    def speedup(self) -> float:
        return _speedup(self.plain, self.fast)

    def table(self) -> Table:
        """tokens/s, speedup, tokens per target forward, acceptance by position, time split, sameness."""
        plain, fast = self.plain, self.fast
        table = table_of("", "plain", "headstart")
        table.columns[-1].overflow = "fold"
        table.add_row("tokens/s", f"{plain.tokens_per_second:.1f}", f"[bold]{fast.tokens_per_second:.1f}[/bold]")
        colour = "yellow" if self.speedup < 1 else "green"
        table.add_row("speedup", "1.00x", f"[bold {colour}]{self.speedup:.2f}x[/bold {colour}]")
        table.add_row("tokens per target forward", f"{plain.tokens_per_forward:.2f}", f"{fast.tokens_per_forward:.2f}")
        table.add_row("guesses accepted", "-", f"{fast.accepted} of {fast.drafted}")
        table.add_row("  at each position, if reached", "-", percentages(fast.acceptance))
        table.add_row("seconds", f"{plain.wall:.2f}", f"{fast.wall:.2f}")
        for name, meaning in _PARTS.items():
            table.add_row(f"  {name}: {meaning}", _part(plain, name), _part(fast, name), style="dim")
        alike = self.same == len(self.pairs)
        colour = "green" if alike else "yellow"
        table.add_row("same text", "", f"[bold {colour}]{self.same} of {len(self.pairs)}[/bold {colour}]")
        return table

    def remarks(self) -> list[Text]:
        """What a reader must know about the figures: texts that differ, and speculation that did not run."""
        remarks = [Text(words, style="yellow") for words in self._on_sameness()]
        if all(pair.twice for pair in self.pairs):
            remarks.append(Text("Each prompt was run twice each way; the faster run counts.", style="dim"))
        if self.speedup < 1 and self.fast.drafted:
            remarks.append(Text(_SLOWER, style="yellow"))
        off = [run.output.stats for pair in self.pairs for run in (pair.fast,) if not run.output.stats.speculation.on]
        remarks += [
            Text(f"Speculation was {words}.", style="yellow") for words in dict.fromkeys(map(speculation_in_words, off))
        ]
        return remarks

    def _on_sameness(self) -> list[str]:
        if self.same == len(self.pairs):
            return []
        if not self.greedy and not self.coupled:
            return [
                "Sampled texts differ although their distribution is the same: rule 'exact' uses the random numbers "
                "differently. With --rule auto or coupled a seed gives one text, with any drafter or none."
            ]
        where = ", ".join(
            f"prompt {number} from its token {pair.differs_at + 1} on"
            for number, pair in enumerate(self.pairs, start=1)
            if pair.differs_at is not None
        )
        if self.dtype == "float32" or self.width_invariant:
            here = f"In {self.dtype}" if self.dtype == "float32" else "With this target's forward"
            return [f"The texts differ: {where}. {here} they should not: please report this with the command."]
        return [
            f"The texts differ: {where}. In {self.dtype} a forward pass of another width rounds differently, and two "
            "nearly equal tokens can change places; both texts are the target's own. --dtype float32 gives one text."
        ]


_SLOWER = (
    "Speculation was slower here: guessing costs more than its accepted guesses save. "
    "Try a smaller drafter, --drafter ngram, or a smaller --k."
)
_PARTS = PARTS_IN_WORDS | {"other": "text, events"}


def _speedup(plain: Run | Total, fast: Run | Total) -> float:
    slow = plain.tokens_per_second
    return fast.tokens_per_second / slow if slow else 0.0


def _total(runs: Sequence[Run]) -> Total:
    return Total(tuple(run.output.stats for run in runs), wall=sum(run.seconds for run in runs))


def _part(total: Total, name: str) -> str:
    share = total.shares[name]
    return f"{share * total.wall:.2f} ({percent(share)})" if share >= 0.005 else "-"
