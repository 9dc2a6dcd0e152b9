"""What a forward's microseconds go to: products by kind beside a plain read of the same bytes, attention, norms, the
threads' waiting for each other, and what Python does around the call.

    python benchmarks/parts.py --target DIR_OR_GGUF [--quantize int8] [--rows 1,8] [--context 200] [--repetitions 40]

The kernels look at the clock where a part ends, a few hundred times a forward. Times are medians over forwards in turn,
the mean of the threads. The text is made up, and the context pretended: what they say changes no time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from contexts import numbers, pretended
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table

import headstart as hs
from headstart.model import native
from headstart.model.decoders.fused import FusedDecoder
from headstart.model.native.structs import Product
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.threads import threads

OF_PRODUCTS = {
    "qkv": "qkv",
    "beside_out": "recurrence",
    "out": "out",
    "gate_up": "gate and up",
    "down": "down",
    "head": "head",
}
"""A product's name at its end, and the part of the forward that it is."""


@contextmanager
def timed(times: Any) -> Any:
    """The parts of forwards in this block are added up in an array [threads, parts]."""
    native.kernels().time_parts(ctypes.addressof(times))
    try:
        yield
    finally:
        native.kernels().time_parts(None)


def forward(runner: ModelRunner, cache: Any, context: int, rows: int) -> dict[str, float]:
    """Seconds of one, by parts; `total` is all of it, and `python` what is outside the kernels."""
    count, parts = threads(), len(native.PARTS)
    times = (ctypes.c_int64 * (count * parts))()
    cache.pretend(0, context)
    segment = Segment(0, tuple(3 + number % 90 for number in range(rows)), judged=min(rows, 64))
    with timed(times):
        start = time.perf_counter()
        runner.forward([segment], cache)
        total = time.perf_counter() - start
    own = [times[member * parts : (member + 1) * parts] for member in range(count)]
    found = {part: sum(each[at] for each in own) / count / 1e9 for at, part in enumerate(native.PARTS)}
    return {**found, "python": total - sum(own[0]) / 1e9, "total": total}


def size_of(product: Product) -> int:
    """Bytes of its weights."""
    kernels = native.kernels()
    if product.kind < native.GROUPED4:
        return int(kernels.packed_bytes(product.kind, product.inputs, product.outputs))
    return int(kernels.grouped_bytes(product))


def products(runner: ModelRunner) -> dict[str, list[tuple[int, int]]]:
    """Addresses and bytes of the weights of each part."""
    decoder = runner._decoder
    if not isinstance(decoder, FusedDecoder):
        raise SystemExit("the row kernels do not run this model")
    if decoder.experts_touched is not None:
        raise SystemExit("which experts a mixture's forward reads changes with its rows: give a dense model")
    found: dict[str, list[tuple[int, int]]] = {}
    for name, product in decoder.laid_out():
        part = OF_PRODUCTS[name.rpartition(".")[2]]
        found.setdefault(part, []).append((product.weights, size_of(product)))
    return found


def read(pieces: Sequence[tuple[int, int]]) -> float:
    """Seconds of a plain read of them, by as many threads as a forward has."""
    start = time.perf_counter()
    for address, size in pieces:
        native.kernels().read(address, size, threads())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--quantize")
    parser.add_argument("--rows", type=numbers, default=[1, 8])
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    provenance = Provenance.now("torch")
    length = asked.context + max(asked.rows) + 1
    runner = hs.Target(asked.target, quantize=asked.quantize, max_length=length).runner
    cache, weights = pretended(runner, runner.dtype), products(runner)
    forwards: dict[int, list[dict[str, float]]] = {rows: [] for rows in asked.rows}
    reading: dict[str, list[float]] = {part: [] for part in weights}
    for turn in range(asked.repetitions + 2):
        for rows, taken in forwards.items():
            found = forward(runner, cache, asked.context, rows)
            if turn > 1:
                taken.append(found)
        for part, pieces in weights.items():
            reading[part].append(read(pieces))
    reads = {part: median(taken) for part, taken in reading.items()}
    parts = [*native.PARTS, "python", "total"]
    by_rows = {rows: {part: median(each[part] for each in taken) for part in parts} for rows, taken in forwards.items()}
    table = Table("Microseconds", "MB", "A plain read", *(f"{rows} row{'s' * (rows > 1)}" for rows in asked.rows))
    sizes = {part: sum(size for _, size in pieces) for part, pieces in weights.items()}
    sizes["total"], reads["total"] = sum(sizes.values()), sum(reads.values())
    for part in parts:
        if any(of[part] for of in by_rows.values()):
            plain = [f"{sizes[part] / 1e6:.0f}", f"{1e6 * reads[part]:.0f}"] if part in sizes else ["", ""]
            table.add_row(part, *plain, *(f"{1e6 * of[part]:.0f}" for of in by_rows.values()))
    Console().print(table)
    told = {"weights": runner.weights_in_words, "level": native.kernels().library.level, "threads": threads()}
    told |= {"context": asked.context, "bytes": sizes, "reading": reads, "rows": by_rows}
    kind = f"-{asked.quantize}" if asked.quantize else ""
    path = results_file(asked.results, f"parts-{Path(asked.target).name}{kind}")
    path.write_text(json.dumps({"provenance": asdict(provenance), **told}, indent=1) + "\n", encoding="utf-8")
    print("\n".join(provenance.lines()), path, sep="\n")


if __name__ == "__main__":
    main()
