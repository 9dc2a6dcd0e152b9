"""benchmarks/pacing_targets.py with speeds made here: what it writes is what it prints, and more."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("pacing_targets")
    for name in ("provenance", "pacing_targets"):
        sys.modules.pop(name, None)


class Scripted:
    """Two pairs a side: adaptive makes twice plain's speed in the first and thrice in the second."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.plain = SimpleNamespace(describe=lambda: {"target": "scripted"})

    def speeds(self, drafter: str, *_: Any) -> tuple[dict[str, list[float]], dict[str, float]]:
        found = {"plain": [10.0, 20.0], "adaptive": [20.0, 60.0], "K=2": [15.0, 30.0]}
        return found, dict.fromkeys(found, 1.5)


def test_every_pair_is_kept_in_a_file_with_its_provenance(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "Bench", Scripted)
    line = ["--drafters", "ngram", "--lengths", "2", "--batches", "1", "8", "--temperatures", "0", "--pairs", "2"]
    bench.main([*line, "--results", str(tmp_path)])

    (written,) = tmp_path.glob("pacing-targets-bundled_pair-*.json")
    found = json.loads(written.read_text())
    assert list(found["tables"]) == ["temperature 0, batch 1, 2 pairs", "temperature 0, batch 8, 2 pairs"]
    row = found["tables"]["temperature 0, batch 1, 2 pairs"]["ngram"]
    assert row["tokens_per_second"]["adaptive"] == [20.0, 60.0]
    assert row["best_fixed"] == "K=2"
    assert found["clock"] == "wall"
    assert found["engine"] == {"target": "scripted"}
    assert found["provenance"]["commit"]
    assert "2.500" in (printed := capsys.readouterr().out)
    assert written.name in printed
