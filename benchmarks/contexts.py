"""What a forward costs after a context of some length, by rows, with keys and values in the model's dtype and in int8,
in turn; and how fast prompts of some length are read.

    python benchmarks/contexts.py --target DIR_OR_GGUF [--context 512,4096,16384] [--rows 1,4,8] [--prompts 512,1900]

The text is made up: what it says changes no time. A context is not read but pretended, so that 32,000 tokens can be
timed in seconds. Times are the least of interleaved repetitions.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table

import headstart as hs
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

CHUNK = 512


def numbers(given: str) -> list[int]:
    return [int(number) for number in given.split(",") if number]


def pretended(runner: ModelRunner, dtype: torch.dtype) -> Any:
    """A cache of one slot, which is taken, with small numbers in it."""
    runner.cache_dtype = dtype
    cache = runner.new_cache(1)
    cache.acquire()
    for tensor in (*cache.keys.values(), *cache.values.values()):
        tensor.zero_()
    return cache


def _seconds(runner: ModelRunner, cache: Any, context: int, rows: int) -> float:
    """Of one forward."""
    cache.pretend(0, context)
    segment = Segment(0, tuple(3 + number % 200 for number in range(rows)), judged=min(rows, 64))
    start = time.perf_counter()
    runner.forward([segment], cache)
    return time.perf_counter() - start


def _prompt(runner: ModelRunner, cache: Any, length: int) -> float:
    """Seconds in which a prompt is read, CHUNK tokens at a time."""
    steps = [(at, min(CHUNK, length - at)) for at in range(0, length, CHUNK)]
    return sum(_seconds(runner, cache, at, rows) for at, rows in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--quantize")
    parser.add_argument("--context", type=numbers, default=[512, 4096, 16384])
    parser.add_argument("--rows", type=numbers, default=[1, 4, 8])
    parser.add_argument("--prompts", type=numbers, default=[])
    parser.add_argument("--kv", nargs="+", choices=("model", "int8"), default=["model", "int8"], help="keys and values")
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    provenance = Provenance.now("torch")
    length = max([context + max(asked.rows) for context in asked.context] + asked.prompts)
    runner = hs.Target(asked.target, quantize=asked.quantize, max_length=length).runner
    dtypes = [{"model": runner.dtype, "int8": torch.int8}[kind] for kind in asked.kv]
    caches = {str(dtype).removeprefix("torch."): pretended(runner, dtype) for dtype in dtypes}
    found: list[dict[str, Any]] = []
    for context in asked.context:
        for rows in asked.rows:
            times: dict[str, list[float]] = {name: [] for name in caches}
            for _ in range(asked.repetitions):
                for name, cache in caches.items():
                    times[name].append(_seconds(runner, cache, context, rows))
            found += [{"context": context, "rows": rows, "kv": n, "seconds": min(t)} for n, t in times.items()]
    for prompt in asked.prompts:
        for name, cache in caches.items():
            seconds = min(_prompt(runner, cache, prompt) for _ in range(2 if prompt <= 2048 else 1))
            found.append({"context": 0, "rows": prompt, "kv": name, "seconds": seconds})
    table = Table("Context", "Rows", "Keys and values", "ms", "Rows/s")
    for each in found:
        seconds = each["seconds"]
        speed = each["rows"] / seconds
        table.add_row(str(each["context"]), str(each["rows"]), each["kv"], f"{1000 * seconds:.1f}", f"{speed:.0f}")
    Console().print(table)
    memory = {name: cache.memory() for name, cache in caches.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"weights": runner.weights_in_words, "cache_bytes": memory, "capacity": length, "found": found}
    told |= {"peak_memory": peak}
    path = results_file(asked.results, f"contexts-{Path(asked.target).name}")
    path.write_text(json.dumps({"provenance": asdict(provenance), **told}, indent=1) + "\n", encoding="utf-8")
    print(f"peak memory: {peak / 1e9:.2f} GB", *provenance.lines(), path, sep="\n")


if __name__ == "__main__":
    main()
