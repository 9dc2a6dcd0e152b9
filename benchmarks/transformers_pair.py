"""headstart against transformers on the same weights, paired: one process, turn by turn, prompt by prompt.

    python benchmarks/transformers_pair.py --target bundled --drafter bundled --prompts FILE [--head bundled]

Batch 1, greedy, exactly --max-tokens new tokens on both sides (no end-of-text), prefill included. Each prompt goes
to every contender before the next prompt, in an order that rotates, so that a machine that slows down slows all of
them; ratios are taken round by round. transformers drafts a constant K tokens and never stops a draft early
(num_assistant_tokens_schedule "constant", confidence threshold 0), as headstart does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from contenders import (
    ASSISTED,
    BOTH,
    DRAFTED,
    LAUNCHED,
    NGRAM,
    OURS,
    PLAIN,
    Contender,
    Sample,
    contenders_for,
    directory,
    more_contenders,
)
from forward import by_rows
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoTokenizer
from transformers.utils import logging

from headstart.base.errors import HeadstartError
from headstart.base.prompt_sets import PromptItem
from headstart.commands.prompts import read_prompts
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.prompts import templated

RATIOS = (
    (OURS, PLAIN),
    (DRAFTED, ASSISTED),
    (NGRAM, PLAIN),
    (DRAFTED, OURS),
    (NGRAM, OURS),
    (BOTH, ASSISTED),
    (BOTH, OURS),
)

FORWARDS = (OURS, OURS + LAUNCHED)


@dataclass(frozen=True)
class Result:
    """A contender's samples: samples[round][prompt]."""

    name: str
    samples: tuple[tuple[Sample, ...], ...]

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each round, all prompts together."""
        return [sum(len(s.tokens) for s in row) / sum(s.seconds for s in row) for row in self.samples]

    @property
    def tokens_per_forward(self) -> float:
        flat = [s for row in self.samples for s in row]
        return sum(len(s.tokens) for s in flat) / sum(s.forwards for s in flat)

    def same(self, other: Result) -> int:
        """On how many prompts the tokens were the other's, in every round."""
        pairs = zip(zip(*self.samples, strict=True), zip(*other.samples, strict=True), strict=True)
        return sum(len({s.tokens for s in (*mine, *theirs)}) == 1 for mine, theirs in pairs)


def paired(
    contenders: Sequence[Contender],
    prompts: Sequence[list[int]],
    new_tokens: int,
    rounds: int,
    watch: Callable[[range], Any] = iter,
) -> dict[str, Result]:
    """Every contender on every prompt, `rounds` times, taking turns; one prompt before that is not counted. On a GPU
    the first round is still one in which shapes are met for the first time."""
    for contender in contenders:
        contender.complete(prompts[0], new_tokens)
    found: dict[str, list[list[Sample]]] = {c.name: [[] for _ in range(rounds)] for c in contenders}
    for turn in watch(range(rounds * len(prompts))):
        round_, prompt = divmod(turn, len(prompts))
        first = (round_ + prompt) % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            found[contender.name][round_].append(contender.complete(prompts[prompt], new_tokens))
    return {name: Result(name, tuple(map(tuple, rows))) for name, rows in found.items()}


def fitting(given: Sequence[PromptItem], tokenizer: Any, room: int, limit: int | None) -> tuple[list[list[int]], int]:
    """The first `limit` prompts of at most `room` tokens, as token ids, and how many were too long for that."""
    sent = (templated(tokenizer, item).prompt for item in given)
    ids = [p if isinstance(p, list) else list(tokenizer(p)["input_ids"]) for p in sent]
    fit = [prompt for prompt in ids if len(prompt) <= room]
    return fit[:limit], len(ids) - len(fit)


def spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratios(results: dict[str, Result]) -> dict[str, list[float]]:
    """Speed of one contender over another, round by round."""
    ours = ((name, PLAIN) for name in results if name.startswith("headstart"))
    named = [(a, b) for a, b in dict.fromkeys((*RATIOS, *ours)) if {a, b} <= results.keys()]
    return {f"{a} / {b}": [x / y for x, y in zip(results[a].speeds, results[b].speeds, strict=True)] for a, b in named}


