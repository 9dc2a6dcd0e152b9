"""Drafters that copy from an index, teacher-forced: tokens per target forward with it and without, on texts that are in
the index, on texts like them, and on others.

    python benchmarks/index.py --tokenizer DIR

The index is of this repository's package, without some of its files. A text is the beginning of a file as a prompt and
what follows it as the reply, which is given, so no model is needed: each draft is judged by the reply's own tokens, as
a target at temperature 0 that writes this reply would. "known" are files of the index (an answer that repeats code, or
itself), "alike" those that were left out of it (new code in the same repository), "other" modules of Python's own
library, and "prose" guides of the documentation. Those "in JSON" are spelled as the arguments of a tool call are.

Drafters are asked alone, with a fixed budget: pacing would draft less where little is accepted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agents import BUDGET, forced
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from headstart.drafters import Drafter
from headstart.drafters.matching.text_index import TextIndex
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.loading import indexing
from headstart.types import Drafting

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headstart"
PROMPT, REPLY = 256, 768
"""Tokens of a text's two parts; shorter files are passed over."""
TEXTS = 24
"""Of a kind."""
LEFT_OUT = 8
"""Every so many of the package's files is no part of the index."""


@dataclass(frozen=True, slots=True)
class Figure:
    drafter: str
    text: str
    index: str
    """"no", "yes", or "tool calls": made with `--tool-calls`."""
    texts: int
    tokens: int
    forwards: int
    drafted: int
    microseconds: float
    """Of a draft, in the median."""

    @property
    def per_forward(self) -> float:
        return self.tokens / self.forwards

    @property
    def accepted(self) -> float:
        """Of what was drafted."""
        return (self.tokens - self.forwards) / self.drafted if self.drafted else 0.0


class Counting:
    """A drafter whose drafted tokens are counted."""

    def __init__(self, inner: Drafter) -> None:
        self.inner, self.drafted = inner, 0

    def propose(self, rows: Sequence[Any]) -> Sequence[Any]:
        drafts = self.inner.propose(rows)
        self.drafted += sum(map(len, drafts))
        return drafts

    def release(self, request: int) -> None:
        self.inner.release(request)


def drafters(index: TextIndex | None) -> dict[str, Drafter]:
    """As an engine builds them: alone, and before another drafter."""
    return {
        "n-gram": NgramDrafter(index=index, budget=BUDGET),
        "n-gram, sure": NgramDrafter(longest=5, shortest=3, index=index, budget=BUDGET),
        "suffix": SuffixDrafter(index=index, budget=BUDGET),
    }


def texts(tokenizer: Any) -> tuple[list[Path], dict[str, list[list[int]]]]:
    """The files that are indexed, and the texts by their kind."""
    package = sorted(PACKAGE.rglob("*.py"))
    out = package[::LEFT_OUT]
    library = sorted(Path(statistics.__file__).parent.glob("*.py"))
    files = {
        "known": [path for path in package if path not in out], "alike": out, "other": library,
        "prose": sorted((ROOT / "docs").rglob("*.md")),
    }  # fmt: skip
    files |= {f"{kind}, JSON": files[kind] for kind in ("known", "alike")}
    found: dict[str, list[list[int]]] = {}
    for kind, paths in files.items():
        some = found[kind] = []
        for path in paths[:: max(1, len(paths) // (2 * TEXTS))]:
            text = path.read_text(encoding="utf-8")
            spelled = json.dumps(text, ensure_ascii=False)[1:-1] if kind.endswith("JSON") else text
            ids = tokenizer(spelled, add_special_tokens=False, verbose=False)["input_ids"]
            if len(ids) >= PROMPT + REPLY and len(some) < TEXTS:
                some.append(ids[: PROMPT + REPLY])
    return files["known"], found


def measure(tokenizer: Any, only: Sequence[str] | None) -> tuple[list[Figure], dict[str, float]]:
    """The figures, and what the index took."""
    files, kinds = texts(tokenizer)
    start = time.perf_counter()
    reading = indexing.read(files, tokenizer, most_bytes=1 << 20, most_tokens=1 << 30, observe=lambda _: None)
    read = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "index")
        indexing.write(reading, tokenizer, path)
        written = time.perf_counter()
        indexes = {"no": None, "yes": TextIndex.open(path, tokenizer)}
        costs = {
            "tokens": reading.tokens, "bytes": path.stat().st_size, "reading_seconds": read - start,
            "sorting_seconds": written - read, "opening_seconds": time.perf_counter() - written,
        }  # fmt: skip
        both = indexing.read(
            files, tokenizer, most_bytes=1 << 20, most_tokens=1 << 30, escaped=True, observe=lambda _: None
        )
        indexes["tool calls"] = TextIndex.of(both.texts)
        found = []
        for name in drafters(None):
            for kind, some in kinds.items():
                for label, index in indexes.items():
                    if only and name not in only:
                        continue
                    drafter = Counting(drafters(index)[name])
                    forwards, seconds = 0, []
                    for ids in some:
                        count, each = forced(drafter, ids[:PROMPT], ids[PROMPT:], Drafting())  # type: ignore[arg-type]
                        forwards += count
                        seconds += each
                    found.append(
                        Figure(
                            name, kind, label, len(some), len(some) * (REPLY - 1), forwards,
                            drafter.drafted, 1e6 * statistics.median(seconds),
                        )
                    )  # fmt: skip
    return found, costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a directory, or a hub id")
    parser.add_argument("--only", nargs="*", default=None, help="names of drafters; all of them by default")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the figures as JSON")
    args = parser.parse_args()
    provenance, console = Provenance.now("transformers"), Console()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    figures, costs = measure(tokenizer, args.only)
    console.width = max(console.width, 100)
    table = Table("drafter", "text", "index", "tokens per forward", "drafted per forward", "accepted", "a draft, µs")
    for each in figures:
        table.add_row(
            each.drafter, each.text, each.index, f"{each.per_forward:.2f}",
            f"{each.drafted / each.forwards:.1f}", f"{each.accepted:.0%}", f"{each.microseconds:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(", ".join(f"{name} {value:,.6g}" for name, value in costs.items()))
    if args.output is not None:
        rows = [{**asdict(e), "per_forward": e.per_forward, "accepted": e.accepted} for e in figures]
        path = results_file(args.output, "index")
        path.write_text(json.dumps({**provenance.rows(), **costs, "figures": rows}, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {path.name}")


if __name__ == "__main__":
    main()
