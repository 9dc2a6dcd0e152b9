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

    def pairs(self, *_: Any) -> dict[str, list[Any]]:
        bench = sys.modules["pacing_targets"]
        parts = dict.fromkeys((*bench.PARTS, bench.AFTER), 1.0)
        speeds = {"plain": [10.0, 20.0], "adaptive": [20.0, 60.0], "K=2": [15.0, 30.0]}
        return {side: [bench.Told(speed, 1.5, 0.5, parts) for speed in pairs] for side, pairs in speeds.items()}


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
    assert [each["tokens_per_second"] for each in row["sides"]["adaptive"]] == [20.0, 60.0]
    assert row["over_plain"] == 2.5
    assert row["best_fixed"] == "K=2"
    assert found["clock"] == "wall"
    assert found["engine"] == {"target": "bundled"}, "its name, and no path"
    assert found["provenance"]["commit"]
    assert "2.500" in (printed := capsys.readouterr().out)
    assert written.name in printed


def test_a_side_is_measured_while_its_batch_is_full(bench: ModuleType) -> None:
    """Two steps read prompts or lack a row; of the others every token counts, and requests go when there are enough."""
    seconds = SimpleNamespace(**dict.fromkeys(bench.PARTS, 0.0), total=0.0)

    def step(rows: int, tokens: int, drafted: int = 0) -> SimpleNamespace:
        return SimpleNamespace(rows=rows, draft=(0,) * drafted, tokens=(0,) * tokens, seconds=seconds)

    script = [[step(9, 1)], [step(1, 1), step(30, 0)], [step(1, 1), step(3, 2, 2)], [step(1, 1), step(1, 1)]]
    cancelled: list[Any] = []
    engine = SimpleNamespace(
        submit=lambda *_: SimpleNamespace(finish_reason=None), step=lambda: script.pop(0), cancel=cancelled.append
    )
    side = bench.Side(engine)
    side.begin([(1,), (2,)], [None, None])
    assert [side.step(5) for _ in range(4)] == [True, True, True, False]
    assert len(cancelled) == 2
    told = side.told()
    assert (told.tokens_per_forward, told.drafting) == (5 / 2 / 2, 1 / 2)
