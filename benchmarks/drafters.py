"""Every drafter on one target: tokens per forward, acceptance by depth, the draft's share of the time, and what it
gains.

    python benchmarks/drafters.py --prompts FILE
    python benchmarks/drafters.py --target DIR --drafter DIR --prompts FILE --temperature 0 1

Batch 1, prefill included, adaptive pacing with costs measured in this run. All drafters share the target's weights and
take turns prompt by prompt in a rotating order; ratios are taken round by round against plain decoding of the same
temperature. At temperature 0 every text must be the plain one (where the forward is width-invariant), and it is
checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pacing_life import engine_on
from provenance import Provenance
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.commands.demo import PROMPTS
from headstart.commands.prompts import read_prompts
from headstart.drafters import Drafter
from headstart.drafters.cascade import Cascade
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.lookahead import LookaheadDrafter
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.drafters.suffix_store import SuffixStore

PLAIN = "plain"
SHOWN = 5
"""Depths whose acceptance the table shows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion. tested, held: by depth, how often a guess's fate was known, and how often it was accepted."""

    text: tuple[int, ...]
    seconds: float
    drafting: float
    forwards: int
    tested: tuple[int, ...]
    held: tuple[int, ...]

    @classmethod
    def of(cls, out: hs.Output) -> Sample:
        stats = out.stats
        if out.error is not None or stats.speculation.error is not None:
            raise RuntimeError("a drafter did not run as asked") from (out.error or stats.speculation.error)
        return cls(
            out.tokens,
            stats.total_seconds,
            stats.seconds.draft,
            stats.target_forwards,
            stats.drafted_per_position,
            stats.accepted_per_position,
        )


def drafters(draft: DraftModel, text: Sequence[int]) -> dict[str, Callable[[], Drafter]]:
    """What takes part. Past outputs are kept by one of the suffix drafters only: the prompts come again each round."""
    return {
        "n-gram": NgramDrafter,
        "suffix": SuffixDrafter,
        "suffix, trees": lambda: SuffixDrafter(tree=True),
        "suffix, past outputs": lambda: SuffixDrafter(store=SuffixStore()),
        "lookahead": LookaheadDrafter,
        "early exit": lambda: EarlyExitDrafter(text=text),
        "draft LM": lambda: draft,
        "n-gram, draft LM": lambda: Cascade([NgramDrafter(longest=5, shortest=3), draft]),
        "suffix, draft LM": lambda: Cascade([SuffixDrafter(shortest=2), draft]),
    }


def speeds(rows: Sequence[Sequence[Sample]]) -> list[float]:
    """Tokens per second of each round."""
    return [sum(len(s.text) for s in row) / sum(s.seconds for s in row) for row in rows]


def by_depth(samples: Sequence[Sample]) -> list[float]:
    """Conditional acceptance: of the guesses whose forerunners were right."""
    deepest = max((len(s.tested) for s in samples), default=0)
    tested = [sum(s.tested[d] for s in samples if d < len(s.tested)) for d in range(deepest)]
    held = [sum(s.held[d] for s in samples if d < len(s.held)) for d in range(deepest)]
    return [h / t if t else 0.0 for h, t in zip(held, tested, strict=True)]


