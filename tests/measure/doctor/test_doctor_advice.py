"""The file that tells `load` what the doctor recommended: every way in which it can be of no use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.loading import advice
from headstart.loading.advice import Advice

FACTS = ("some/model", {"layers": 2}, "torch.float32", "cpu", None)
ADVICE = Advice(("ngram", "hub/draft"), 5, "auto", 1.83, (0.9, 0.8), "2026-11-21")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_it_comes_back_for_the_same_target_machine_dtype_and_device_only() -> None:
    assert advice.read(*FACTS) is None
    path = advice.write(*FACTS, ADVICE)
    assert path is not None
    assert path.parent == advice.directory()
    assert advice.read(*FACTS) == ADVICE
    for place, other in enumerate(("other/model", {"layers": 3}, "torch.bfloat16", "cuda", "int8")):
        assert advice.read(*FACTS[:place], other, *FACTS[place + 1 :]) is None


def test_reasons() -> None:
    assert ADVICE.reason == "doctor measured 1.83x with ngram + hub/draft on 21 November 2026"
    none = replace(ADVICE, drafters=(), speedup=0.94)
    assert none.reason == "doctor found no drafter that helps on 21 November 2026 (the best was measured at 0.94x)"
    silent = replace(none, acceptance=())
    assert silent.reason == "doctor found no drafter that helps on 21 November 2026 (the best never drafted)"


def test_a_drafter_that_is_gone(tmp_path: Path) -> None:
    local = tmp_path / "draft"
    local.mkdir()
    found = replace(ADVICE, drafters=("ngram", str(local)))
    assert found.missing == ()
    local.rmdir()
    assert found.missing == (str(local),)
    assert found.reason == f"doctor recommended {local} on 21 November 2026, which is no longer there"


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"advice": {}}', '{"advice": null}', "\udcff"],
)
def test_a_damaged_file_is_none(damage: str) -> None:
    path = advice.write(*FACTS, ADVICE)
    assert path is not None
    path.write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert advice.read(*FACTS) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("drafters", "ngram"), ("drafters", ["auto"]), ("drafters", ["a", "a"]), ("drafters", [1]), ("date", "yesterday"),
     ("k", -1), ("k", "many"), ("speedup", float("nan")), ("acceptance", 3)],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_none(field: str, value: object) -> None:
    path = advice.write(*FACTS, ADVICE)
    assert path is not None
    record = json.loads(path.read_text())
    record["advice"][field] = value
    path.write_text(json.dumps(record))
    assert advice.read(*FACTS) is None


def test_nowhere_to_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert advice.write(*FACTS, ADVICE) is None
    assert advice.read(*FACTS) is None
