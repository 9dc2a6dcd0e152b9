"""A new export reaches a fleet of another process through a file, and the fleet goes on whatever stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.fleet.adapt.handover import ANSWER, REQUEST, Handover, request
from headstart.theory.statistics import Interval


class Scripted:
    """A rollout that ends as it is told."""

    def __init__(self, outcome: str) -> None:
        self.outcome: str | None = None
        self.ratio = Interval(1.0)
        self.asked: list[tuple[Path, Path]] = []
        self._coming = outcome

    def __call__(self, fleet: Any, new: Path, old: Path, options: Any) -> Scripted:
        self.outcome = None
        self.asked.append((new, old))
        return self

    def step(self) -> list[str]:
        if self._coming == "broken":
            raise InvalidFile("the export is damaged", hint="")
        self.outcome = self._coming
        return ["done"]

    def record(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "ratio": [float("nan")]}


@pytest.mark.parametrize("outcome", ["replaced", "back", "broken"])
def test_a_request_is_taken_once_and_answered(tmp_path: Path, outcome: str) -> None:
    launched, new = tmp_path / "launched", tmp_path / "new"
    launched.mkdir()
    new.mkdir()
    rollout = Scripted(outcome)
    handover = Handover(None, launched, begin=rollout)  # type: ignore[arg-type]
    assert handover.tend() == []
    request(launched, new)
    with pytest.raises(InvalidOption, match="waits already"):
        request(launched, new)
    assert handover.tend() == [f"asked for {new}"]
    assert not (launched / REQUEST).exists()
    assert handover.tend() == (["the rollout ended: the export is damaged"] if outcome == "broken" else ["done"])
    assert handover.serving == (new if outcome == "replaced" else launched)
    assert handover.tend() == []
    if outcome != "broken":
        assert json.loads((launched / ANSWER).read_text()) == {"outcome": outcome, "ratio": [None]}
    request(launched, new)
    handover.tend()
    assert rollout.asked == [(new, launched), (new, handover.serving)]


@pytest.mark.parametrize("text", ["{", "[]", '{"headstart_rollout": 1}', '{"headstart_rollout": 9, "export": "/"}'])
def test_a_request_that_cannot_be_is_said_and_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / REQUEST).write_text(text)
    handover = Handover(None, tmp_path)  # type: ignore[arg-type]
    (said,) = handover.tend()
    assert "refused" in said
    assert handover.tend() == []


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no folder"):
        request(tmp_path / "none", tmp_path)
