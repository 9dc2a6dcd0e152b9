"""The two tables of the drafters benchmark: pacing decides in the first, drafts have one size in the second."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from drafters import Bench, parse
finally:
    sys.path.pop(0)


def test_paced_is_paced_and_fixed_is_fixed() -> None:
    names = ["n-gram", "fixed: draft LM, chain"]
    bench = Bench(parse(["--only", *names, "--max-length", "256"]), Console(quiet=True))
    assert [bench.engines[name].describe()["pacing"] for name in names] == ["adaptive", "fixed"]
