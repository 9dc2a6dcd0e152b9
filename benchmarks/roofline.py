"""How near products of weights come to a plain read of the same bytes, for each format and number of rows.

    python benchmarks/roofline.py [--formats int4 Q4_K ...] [--rows 1 8] [--rounds 12]
    HEADSTART_LEVEL=avx2 python benchmarks/roofline.py

The matrices are random, of the widths of a model of 1 billion weights, and so many that no cache holds them. In each
round every matrix is multiplied once with each number of rows, and read once beside that by the same threads, which do
nothing else with it. The share is the time of reading over the time of the product: of the quickest rounds, and of the
medians. No model runs, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from headstart.model import native
from headstart.model.gguf.blocks import FORMS
from headstart.model.grouped import UNIT, BlockForm
from headstart.model.native.grouping import HALVES, POWERS, STORED, UNITS, kind_of_codes
from headstart.model.native.memory import aligned, read_seconds
from headstart.model.native.structs import Product
from headstart.model.native.weights import NativeWeights, kind_of
from headstart.model.threads import threads

SHAPES = ((2048, 2048), (8192, 2048), (2048, 8192))
"""Outputs and inputs of a layer's matrices."""
HEAD = (128256, 2048)
PART = 256
"""Outputs whose numbers are made; those of a matrix are a multiple of it."""
ROWS = (1, 2, 4, 8, 16)
FLOATS = {"float32": torch.float32, "bf16": torch.bfloat16}
CODES = {"int4": FORMS["Q4_1"], **FORMS}
"""quantize="int4" makes the codes of Q4_1."""
FORMATS = (*FLOATS, "int8", *CODES)


