"""Plain and speculative runs of the same prompts, compared: the table and the verdict on the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from headstart.commands.figures import Total, percent, percentages, speculation_in_words
from headstart.commands.replay import Run
from headstart.commands.terminal import table_of
from headstart.engine.in_turn import PARTS_IN_WORDS, first_difference


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
                "differently. With --rule coupled a seed gives one text, with any drafter or none."
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
