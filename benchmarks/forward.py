"""What a forward costs: by rows, against the bytes it must read; a draft step; and a step's time outside forwards.

    python benchmarks/forward.py --target DIR --drafter DIR [--quantize int8]

The limit is (bytes of weights) / (read bandwidth); the bandwidth is measured here, before and after, as
doctor does it. Times are medians over interleaved repetitions: all row counts take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from contenders import directory
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table

import headstart as hs
from headstart.commands.prompts import read_prompts
from headstart.engine.prompts import templated
from headstart.model.native.memory import read_bandwidth
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft, Seconds

ROWS = (1, 2, 4, 6, 8, 9, 16, 32, 48, 60)


def _seconds(work: Callable[[], Any]) -> float:
    _settle()
    start = time.perf_counter()
    work()
    _settle()
    return time.perf_counter() - start


def _settle() -> None:
    """Wait for what a GPU is still at."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def weight_bytes(runner: ModelRunner) -> int:
    """Bytes one forward must read: every matrix once (the embedding only row by row, unless it is the head)."""
    text = runner.config.get_text_config()
    layer = sum(p.numel() for p in _shapes(text))
    numbers = layer * text.num_hidden_layers + text.vocab_size * text.hidden_size
    return numbers * (1 if runner.quantize == "int8" else runner.dtype.itemsize)


def _shapes(text: Any) -> list[torch.Tensor]:
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = (text.num_attention_heads, text.num_key_value_heads, text.num_key_value_heads)
    shapes = [(n * dim, text.hidden_size) for n in (*heads, text.num_attention_heads)]
    return [torch.empty(s, device="meta") for s in [*shapes, *[(text.intermediate_size, text.hidden_size)] * 3]]


def by_rows(runner: ModelRunner, context: int, repetitions: int) -> dict[int, float]:
    """Median seconds of a forward of n rows, a chain after `context` cached tokens, for each n in turn."""
    cache = runner.new_cache(1)
    slot = cache.acquire()
    tokens = torch.randint(
        runner.vocab_size, (context + max(ROWS),), generator=torch.Generator().manual_seed(0)
    ).tolist()
    runner.forward([Segment(slot, tuple(tokens[:context]))], cache)
    cache.keep(slot, context)
    segments = {n: Segment(slot, (tokens[context],), Draft.chain(tokens[context + 1 : context + n]), n) for n in ROWS}
    found: dict[int, list[float]] = {n: [] for n in ROWS}
    for _ in range(repetitions + 1):
        for n, segment in segments.items():
            found[n].append(_seconds(lambda s=segment: runner.forward([s], cache)))  # type: ignore[misc]
    return {n: median(times[1:]) for n, times in found.items()}


def split(engine: hs.Engine, prompts: list[Any], new_tokens: int) -> dict[str, float]:
    """Seconds per target forward by part, over all prompts; "other" is what no part counts."""
    sampling = hs.Sampling(max_tokens=new_tokens, ignore_eos=True)
    engine.generate(prompts[0], sampling)
    seconds, total, forwards, tokens = Seconds(), 0.0, 0, 0
    for prompt in prompts:
        start = time.perf_counter()
        out = engine.generate(prompt, sampling)
        total += time.perf_counter() - start
        seconds += out.stats.seconds
        forwards += out.stats.target_forwards + out.stats.prefill_forwards
        tokens += len(out.tokens)
    parts = {name: value / forwards for name, value in asdict(seconds).items()}
    parts["other"] = (total - seconds.total) / forwards
    outside = parts["plan"] + parts["sample"] + parts["commit"] + parts["other"]
    return {**parts, "outside": outside / (total / forwards), "tokens_per_second": tokens / total}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled")
    parser.add_argument("--drafter", default="bundled")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=3, help="prompts used (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--context", type=int, default=200, help="cached tokens while forwards are timed (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    provenance = Provenance.now("headstart", "torch", "transformers")
    bandwidth = read_bandwidth()
    engine = hs.load(
        directory(args.target, "target"),
        [directory(args.drafter, "draft")],
        dtype=args.dtype,
        quantize=args.quantize,
        max_batch_size=1,
    )
    draft = engine.drafter.runner  # type: ignore[union-attr]
    times = by_rows(engine.target, args.context, args.repetitions)
    draft_times = by_rows(draft, args.context, 3 * args.repetitions)
    bandwidth = max(bandwidth, read_bandwidth())
    limit, draft_limit = weight_bytes(engine.target) / bandwidth, weight_bytes(draft) / bandwidth
    items = read_prompts(None, args.prompts)[: args.limit]
    prompts = [templated(engine.tokenizer, item).prompt for item in items]
    parts = {
        "plain": split(engine.plain(), prompts, args.max_tokens),
        "drafting": split(engine, prompts, args.max_tokens),
    }

    table = Table(title=f"{Path(args.target).name}, {args.quantize or engine.describe()['dtype']}: seconds by rows")
    for heading in ("rows", "target, ms", "of one row", "share of the limit", "draft, ms"):
        table.add_column(heading, justify="right")
    for n in ROWS:
        share = f"{limit / times[n]:.2f}" if n == 1 else ""
        table.add_row(
            str(n), f"{times[n] * 1e3:.2f}", f"{times[n] / times[1]:.2f}", share, f"{draft_times[n] * 1e3:.2f}"
        )
    console.print(table)
    step, bound = draft_times[1] * 1e3, 1.3 * draft_limit * 1e3 + 0.4
    console.print(
        f"read bandwidth {bandwidth / 1e9:.1f} GB/s; limit {limit * 1e3:.1f} ms; draft step {step:.2f} ms "
        f"({draft.quantize or draft.dtype}), 1.3 x its limit + 0.4 ms is {bound:.2f} ms"
    )
    for name, values in parts.items():
        milliseconds = ", ".join(f"{part} {values[part] * 1e3:.2f}" for part in (*asdict(Seconds()), "other"))
        console.print(f"{name}: {milliseconds} ms per forward; outside forwards {values['outside']:.1%}")
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    facts = {
        "target": Path(args.target).name,
        "quantize": args.quantize,
        "dtype": engine.describe()["dtype"],
        "read_bandwidth": bandwidth,
        "limit": limit,
        "seconds_by_rows": times,
        "draft": {"limit": draft_limit, "quantize": draft.quantize, "seconds_by_rows": draft_times},
        "parts": parts,
        "provenance": asdict(provenance),
    }
    kind = args.quantize or engine.describe()["dtype"]
    path = results_file(args.results, f"forward-{Path(args.target).name}-{kind}")
    path.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