def facts_of(rows: Sequence[Sequence[Sample]], plain: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    flat = [sample for row in rows for sample in row]
    texts = [sample.text for row in plain for sample in row]
    return {
        "tokens_per_second": speeds(rows),
        "over_plain": [x / y for x, y in zip(speeds(rows), speeds(plain), strict=True)],
        "tokens_per_forward": sum(len(s.text) for s in flat) / sum(s.forwards for s in flat),
        "acceptance_by_depth": by_depth(flat),
        "drafted": sum(sum(s.tested) for s in flat),
        "drafting_share": sum(s.drafting for s in flat) / sum(s.seconds for s in flat),
        "same_texts": sum(s.text == text for s, text in zip(flat, texts, strict=True)),
        "texts": len(flat),
    }


def report(console: Console, title: str, found: dict[str, dict[str, Any]]) -> None:
    table = Table(title=title)
    for heading in (
        "",
        "tokens/s",
        "/ plain, median (range)",
        "tokens/forward",
        "acceptance by depth",
        "drafting",
        "same",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    for name, facts in found.items():
        over = facts["over_plain"]
        table.add_row(
            name,
            f"{median(facts['tokens_per_second']):.1f}",
            f"{median(over):.2f} ({min(over):.2f} to {max(over):.2f})",
            f"{facts['tokens_per_forward']:.2f}",
            " ".join(f"{a:.2f}" for a in facts["acceptance_by_depth"][:SHOWN]),
            f"{facts['drafting_share']:.0%}",
            f"{facts['same_texts']} of {facts['texts']}",
        )
    console.print(table)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled", help='directory or hub id of the target, or "bundled"')
    parser.add_argument("--drafter", default="bundled", help="the draft LM")
    parser.add_argument("--prompts", type=Path, help="JSONL or a text file (the demo's prompts)")
    parser.add_argument("--limit", type=int, default=8, help="prompts used, the first that fit (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=96, help="new tokens for each prompt (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--only", nargs="+", help="these drafters (all)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    provenance = Provenance.now("headstart", "torch", "transformers")
    loaded = hs.load(
        args.target, args.drafter, dtype=args.dtype, quantize=args.quantize, pacing="fixed", max_batch_size=1,
        max_length=1024,
    )  # fmt: skip
    draft = loaded.drafting.drafter
    assert isinstance(draft, DraftModel), "--drafter is a draft LM"
    given = read_prompts(None, args.prompts) if args.prompts else list(PROMPTS)
    ids = [p if isinstance(p, list) else list(loaded.tokenizer(p)["input_ids"]) for p in given]
    prompts = [prompt for prompt in ids if len(prompt) + args.max_tokens < loaded.target.max_length][: args.limit]
    makers = drafters(draft, prompts[0][:8])
    if unknown := set(args.only or ()) - set(makers):
        raise SystemExit(f"--only {' '.join(sorted(unknown))}: the drafters are {', '.join(makers)}")
    chosen = {name: make() for name, make in makers.items() if not args.only or name in args.only}
    engines = {PLAIN: engine_on(loaded.target, None, None, 1)}
    engines |= {name: engine_on(loaded.target, drafter, None, 1) for name, drafter in chosen.items()}

    tables: dict[str, dict[str, Any]] = {}
    for temperature in args.temperature:
        samples = run(engines, prompts, temperature, args, console)
        tables[f"T={temperature:g}"] = {name: facts_of(rows, samples[PLAIN]) for name, rows in samples.items()}
        report(
            console,
            f"{Path(args.target).name}, {loaded.describe()['dtype']}, T={temperature:g}",
            tables[f"T={temperature:g}"],
        )
    exits = {name: d.layer for name, d in chosen.items() if isinstance(d, EarlyExitDrafter)}
    for name, layer in exits.items():
        console.print(f"{name}: after layer {layer} of {loaded.target.layers}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    facts = {
        "prompts": {"file": args.prompts.name if args.prompts else "of the demo", "used": len(prompts)},
        "new_tokens": args.max_tokens,
        "engine": loaded.describe(),
        "exits": exits,
        "tables": tables,
        "provenance": asdict(provenance),
    }
    label = "bundled_pair" if args.target == "bundled" else Path(args.target).resolve().name
    args.results.mkdir(parents=True, exist_ok=True)
    path = (
        args.results
        / f"drafters-{label}-{args.quantize or loaded.describe()['dtype']}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    )
    path.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


def run(
    engines: dict[str, hs.Engine],
    prompts: Sequence[list[int]],
    temperature: float,
    args: argparse.Namespace,
    console: Console,
) -> dict[str, list[list[Sample]]]:
    """samples[name][round][prompt]; one short completion of each before that is not counted."""
    names = list(engines)
    found: dict[str, list[list[Sample]]] = {name: [[] for _ in range(args.rounds)] for name in names}
    for engine in engines.values():
        engine.generate(list(prompts[0]), hs.Sampling(max_tokens=16, ignore_eos=True))
    for turn in track(range(args.rounds * len(prompts)), console=console, transient=True):
        round_, number = divmod(turn, len(prompts))
        sampling = hs.Sampling(max_tokens=args.max_tokens, ignore_eos=True, temperature=temperature, seed=number)
        first = (round_ + number) % len(names)
        for name in (*names[first:], *names[:first]):
            found[name][round_].append(Sample.of(engines[name].generate(list(prompts[number]), sampling)))
    return found


if __name__ == "__main__":
    main()
