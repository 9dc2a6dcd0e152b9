"""What adaptive pacing aims at: not slower than plain decoding, near the best fixed K, a list near its best member.

    python benchmarks/pacing_targets.py
    python benchmarks/pacing_targets.py --target DIRECTORY --prompts FILE --drafters ngram suffix HEAD ngram,HEAD

In one process: every side has an engine of its own on the target's weights, and the sides take turns step by step, so
that a machine whose speed changes from second to second changes it for all of them. A side is measured while its batch
is full: from the step in which the last prompt has been read until it has written so many tokens a request, and no
request of it ends before that. So all sides are measured by as many tokens in as many rows, and not by the row that
happens to end last. With seeds a pair's sides have the same ones, and so the very texts of plain decoding at every
temperature; under --rule exact only drafters that do not draw have them. A ratio is the median over pairs of one batch
of prompts each.

Also told: the microseconds of a step by part. With --cpu-time the engine and this script read the process's CPU time in
place of the wall clock, on one thread: what an idle machine would show is then told on a busy one, as far as caches and
the other hardware thread allow. The tables are printed, and every pair behind them is written to results/ as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table

import headstart as hs
from headstart.base.prompt_sets import PromptItem
from headstart.commands.demo import PROMPTS
from headstart.commands.prompts import read_prompts
from headstart.engine.in_turn import rotated
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing, measuring
from headstart.types import PARTS

DRAFTERS = ("ngram", "suffix", "bundled", "eagle3", "medusa", "ngram,bundled", "ngram,eagle3")
LENGTHS = (1, 2, 4, 8, 16)
SEEDS = {"without": (False,), "with": (True,), "both": (False, True)}
PLAIN, ADAPTIVE = "plain", "adaptive"
AFTER = "after"
"""The part of a step's time that no part of its clock has: events, and what pacing and drafter learn from it."""


@dataclass(frozen=True)
class Told:
    """One side of one pair, while its batch was full."""

    tokens_per_second: float
    tokens_per_forward: float
    """Of a request."""
    drafting: float
    """Share of the steps in which any row had a draft."""
    microseconds: Mapping[str, float]
    """Of a step, by part."""


class Side:
    """One way to write the texts of a batch."""

    def __init__(self, engine: hs.Engine) -> None:
        self.engine = engine

    def begin(self, prompts: Sequence[Sequence[int]], samplings: Sequence[hs.Sampling]) -> None:
        self._requests = [self.engine.submit(*each) for each in zip(prompts, samplings, strict=True)]
        self._tokens = self._steps = self._drafting = 0
        self._parts: Counter[str] = Counter()

    def step(self, enough: int) -> bool:
        """Make one step; returns whether there is another, since fewer than `enough` tokens have been counted."""
        begun = time.perf_counter()
        steps = self.engine.step()
        seconds = time.perf_counter() - begun
        if len(steps) == len(self._requests) and all(step.rows == 1 + len(step.draft) for step in steps):
            self._steps += 1
            self._tokens += sum(len(step.tokens) for step in steps)
            self._drafting += any(len(step.draft) for step in steps)
            self._parts.update({part: getattr(steps[0].seconds, part) for part in PARTS})
            self._parts[AFTER] += seconds - steps[0].seconds.total
        if self._tokens < enough and all(request.finish_reason is None for request in self._requests):
            return True
        for request in self._requests:
            self.engine.cancel(request)
        return False

    def told(self) -> Told:
        return Told(
            tokens_per_second=self._tokens / self._parts.total(),
            tokens_per_forward=self._tokens / self._steps / len(self._requests),
            drafting=self._drafting / self._steps,
            microseconds={part: round(1e6 * seconds / self._steps, 1) for part, seconds in self._parts.items()},
        )