def report(console: Console, results: dict[str, Result], dtype: str, title: str, notes: Sequence[str]) -> None:
    """Two tables, then what a figure must carry."""
    prompts = len(results[PLAIN].samples[0])
    table = Table(title=title, caption=f'"same tokens": prompts on which they are those of {PLAIN}, in every round')
    for heading in ("", "tokens/s, median (range)", "tokens per forward", f"same tokens, {dtype}"):
        table.add_column(heading, justify="left" if not heading else "right")
    for result in results.values():
        same = f"{result.same(results[PLAIN])} of {prompts}"
        table.add_row(result.name, spread(result.speeds, ".1f"), f"{result.tokens_per_forward:.2f}", same)
    console.print(table)
    faster = Table("ratio of speeds, round by round", "median (range)")
    for name, values in ratios(results).items():
        faster.add_row(name, spread(values, ".2f"))
    console.print(faster)
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def as_json(results: dict[str, Result], facts: dict[str, Any], provenance: Provenance) -> dict[str, Any]:
    rows = {
        name: {
            "tokens_per_second": result.speeds,
            "tokens_per_forward": result.tokens_per_forward,
            "same_tokens_as_transformers": result.same(results[PLAIN]),
            "seconds": [[s.seconds for s in row] for row in result.samples],
            "forwards": [[s.forwards for s in row] for row in result.samples],
        }
        for name, result in results.items()
    }
    return {**facts, "contenders": rows, "ratios": ratios(results), "provenance": asdict(provenance)}


def in_words(forwards: dict[int, float]) -> str:
    return ", ".join(f"{rows}: {1e3 * seconds:.2f}" for rows, seconds in forwards.items())


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled", help='directory or hub id of the target, or "bundled"')
    parser.add_argument("--drafter", default="bundled", help='directory or hub id of the draft LM, or "bundled"')
    parser.add_argument("--prompts", type=Path, required=True, help="Spec-Bench or plain JSONL, or a text file")
    parser.add_argument("--limit", type=int, help="use this many prompts, the first that fit (all of them)")
    parser.add_argument("--max-tokens", type=int, default=96, help="new tokens for each prompt (%(default)s)")
    parser.add_argument("-k", type=int, default=5, help="K, tokens the draft LM guesses at a time (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--head", help="directory of an EAGLE-3 head: more engines of headstart, paced and not")
    parser.add_argument("--threads", type=int, help="of torch (its own choice)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    for name in ("limit", "max_tokens", "k", "rounds", "threads"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if args.threads:
        torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        given = read_prompts(None, args.prompts)
    except HeadstartError as error:
        raise SystemExit(str(error)) from error
    provenance = Provenance.now("headstart", "torch", "transformers")
    sides, model, assistant = contenders_for(args.target, args.drafter, k=args.k, dtype=args.dtype, device=args.device)
    forwards = None
    if args.head:
        names = {"k": args.k, "dtype": args.dtype, "device": model.device}
        head = directory(args.head, "eagle3")
        sides = [*sides[:2], *more_contenders(args.target, directory(args.drafter, "draft"), head, **names)]
        forwards = {side.name: by_rows(side.engine.target, 300, 9) for side in sides if side.name in FORWARDS}
    context = min(m.config.get_text_config().max_position_embeddings for m in (model, assistant))
    tokenizer = AutoTokenizer.from_pretrained(directory(args.target, "target"))
    prompts, dropped = fitting(given, tokenizer, context - args.max_tokens - args.k - 1, args.limit)
    if not prompts:
        raise SystemExit(f"no prompt leaves room for {args.max_tokens} new tokens in a context of {context}")

    results = paired(sides, prompts, args.max_tokens, args.rounds, lambda turns: track(turns, console=console))

    dtype = str(model.dtype).removeprefix("torch.")
    label = "bundled pair" if args.target == "bundled" else Path(args.target).resolve().name
    inflated = any(getattr(m.config, "inflated_from", None) for m in (model, assistant))
    facts = {
        "target": {"name": label, "parameters": model.num_parameters(), "inflated": inflated},
        "draft": {"parameters": assistant.num_parameters(), "k": args.k},
        "ngram_k": NgramDrafter().default_budget,
        "dtype": dtype,
        "prompts": {"file": args.prompts.name, "used": len(prompts), "too_long": dropped},
        "new_tokens": args.max_tokens,
        "rounds": args.rounds,
        "seconds_of_a_forward_by_rows": forwards,
    }
    title = (
        f"{label}{' (inflated models)' if inflated else ''}: {model.num_parameters() / 1e6:.1f}M target, "
        f"{assistant.num_parameters() / 1e6:.1f}M draft, K={args.k}; {dtype}, batch 1, greedy"
    )
    used = f"{len(prompts)} prompts of {args.prompts.name} ({dropped} too long), {args.max_tokens} new tokens each, "
    notes = [f"ms of a forward by rows, {name}: {in_words(found)}" for name, found in (forwards or {}).items()]
    report(console, results, dtype, title, [used + f"{args.rounds} rounds", *notes, *provenance.lines()])
    path = results_file(args.results, f"transformers_pair-{label.replace(' ', '_')}-{dtype}")
    path.write_text(json.dumps(as_json(results, facts, provenance), indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
