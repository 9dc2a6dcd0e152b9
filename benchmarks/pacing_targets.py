"""What adaptive pacing aims at: not slower than plain decoding, near the best fixed K, a list near its best member.

    python benchmarks/pacing_targets.py
    python benchmarks/pacing_targets.py --target DIRECTORY --prompts FILE --drafters ngram suffix HEAD ngram,HEAD

In one process: all sides of a row share the target's weights and take turns prompt by prompt in a rotating order, and a
ratio is the median over pairs of one prompt each. Speeds are tokens per second, prefill included. With --cpu-time the
engine and this script read the process's CPU time in place of the wall clock, on one thread: what an idle machine would
show is then told on a busy one, as far as caches and the other hardware thread allow. The tables are printed, and every
pair behind them is written to results/ as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
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
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing, measuring

DRAFTERS = ("ngram", "suffix", "bundled", "eagle3", "medusa", "ngram,bundled", "ngram,eagle3")
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
PLAIN, ADAPTIVE = "plain", "adaptive"


class Bench:
    """The target, its engines by drafter, and the prompts."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        slots = max(args.batches)
        target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize, max_length=args.max_length)
        self.plain = target.engine("none", max_batch_size=slots)
        self.engines = {name: target.engine(name.split(","), max_batch_size=slots) for name in args.drafters}
        tokenizer = self.plain.tokenizer
        items = read_prompts(None, args.prompts) if args.prompts else [PromptItem(prompt) for prompt in PROMPTS]
        sent = [templated(tokenizer, item).prompt for item in items][: args.limit]
        self.prompts = [self.plain.encode(prompt) for prompt in sent]

    def speeds(
        self, drafter: str, temperature: float, seeded: bool, batch: int
    ) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Tokens per second of every pair by side, and tokens per target forward."""
        engine = self.engines[drafter]
        sides: dict[str, tuple[hs.Engine, int | None]] = {PLAIN: (self.plain, None), ADAPTIVE: (engine, None)}
        sides |= {f"K={k}": (engine, k) for k in self.args.lengths}
        names = list(sides)
        found: dict[str, list[float]] = {name: [] for name in names}
        tokens, forwards = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for pair in range(-1, self.args.pairs):  # the first is not counted
            first = pair * batch % len(self.prompts)
            prompts = [(self.prompts * (batch + 1))[first + i] for i in range(batch)]
            turn = pair % len(names)
            for name in names[turn:] + names[:turn]:
                side, k = sides[name]
                sampling = [
                    hs.Sampling(
                        max_tokens=self.args.max_tokens, temperature=temperature, ignore_eos=True,
                        seed=pair * batch + i + batch if seeded else None, cache_salt=f"{name} {pair} {i}",
                    )
                    for i in range(batch)
                ]  # fmt: skip
                with ExitStack() as stack:
                    if k is not None:
                        stack.enter_context(side.paced(FixedPacing(k)))
                    start = time.perf_counter()
                    outs = side.generate(prompts, sampling)
                    seconds = time.perf_counter() - start
                made = sum(len(out.tokens) for out in outs)
                if pair >= 0:
                    found[name].append(made / seconds)
                    tokens[name] += made
                    forwards[name] += max(out.stats.target_forwards for out in outs)
        return found, {name: tokens[name] / forwards[name] for name in names}


def ratio(found: dict[str, list[float]], side: str, other: str) -> float:
    return median(x / y for x, y in zip(found[side], found[other], strict=True))


def compare(bench: Bench, title: str, temperature: float, seeded: bool, batch: int) -> tuple[Table, dict[str, Any]]:
    """For a reader, and by drafter all that stands behind it: the speed of every pair by side."""
    shown, facts = Table(title=title), {}
    for heading in ("drafter", "/ plain", "best fixed K", "its speed / plain", "/ best fixed", "/ best member", "tau"):
        shown.add_column(heading, justify="left" if heading == "drafter" else "right")
    speeds: dict[str, list[float]] = {}
    for name in bench.args.drafters:
        found, tau = bench.speeds(name, temperature, seeded, batch)
        best = max((f"K={k}" for k in bench.args.lengths), key=lambda side: ratio(found, side, PLAIN))
        over_plain = [x / y for x, y in zip(found[ADAPTIVE], found[PLAIN], strict=True)]
        speeds[name] = over_plain
        members = [median(speeds[part]) for part in name.split(",") if part != name and part in speeds]
        facts[name] = {"tokens_per_second": found, "tokens_per_forward": tau, "best_fixed": best}
        shown.add_row(
            name,
            f"{median(over_plain):.3f}",
            best,
            f"{ratio(found, best, PLAIN):.3f}",
            f"{ratio(found, ADAPTIVE, best):.3f}",
            f"{median(over_plain) / max(members):.3f}" if members else "",
            f"{tau[ADAPTIVE]:.2f}",
        )
    return shown, facts


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled")
    parser.add_argument("--drafters", nargs="+", default=list(DRAFTERS), help="lists with commas, after their members")
    parser.add_argument("--prompts", type=Path, help="JSONL or a text file (the demo's prompts)")
    parser.add_argument("--limit", type=int, help="use the first so many prompts (all)")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--seeds", action="store_true", help="temperatures above 0 also with seeds")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--max-tokens", type=int, default=96)
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
    console, provenance = Console(width=120), Provenance.now("headstart", "torch", "transformers")
    bench = Bench(args)
    label = "bundled_pair" if args.target == "bundled" else Path(args.target).resolve().name
    path = results_file(args.results, f"pacing-targets-{label}")
    tables: dict[str, Any] = {}
    for temperature in args.temperatures:
        for seeded in (False, True) if args.seeds and temperature > 0 else (False,):
            for batch in args.batches:
                seeds = ", with seeds" if seeded else ""
                title = f"temperature {temperature:g}{seeds}, batch {batch}, {args.pairs} pairs"
                shown, tables[title] = compare(bench, title, temperature, seeded, batch)
                console.print(shown)
                facts = {
                    "prompts": args.prompts.name if args.prompts else "of the demo",
                    "new_tokens": args.max_tokens,
                    "clock": "CPU time of the process" if args.cpu_time else "wall",
                    "engine": bench.plain.describe(),
                    "tables": tables,
                    "provenance": asdict(provenance),
                }
                path.write_text(json.dumps(facts, indent=1) + "\n")  # after each table: what is measured is kept
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
