"""Adaptive pacing against plain decoding, fixed draft lengths and the simple rule: simulated, and on models.

    python benchmarks/pacing.py --simulate
    python benchmarks/pacing.py --simulate --mixtures
    python benchmarks/pacing.py --simulate --mixtures --steps 24 --seeds 40      # short texts, the first of an engine
    python benchmarks/pacing.py --target bundled --drafter bundled --prompts FILE

On models, greedy and prefill included, all contenders share the target's weights and take turns batch by batch in a
rotating order; ratios are taken round by round. Parts: `lengths` (fixed K against adaptive), `random` (a draft of
random weights), `slow` (the target as its own draft, and one slower still), `switching` (guesses that are right in
every other stretch of 100 tokens, by construction), `batch` (batches of 1, 4, 8, 16).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import pacing_simulation
import torch
from pacing_life import (
    PLAIN,
    Contender,
    Sample,
    SlowDraft,
    StretchOracle,
    Teacher,
    engine_on,
    own_draft,
    paired,
    random_draft,
)
from pacing_stepwise import StepwisePacing
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.base.prompt_sets import PromptItem
from headstart.commands.demo import PROMPTS
from headstart.commands.prompts import read_prompts
from headstart.drafters import capabilities
from headstart.drafters.draft_model import DraftModel
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
PARTS = ("lengths", "random", "slow", "switching", "batch")
BATCHES = (1, 4, 8, 16)
SWITCHING_TOKENS = 400


class Bench:
    """The models, the prompts, and one method for each part."""

    def __init__(self, args: argparse.Namespace, console: Console) -> None:
        self.args, self.console = args, console
        self.loaded = hs.load(
            args.target, args.drafter, dtype=args.dtype, pacing="fixed", max_batch_size=max(BATCHES), max_length=1024
        )
        self.target = self.loaded.target
        drafter = self.loaded.drafter
        assert drafter is not None
        self.drafter = drafter
        self.draft = next(part for part in capabilities.parts(drafter) if isinstance(part, DraftModel))
        given = read_prompts(None, args.prompts) if args.prompts else [PromptItem(text) for text in PROMPTS]
        sent = [templated(self.loaded.tokenizer, item).prompt for item in given]
        ids = [p if isinstance(p, list) else list(self.loaded.tokenizer(p)["input_ids"]) for p in sent]
        room = self.target.max_length - SWITCHING_TOKENS
        self.prompts = [prompt for prompt in ids if len(prompt) < room][: args.limit]
        self.plain = Contender(PLAIN, engine_on(self.target, None, None, max(BATCHES)))

    def run(self, part: str) -> dict[str, dict[str, list[list[Sample]]]]:
        found = getattr(self, part)()
        for title, samples in found.items():
            report(self.console, title, samples)
        return found  # type: ignore[no-any-return]

    def _paired(self, others: Sequence[Contender], batch: int = 1) -> dict[str, list[list[Sample]]]:
        prompts = [self.prompts[i : i + batch] for i in range(0, len(self.prompts), batch)]
        if batch > 1:  # whole batches only, prompts over again where there are too few
            several = (self.prompts * batch)[: max(batch, len(self.prompts) // batch * batch)]
            prompts = [several[i : i + batch] for i in range(0, len(several), batch)][:4]
        turns = lambda r: track(r, console=self.console, transient=True)  # noqa: E731
        return paired([self.plain, *others], prompts, self.args.max_tokens, self.args.rounds, watch=turns)

    def _all(self, drafter: Any, lengths: Sequence[int] = ()) -> list[Contender]:
        fixed = [Contender(f"K={k}", engine_on(self.target, drafter, FixedPacing(k), 1)) for k in lengths]
        simple = Contender("stepwise", engine_on(self.target, drafter, StepwisePacing(), 1))
        return [*fixed, simple, Contender("adaptive", engine_on(self.target, drafter, None, 1))]

    def lengths(self) -> dict[str, Any]:
        both = Contender("adaptive, all drafters", engine_on(self.target, self.drafter, None, 1))
        fixed = Contender("fixed, all drafters", engine_on(self.target, self.drafter, self.loaded.pacing, 1))
        return {"draft LM": self._paired([*self._all(self.draft, LENGTHS), fixed, both])}

    def random(self) -> dict[str, Any]:
        drafter = random_draft(self.target, self.draft.runner, 1)
        return {"a draft of random weights": self._paired(self._all(drafter, (4,)))}

    def slow(self) -> dict[str, Any]:
        own, slower = own_draft(self.target, 1), SlowDraft(self.target, 1)
        return {
            "the target as its own draft": self._paired(self._all(own, (4,))),
            "a draft slower than the target": self._paired(self._all(slower, (4,))),
        }

    def switching(self) -> dict[str, Any]:
        teacher = Teacher(self.draft, self.target.vocab_size)
        texts = {tuple(p): self.plain.complete([p], SWITCHING_TOKENS).texts[0] for p in self.prompts}

        def prepare(batch: Sequence[list[int]]) -> None:
            teacher.prompt, teacher.text = len(batch[0]), (*batch[0], *texts[tuple(batch[0])])

        oracles = [
            Contender(f"oracle, K={k}", engine_on(self.target, teacher, StretchOracle(k), 1)) for k in (4, 8, 12)
        ]
        sides = [self.plain, *self._all(teacher, (1, 2, 4, 8)), *oracles]
        batches = [[prompt] for prompt in self.prompts]
        return {"switching every 100 tokens": paired(sides, batches, SWITCHING_TOKENS, self.args.rounds, prepare)}

    def batch(self) -> dict[str, Any]:
        found = {}
        noise = random_draft(self.target, self.draft.runner, max(BATCHES))
        for batch in BATCHES:
            sides = [
                Contender("fixed", engine_on(self.target, self.drafter, self.loaded.pacing, max(BATCHES))),
                Contender("adaptive", engine_on(self.target, self.drafter, None, max(BATCHES))),
                Contender("adaptive, draft LM", engine_on(self.target, self.draft, None, max(BATCHES))),
                Contender("adaptive, random weights", engine_on(self.target, noise, None, max(BATCHES))),
            ]
            found[f"batch {batch}"] = self._paired(sides, batch)
        return found


def speeds(samples: Sequence[Sequence[Sample]]) -> list[float]:
    """Tokens per second of each round."""
    return [sum(s.tokens for s in row) / sum(s.seconds for s in row) for row in samples]


def ratios(samples: dict[str, list[list[Sample]]], name: str) -> list[float]:
    return [x / y for x, y in zip(speeds(samples[name]), speeds(samples[PLAIN]), strict=True)]


def report(console: Console, title: str, samples: dict[str, list[list[Sample]]]) -> None:
    table = Table(title=title)
    for heading in (
        "",
        "tokens/s, median (range)",
        "/ plain, median (range)",
        "tokens/forward",
        "drafted/forward",
        "same",
    ):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, rows in samples.items():
        flat = [sample for row in rows for sample in row]
        forwards = sum(s.forwards for s in flat)
        plain = [sample.texts for row in samples[PLAIN] for sample in row]
        table.add_row(
            name,
            spread(speeds(rows), ".1f"),
            spread(ratios(samples, name), ".3f"),
            f"{sum(s.tokens for s in flat) / forwards:.2f}",
            f"{sum(s.drafted for s in flat) / forwards:.2f}",
            f"{sum(s.texts == other for s, other in zip(flat, plain, strict=True))} of {len(flat)}",
        )
    console.print(table)


def spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def report_simulation(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title="simulated: tokens/s over plain decoding")
    for heading in (
        "costs",
        "text",
        "best fixed K",
        "its speed",
        "stepwise",
        "adaptive",
        "oracle",
        "/ fixed",
        "/ oracle",
    ):
        table.add_column(heading)
    for row in rows:
        fixed = {"K=0": 1.0} | {name: value for name, value in row.items() if name.startswith("K=")}
        best = max(fixed, key=fixed.__getitem__)
        table.add_row(
            row["world"], row["text"], best, f"{fixed[best]:.2f}", f"{row['stepwise']:.2f}", f"{row['adaptive']:.2f}",
            f"{row['oracle']:.2f}", f"{row['adaptive'] / fixed[best]:.3f}", f"{row['adaptive'] / row['oracle']:.3f}",
        )  # fmt: skip
    console.print(table)


def as_json(found: dict[str, dict[str, list[list[Sample]]]]) -> dict[str, Any]:
    return {
        title: {
            name: {
                "tokens_per_second": speeds(rows),
                "over_plain": ratios(samples, name),
                "seconds": [[s.seconds for s in row] for row in rows],
                "forwards": [[s.forwards for s in row] for row in rows],
                "drafted": [[s.drafted for s in row] for row in rows],
                "last_reason": rows[-1][-1].reason,
            }
            for name, rows in samples.items()
        }
        for title, samples in found.items()
    }


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--simulate", action="store_true", help="no models: made-up guesses and costs")
    parser.add_argument("--mixtures", action="store_true", help="with --simulate: mixtures of experts")
    parser.add_argument("--tokens", type=int, default=2000, help="of each simulated row (%(default)s)")
    parser.add_argument("--steps", type=int, help="of each simulated row, where it is to end sooner")
    parser.add_argument("--seeds", type=int, default=4, help="of the simulation (%(default)s)")
    parser.add_argument("--target", default="bundled", help='directory or hub id of the target, or "bundled"')
    parser.add_argument("--drafter", nargs="+", default=["ngram", "bundled"], help="one draft LM, others beside it")
    parser.add_argument("--prompts", type=Path, help="JSONL or a text file (the demo's prompts)")
    parser.add_argument("--limit", type=int, help="use this many prompts, the first that fit (all)")
    parser.add_argument("--max-tokens", type=int, default=96, help="new tokens for each prompt (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--threads", type=int, help="of torch (its own choice)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 130)
    if args.threads:
        torch.set_num_threads(args.threads)
    provenance = Provenance.now("headstart", "torch", "transformers")
    if args.simulate:
        worlds = pacing_simulation.MIXTURES if args.mixtures else pacing_simulation.WORLDS
        processes = pacing_simulation.MIXED if args.mixtures else pacing_simulation.PROCESSES
        rows = pacing_simulation.simulate(worlds, processes, tokens=args.tokens, seeds=args.seeds, steps=args.steps)
        report_simulation(console, rows)
        facts: dict[str, Any] = {"simulated": rows, "steps": args.steps}
        label = "simulated-mixtures" if args.mixtures else "simulated"
    else:
        bench = Bench(args, console)
        described = bench.loaded.describe()
        facts = {
            "dtype": described["dtype"],
            "prompts": {"file": args.prompts.name if args.prompts else "of the demo", "used": len(bench.prompts)},
            "new_tokens": args.max_tokens,
            "parts": {part: as_json(bench.run(part)) for part in args.parts},
        }
        name = "bundled_pair" if args.target == "bundled" else Path(args.target).resolve().name
        label = f"{name}-{described['dtype']}"
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    path = results_file(args.results, f"pacing-{label}")
    path.write_text(json.dumps({**facts, "provenance": asdict(provenance)}, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