class Bench:
    """The target, its sides by drafter, and the prompts."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        slots = max(args.batches)
        target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize, max_length=args.max_length)
        self.plain = target.engine("none", max_batch_size=slots)
        self._sides: dict[str, dict[str, Side]] = {}
        for name in args.drafters:
            drafter = "auto" if name == "auto" else name.split(",")
            engines = {PLAIN: self.plain, ADAPTIVE: target.engine(drafter, rule=args.rule, max_batch_size=slots)}
            for k in args.lengths:
                engines[f"K={k}"] = target.engine(drafter, rule=args.rule, max_batch_size=slots, pacing=FixedPacing(k))
            self._sides[name] = {side: Side(engine) for side, engine in engines.items()}
        tokenizer = self.plain.tokenizer
        items = read_prompts(None, args.prompts) if args.prompts else [PromptItem(prompt) for prompt in PROMPTS]
        sent = [templated(tokenizer, item).prompt for item in items][: args.limit]
        self.prompts = [self.plain.encode(prompt) for prompt in sent]

    def pairs(self, drafter: str, temperature: float, seeded: bool, batch: int) -> dict[str, list[Told]]:
        """What every pair showed, by side."""
        sides = self._sides[drafter]
        found: dict[str, list[Told]] = {name: [] for name in sides}
        for pair in range(-1, self.args.pairs):  # the first is not counted
            first = pair * batch % len(self.prompts)
            prompts = [(self.prompts * (batch + 1))[first + i] for i in range(batch)]
            for name, side in sides.items():
                side.begin(
                    prompts,
                    [
                        hs.Sampling(
                            max_tokens=self.args.max_length, temperature=temperature, ignore_eos=True,
                            seed=pair * batch + i + batch if seeded else None, cache_salt=f"{name} {pair} {i}",
                        )
                        for i in range(batch)
                    ],
                )  # fmt: skip
            going = rotated(list(sides), pair)
            while going:
                going = [name for name in going if sides[name].step(batch * self.args.new_tokens)]
            if pair >= 0:
                for name, side in sides.items():
                    found[name].append(side.told())
        return found


def ratios(found: Mapping[str, Sequence[Told]], side: str, other: str) -> list[float]:
    """Tokens per second of a side over those of another one, pair by pair."""
    both = zip(found[side], found[other], strict=True)
    return [mine.tokens_per_second / theirs.tokens_per_second for mine, theirs in both]


def ratio(found: Mapping[str, Sequence[Told]], side: str, other: str) -> float:
    return median(ratios(found, side, other))


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.3f} ({min(values):.2f} to {max(values):.2f})"


def compare(bench: Bench, title: str, temperature: float, seeded: bool, batch: int) -> tuple[Table, Table, Any]:
    """Speeds and microseconds for a reader, and by drafter all that stands behind them."""
    shown, facts = Table(title=title), {}
    headings = (
        "drafter",
        "/ plain",
        "best fixed K",
        "its speed / plain",
        "/ best fixed",
        "/ best member",
        "tau",
        "steps",
    )
    for heading in headings:
        shown.add_column(heading, justify="left" if heading == "drafter" else "right")
    parts = Table("drafter", "side", *PARTS, AFTER, "whole", title=f"{title}: microseconds of a step")
    speeds: dict[str, list[float]] = {}
    for name in bench.args.drafters:
        found = bench.pairs(name, temperature, seeded, batch)
        best = max((f"K={k}" for k in bench.args.lengths), key=lambda side: ratio(found, side, PLAIN))
        speeds[name] = ratios(found, ADAPTIVE, PLAIN)
        members = [median(speeds[part]) for part in name.split(",") if part != name and part in speeds]
        adaptive = found[ADAPTIVE]
        facts[name] = {
            "best_fixed": best,
            "over_plain": median(speeds[name]),
            "over_best_fixed": ratio(found, ADAPTIVE, best),
            "sides": {side: [asdict(each) for each in pairs] for side, pairs in found.items()},
        }
        shown.add_row(
            name,
            spread(speeds[name]),
            best,
            f"{ratio(found, best, PLAIN):.3f}",
            spread(ratios(found, ADAPTIVE, best)),
            f"{median(speeds[name]) / max(members):.3f}" if members else "",
            f"{median(each.tokens_per_forward for each in adaptive):.2f}",
            f"{median(each.drafting for each in adaptive):.0%}",
        )
        for side in (PLAIN, ADAPTIVE, best):
            medians = [median(each.microseconds[part] for each in found[side]) for part in (*PARTS, AFTER)]
            parts.add_row(name, side, *(f"{each:.0f}" for each in (*medians, sum(medians))))
    return shown, parts, facts


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled")
    parser.add_argument("--drafters", nargs="+", default=list(DRAFTERS), help="lists with commas, after their members")
    parser.add_argument("--prompts", type=Path, help="JSONL or a text file (the demo's prompts)")
    parser.add_argument("--limit", type=int, help="use the first so many prompts (all)")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--seeds", choices=list(SEEDS), default="without", help="at temperatures above 0")
    parser.add_argument("--rule", choices=["auto", "exact", "coupled"], default="auto", help="of the sides that draft")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--new-tokens", type=int, default=96, help="of a request, on average over a batch")
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    if args.cpu_time:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time
        measuring._waited = lambda: 0.0  # that clock does not count it
    console, provenance = Console(width=140), Provenance.now("headstart", "torch", "transformers")
    bench = Bench(args)
    label = "bundled_pair" if args.target == "bundled" else Path(args.target).resolve().name
    path = results_file(args.results, f"pacing-targets-{label}")
    tables: dict[str, Any] = {}
    for temperature in args.temperatures:
        for seeded in SEEDS[args.seeds] if temperature > 0 else (False,):
            for batch in args.batches:
                seeds = ", with seeds" if seeded else ""
                title = f"temperature {temperature:g}{seeds}, batch {batch}, {args.pairs} pairs"
                shown, parts, tables[title] = compare(bench, title, temperature, seeded, batch)
                console.print(shown, parts)
                facts = {
                    "prompts": args.prompts.name if args.prompts else "of the demo",
                    "new_tokens": args.new_tokens,
                    "clock": "CPU time of the process" if args.cpu_time else "wall",
                    "rule": args.rule,
                    "engine": bench.plain.describe() | {"target": Path(args.target).resolve().name},
                    "tables": tables,
                    "provenance": asdict(provenance),
                }
                path.write_text(json.dumps(facts, indent=1) + "\n")  # after each table: what is measured is kept
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
