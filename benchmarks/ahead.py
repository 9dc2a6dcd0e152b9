"""Drafting ahead of the target against drafting in turn and plain decoding, by turns in one process.

    python benchmarks/ahead.py                                               # the bundled pair
    python benchmarks/ahead.py --target DIR --drafter DIR --dtype bfloat16 --quantize int8 --k 5

Reported are medians, over rounds of the three, of tokens per second against plain decoding and against drafting in
turn; the share of rounds whose outcome was foreseen; the time that the engine waited for a draft; and how much slower
the target's forward is while the drafter runs beside it. The texts must be the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from provenance import Provenance
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.base.prompt_sets import read_prompt_set
from headstart.measure.conversations import every_turn
from headstart.measure.samples import sample_prompts
from headstart.types import Step


class Way:
    """One way of decoding. runs: tokens per second of each round."""

    def __init__(self, name: str, engine: hs.Engine) -> None:
        self.name, self.engine = name, engine
        self.speeds: list[float] = []
        self.steps: list[Step] = []
        engine.subscribe(self.steps.append)

    def run(self, prompts: list[Any], sampling: hs.Sampling) -> list[tuple[int, ...]]:
        outputs = [self.engine.generate(prompt, sampling) for prompt in prompts]
        seconds = sum(output.stats.total_seconds - output.stats.seconds_to_first_token for output in outputs)
        self.speeds.append(sum(output.stats.tokens - 1 for output in outputs) / seconds)
        return [output.tokens for output in outputs]

    def figures(self) -> dict[str, Any]:
        judged = [step for step in self.steps if step.index and len(step.draft)]
        found = [each for step in judged if (each := step.draft.prepared) is not None and each.foreseen]
        tokens = sum(len(step.tokens) for step in judged)
        return {
            "way": self.name,
            "tokens_per_second": statistics.median(self.speeds),
            "tokens_per_forward": tokens / len(judged) if judged else 1.0,
            "verify_ms": _middle([1e3 * step.seconds.verify for step in judged or self.steps if step.index]),
            "draft_ms": _middle([1e3 * step.seconds.draft for step in judged]),
            "foreseen_rounds": len(found),
            "hit_rate": sum(each.hit for each in found) / len(found) if found else None,
            "draft_ms_after_a_hit": _middle([1e3 * each.waited for each in found if each.hit]),
            "draft_ms_after_a_miss": _middle([1e3 * each.waited for each in found if not each.hit]),
            "forwards_ahead": statistics.mean(each.forwards for each in found) if found else None,
        }


def _middle(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="bundled")
    parser.add_argument("--drafter", default="bundled")
    parser.add_argument("--prompts", type=Path, default=None, help="default: twelve beginnings of Python files")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize", default=None)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--branches", type=int, nargs="+", default=[8])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=int, default=6, help="prompts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    console = Console()
    provenance = Provenance.now()
    target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize)
    options: dict[str, Any] = {
        "rule": "exact", "pacing": "fixed", "num_speculative_tokens": args.k, "max_batch_size": 1
    }  # fmt: skip
    engines = {"plain": target.engine("none", max_batch_size=1), "in turn": target.engine(args.drafter, **options)}
    for branches in args.branches:
        ahead = hs.Ahead(args.drafter, branches=branches, always=True)
        engines[f"ahead, {branches} outcomes"] = target.engine(ahead, **options)
    items = sample_prompts() if args.prompts is None else read_prompt_set(args.prompts)
    prompts = [each.prompt for each in every_turn(engines["plain"], items[: args.limit], hs.Sampling(max_tokens=1))]
    results = []
    for temperature in args.temperatures:
        sampling = hs.Sampling(max_tokens=args.max_tokens, temperature=temperature, seed=1, ignore_eos=True)
        ways = [Way(name, engine) for name, engine in engines.items()]
        for _ in track(range(args.rounds), f"T={temperature}", console=console):
            texts = {way.name: way.run(prompts, sampling) for way in ways}
            drafted = [text for name, text in texts.items() if name != "plain"]
            if any(text != drafted[0] for text in drafted) or (temperature == 0 and texts["plain"] != drafted[0]):
                raise SystemExit(f"the texts are not the same at temperature {temperature}")
        for way in ways:
            ratios = {
                f"against_{other.name.replace(' ', '_')}": _middle(
                    [mine / theirs for mine, theirs in zip(way.speeds, other.speeds, strict=True)]
                )
                for other in ways[:2]
            }
            results.append({"temperature": temperature, **way.figures(), **ratios})
    show(console, results)
    console.print("\n".join(provenance.lines()))
    if args.output is not None:
        record = {"figures": results, "arguments": {**vars(args), "target": Path(args.target).name, "output": None}}
        args.output.write_text(json.dumps({**record, "provenance": provenance.rows()}, indent=1, default=str) + "\n")


def show(console: Console, results: list[dict[str, Any]]) -> None:
    table = Table(
        "T", "way", "of plain", "of in turn", "tau", "hits", "draft ms", "hit/miss ms", "verify ms", "fw ahead"
    )
    for each in results:
        numbers = [
            f"{each['temperature']:g}",
            each["way"],
            *(f"{each[name]:.2f}" for name in ("against_plain", "against_in_turn", "tokens_per_forward")),
            "" if each["hit_rate"] is None else f"{each['hit_rate']:.2f} of {each['foreseen_rounds']}",
            "" if each["draft_ms"] is None else f"{each['draft_ms']:.2f}",
            " / ".join(
                "-" if each[f"draft_ms_after_a_{name}"] is None else f"{each[f'draft_ms_after_a_{name}']:.2f}"
                for name in ("hit", "miss")
            ),
            f"{each['verify_ms']:.2f}",
            "" if each["forwards_ahead"] is None else f"{each['forwards_ahead']:.1f}",
        ]
        table.add_row(*numbers)
    console.print(table)


if __name__ == "__main__":
    main()