@dataclass
class Matrices:
    """Products of one shape, and the seconds of each round: of all of them together, by rows, and of reading them."""

    shape: tuple[int, int]
    weights: list[Tensor]
    products: list[Product]
    """Which point to them."""
    seconds: dict[int, list[float]] = field(default_factory=dict)
    reading: dict[int, list[float]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(weights.nbytes for weights in self.weights)


def matrices(name: str, size: int) -> tuple[list[Matrices], NativeWeights]:
    """A head, and layers that together with it have so many bytes at least; all in memory of their own. A shape's
    numbers are those of its first outputs again and again, so that they are made quickly."""
    held = NativeWeights(native.FLOAT32)
    firsts = {shape: _packed(held, name, shape[1]) for shape in (*SHAPES, HEAD)}
    of_shape = {shape: first.nbytes // PART * shape[0] for shape, (first, _) in firsts.items()}
    count = -(-max(1, size - of_shape[HEAD]) // sum(of_shape[shape] for shape in SHAPES))
    found = []
    for shape, (first, product) in firsts.items():
        made = Matrices(shape, [], [])
        repeated = {of: _repeated(held, tensor, shape[0]) for of, tensor in _by_output(held, product).items()}
        for _ in range(1 if shape == HEAD else count):
            made.weights.append(_fill(aligned(of_shape[shape])[: of_shape[shape]], first))
            own = Product.from_buffer_copy(product)
            own.outputs = own.results = shape[0]
            own.weights = made.weights[-1].data_ptr()
            for of, address in repeated.items():
                setattr(own, of, address)
            made.products.append(own)
        found.append(made)
    return found, held


def _packed(held: NativeWeights, name: str, inputs: int) -> tuple[Tensor, Product]:
    """Random numbers of the first outputs, in the kernels' own order."""
    if name in CODES:
        return _codes(held, CODES[name], (PART, inputs))
    dtype = FLOATS.get(name, torch.bfloat16)
    linear = nn.Linear(inputs, PART, bias=False, dtype=dtype)
    kind = kind_of(dtype, torch.device("cpu"), (PART, inputs), "int8" if name == "int8" else None)
    product = held.product(linear, kind)
    packed = next(each for each in held.tensors if each.data_ptr() == product.weights)
    return packed[: native.kernels().packed_bytes(kind, inputs, PART)], product


def _by_output(held: NativeWeights, product: Product) -> dict[str, Tensor]:
    """What a product has of each output beside its weights."""
    places = {each.data_ptr(): each for each in held.tensors}
    return {of: places[getattr(product, of)] for of in ("scale", "shift") if getattr(product, of)}


def _repeated(held: NativeWeights, tensor: Tensor, outputs: int) -> int:
    return held.pointer(tensor.repeat(outputs // len(tensor)))


def _fill(memory: Tensor, part: Tensor) -> Tensor:
    memory.view(-1, part.nbytes).copy_(part.expand(memory.nbytes // part.nbytes, -1))
    return memory


def _codes(held: NativeWeights, form: BlockForm, shape: tuple[int, int]) -> tuple[Tensor, Product]:
    rng, (outputs, inputs) = np.random.default_rng(0), shape
    groups, units = inputs // form.group, inputs // UNIT
    codes = rng.integers(0, 1 << form.bits, shape, dtype=np.uint8)
    whole = rng.integers(1, 64, (outputs, groups)).astype(np.float32)
    unit = np.full((outputs, units), 2.0**-12, np.float32)
    scales = np.full_like(whole, 2.0**-8) if form.scales == POWERS else whole * unit[0, 0]
    product = Product(
        inputs=inputs, outputs=outputs, kind=kind_of_codes(form.bits, form.group, inputs), group=form.group,
        scales=form.scales, minimum=form.minimum, results=outputs,
    )  # fmt: skip
    size = native.kernels().grouped_bytes(product)
    packed = aligned(size)
    if form.scales not in (HALVES, UNITS, POWERS) or (form.minimum != STORED and form.minimum < 0):
        raise ValueError(f"a form that is not known: {form}")
    at = [array.ctypes.data for array in (codes, scales, scales, unit, unit)]
    native.kernels().pack_grouped(product, *at, packed.data_ptr(), threads())
    product.weights = held.pointer(packed)
    if form.table is not None:
        product.table = held.pointer(torch.from_numpy(form.table))
    return packed[:size], product


def run(found: Sequence[Matrices], rows: Sequence[int], rounds: int, name: str) -> None:
    """Fill the times in. The first round is not counted."""
    multiply, count = native.kernels().multiply, threads()
    x = torch.randn(max(rows), max(each.shape[1] for each in found))
    y = torch.empty(max(rows), max(each.shape[0] for each in found))
    for turn in track(range(rounds + 1), name, console=Console(stderr=True), transient=True):
        for n in rows:
            for each in found:
                start = time.perf_counter()
                for product in each.products:
                    multiply(product, x.data_ptr(), n, y.data_ptr(), count)
                taken = time.perf_counter() - start
                if turn:
                    each.seconds.setdefault(n, []).append(taken)
            for each in found:
                taken = sum(map(read_seconds, each.weights))
                if turn:
                    each.reading.setdefault(n, []).append(taken)


def figures(found: Sequence[Matrices], rows: Sequence[int]) -> dict[str, Any]:
    """Of a format: for each number of rows, of all matrices together and by shape."""

    def of(some: Sequence[Matrices], n: int) -> dict[str, float]:
        products = [sum(times) for times in zip(*(each.seconds[n] for each in some), strict=True)]
        reading = [sum(times) for times in zip(*(each.reading[n] for each in some), strict=True)]
        size = sum(each.bytes for each in some)
        return {
            "seconds": median(products),
            "read_bandwidth": size / median(reading),
            "share": median(reading) / median(products),
            "share_of_quickest": min(reading) / min(products),
        }

    return {
        "bytes": sum(each.bytes for each in found),
        "bits_per_weight": 8 * found[-1].bytes / (HEAD[0] * HEAD[1]),
        "rows": {n: of(found, n) for n in rows},
        "shapes": {f"{each.shape[0]}x{each.shape[1]}": {n: of([each], n) for n in rows} for each in found},
    }


def show(console: Console, level: str, all_figures: dict[str, Any], rows: Sequence[int]) -> None:
    table = Table(title=f"Level {level}: the time of a plain read over that of the products, medians (quickest rounds)")
    for heading in ("format", "bits", "GB/s read", *(f"{n} rows" if n > 1 else "1 row" for n in rows)):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    table.add_column("longest over 1 row", justify="right")
    for name, told in all_figures.items():
        by_rows = [told["rows"][n] for n in rows]
        cells = [f"{each['share']:.2f} ({each['share_of_quickest']:.2f})" for each in by_rows]
        speed = median(each["read_bandwidth"] for each in by_rows) / 1e9
        longest = max(each["seconds"] for each in by_rows) / by_rows[0]["seconds"]
        table.add_row(name, f"{told['bits_per_weight']:.2f}", f"{speed:.1f}", *cells, f"{longest:.2f}")
    console.print(table)
    table = Table(title=f"{rows[0]} row by shape" if rows[0] == 1 else f"{rows[0]} rows by shape")
    shapes = [f"{outputs}x{inputs}" for outputs, inputs in (*SHAPES, HEAD)]
    for heading in ("format", *shapes):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    for name, told in all_figures.items():
        first = [told["shapes"][shape][rows[0]] for shape in shapes]
        table.add_row(name, *(f"{each['share']:.2f} ({each['share_of_quickest']:.2f})" for each in first))
    console.print(table)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--size", type=float, default=768, help="MiB of weights of a format (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    provenance = Provenance.now("headstart", "torch")
    level = native.kernels().library.level
    found: dict[str, Any] = {}
    for name in args.formats:
        made, held = matrices(name, int(args.size * 2**20))
        run(made, args.rows, args.rounds, name)
        found[name] = figures(made, args.rows)
        del made, held
    show(console, level, found, args.rows)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    facts = {"level": level, "rounds": args.rounds, "formats": found, "provenance": asdict(provenance)}
    path = results_file(args.results, f"roofline-{level}")
    path.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
