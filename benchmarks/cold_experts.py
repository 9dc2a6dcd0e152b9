"""What a forward costs that finds none of a mixture's experts in memory, with asking for them and without.

    python benchmarks/cold_experts.py MODEL.gguf [--pairs 5]

Before each forward of 1 and of 4 rows all pages of the mapped file are given up. One forward of a pair asks for all of
a chosen expert as soon as it is chosen, and the other comes to it page by page; they take turns in who is first. Ten
times as many pairs are timed with all experts in memory. The seconds of every forward, and what was read from the disk,
are written to results/ as JSON. Linux alone, with a packed file (`headstart info` names it) that no other process uses:
its pages would stay.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from provenance import Provenance, results_file
from rich.console import Console

import headstart as hs
from headstart.model.native.structs import Experts
from headstart.model.packed import Segment
from headstart.pacing.synthetic import varied_tokens
from headstart.types import Draft

ASKED, PAGED = "asked for", "page by page"
KINDS = ((1, False), (4, False), (1, True))
"""Rows, and whether all experts are in memory."""


class Forwards:
    """Of different tokens, none of which is kept."""

    def __init__(self, engine: hs.Engine) -> None:
        self._runner, self._cache = engine.target, engine.cache
        layers = self._runner._decoder._layers
        self._experts = [Experts.from_address(each.experts) for each in layers if each.experts]
        if not self._experts or not all(each.mapped for each in self._experts):
            raise SystemExit("its experts do not lie in a packed file")
        self._slot, self._tokens = self._cache.acquire(), varied_tokens(self._runner.vocab_size)
        self.take(32)
        self._cache.keep(self._slot, 32)

    def take(self, rows: int) -> None:
        """A prompt of so many tokens."""
        self._runner.forward([Segment(self._slot, tuple(islice(self._tokens, rows)))], self._cache)

    def timed(self, rows: int, how: str) -> dict[str, float]:
        for each in self._experts:
            each.mapped = how == ASKED
        first, *rest = islice(self._tokens, rows)
        read, begun = bytes_read(), time.perf_counter()
        logits = self._runner.forward(
            [Segment(self._slot, (first,), Draft.chain(rest), judged=rows)], self._cache
        ).logits
        logits.argmax(-1)
        return {"seconds": time.perf_counter() - begun, "bytes_read": bytes_read() - read}

    def pair(self, rows: int, order: tuple[str, str], *, in_memory: bool) -> Iterator[tuple[str, dict[str, float]]]:
        for how in order:
            if not in_memory:
                give_up_pages()
            yield how, self.timed(rows, how)


def give_up_pages() -> None:
    """Those of packed files, by this process and by the system."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if not line.endswith(".products"):
            continue
        place, *_, path = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in place.split("-"))
        if ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED):
            raise SystemExit("pages cannot be given up")
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def bytes_read() -> int:
    """From the disk, by this process."""
    said = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(said["read_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--pairs", type=int, default=5, help="without experts in memory (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args()
    provenance, console = Provenance.now("torch"), Console(width=180)
    engine = hs.Target(args.target, dtype="bfloat16", max_length=256).engine(drafter="none")
    forwards, found = Forwards(engine), []
    for rows, in_memory in KINDS:
        for _ in range(3 if in_memory else 0):
            forwards.take(128)
        took: dict[str, list[dict[str, float]]] = {ASKED: [], PAGED: []}
        for turn in range(10 * args.pairs if in_memory else args.pairs):
            order = (ASKED, PAGED) if turn % 2 else (PAGED, ASKED)
            for how, each in forwards.pair(rows, order, in_memory=in_memory):
                took[how].append(each)
        asked, paged = ([each["seconds"] for each in took[how]] for how in (ASKED, PAGED))
        ratio = median(one / other for one, other in zip(asked, paged, strict=True))
        found.append({"rows": rows, "in_memory": in_memory, "forwards": took, "ratio": ratio})
        read = [mean(each["bytes_read"] for each in took[how]) / 1e6 for how in (ASKED, PAGED)]
        console.print(
            f"{rows} rows, experts {'' if in_memory else 'not '}in memory: {1e3 * median(asked):.1f} ms {ASKED} and "
            f"{1e3 * median(paged):.1f} {PAGED}, ratio of pairs {ratio:.3f}; read {read[0]:.0f} and {read[1]:.0f} MB"
        )
    facts: dict[str, Any] = {"weights": engine.target.weights_in_words, "threads": torch.get_num_threads()}
    path = results_file(args.results, f"cold-experts-{Path(args.target).name}")
    record = {"provenance": provenance.record(), **facts, "pairs": args.pairs, "found": found}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(path, *provenance.lines(), sep="\n")


if __name__ == "__main__":
    main()
