"""The result file: there and back, and every way in which it can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import bench_runs as made

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.measure.bench.machine import Meter
from headstart.measure.bench.result import BenchResult
from headstart.measure.bench.summary import summarise


@pytest.fixture
def result() -> BenchResult:
    whole = made.result([[1.0, 1.1], [4.0, 4.1]], [[0.5, 0.5], [1.0, 1.1]])
    arms = tuple(replace(each, arm="K=3" if each.arm == "speculative" else "plain") for each in whole.trials)
    return replace(whole, sweep=arms)


def test_there_and_back(result: BenchResult, tmp_path: Path) -> None:
    path = result.write(tmp_path / "new folder" / "r.json", [each.record() for each in summarise(result)])
    assert BenchResult.read(path) == result
    assert json.loads(path.read_text())["summary"][0]["speedup"]["value"] == summarise(result)[0].speedup.value


def test_figures_come_from_the_runs_not_from_the_summary(result: BenchResult, tmp_path: Path) -> None:
    path = result.write(tmp_path / "r.json", [{"speedup": 1000}])
    assert summarise(BenchResult.read(path)) == summarise(result)


def test_without_costs(result: BenchResult, tmp_path: Path) -> None:
    bare = replace(result, costs=None, sweep=())
    assert BenchResult.read(bare.write(tmp_path / "r.json")) == bare


def test_a_file_from_before_the_parts_of_a_step_had_the_names_of_today(result: BenchResult, tmp_path: Path) -> None:
    data = result.record()
    for each in data["rounds"]:
        for run in each["runs"]:
            run["parts"] = {"draft": 0.1, "verify": 0.5, "law": 0.2, "commit": 0.05}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    read = BenchResult.read(path)
    assert read.trials[0].runs[0].parts == {"plan": 0.05, "draft": 0.1, "verify": 0.5, "sample": 0.2, "commit": 0.0}
    assert summarise(read)[0].fast.time_split["sample"] > 0


def test_a_file_that_cannot_be_written(result: BenchResult, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="cannot write"):
        result.write(tmp_path / "file" / "r.json")


def damaged(result: BenchResult, change: Any) -> str:
    data = json.loads(json.dumps(result.record()))
    change(data)
    return json.dumps(data, indent=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("rounds"), "no 'rounds'"),
        (lambda d: d["rounds"][0].pop("seconds"), "seconds"),
        (lambda d: d["rounds"][0].update(seconds=0), "took 0 seconds"),
        (lambda d: d["rounds"][0].update(seconds="long"), "seconds in rounds.0.* number"),
        (lambda d: d["rounds"][0].update(unit=9), "unit that is not there"),
        (lambda d: d["rounds"][0].update(lane="K=1"), "lane"),
        (lambda d: d["rounds"][0]["runs"][0].update(prompt=9), "prompt that is not there"),
        (lambda d: d["rounds"][0]["runs"][0]["counts"].pop(), "different lengths"),
        (lambda d: d["rounds"][0]["runs"][0].update(surprise=1), "surprise"),
        (lambda d: d["units"].append([]), "unit names"),
        (lambda d: d["costs"].update(rows=[[2, 0.1]]), "forward of one row"),
        (lambda d: d.update(prompts=3), "damaged"),
    ],
)
def test_what_is_damaged_is_said(result: BenchResult, tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(damaged(result, change))
    with pytest.raises(InvalidFile, match=words) as caught:
        BenchResult.read(path)
    assert str(path) in caught.value.message


def test_a_cut_file_names_the_line(result: BenchResult, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("\n".join(damaged(result, lambda d: None).splitlines()[:40]))
    with pytest.raises(InvalidFile, match="line 40: not JSON"):
        BenchResult.read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "not the result of a bench"),
        ('{"headstart_certificate": 1}', "but of headstart certificate"),
        ('{"headstart_bench": 2}', "version 2"),
        ('{"headstart_bench": NaN}', "NaN is no number"),
        ("\udcff", "not JSON"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidFile, match=words):
        BenchResult.read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot read"):
        BenchResult.read(tmp_path / "none.json")


# -- energy ----------------------------------------------------------------------------------------------------------


def zone(folder: Path, number: int, name: str, microjoules: int, most: int = 1_000_000) -> Path:
    path = folder / f"intel-rapl:{number}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(name + "\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(f"{most}\n")
    return path


def test_energy_is_that_of_the_packages_with_wraparound(tmp_path: Path) -> None:
    zone(tmp_path, 0, "package-0", 100)
    zone(tmp_path, 1, "package-1", 900_000)
    zone(tmp_path, 2, "psys", 5)
    meter = Meter.of_this_machine(tmp_path)
    before = meter.read()
    zone(tmp_path, 0, "package-0", 400_100)
    zone(tmp_path, 1, "package-1", 100_000)  # wrapped around
    zone(tmp_path, 2, "psys", 999)  # counts what the packages count
    assert meter.ranges
    assert meter.since(before) == pytest.approx(0.4 + 0.2)


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    meter = Meter.of_this_machine(tmp_path / "none")
    assert not meter.ranges
    assert "no energy counter" in meter.reason
    assert meter.since(meter.read()) is None


def test_counters_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    counter = zone(tmp_path, 0, "package-0", 1) / "energy_uj"
    counter.unlink()
    counter.mkdir()  # what a reader without rights gets: an OSError
    meter = Meter.of_this_machine(tmp_path)
    assert not meter.ranges
    assert "cannot be read" in meter.reason


def test_a_counter_that_vanishes_makes_the_energy_unknown(tmp_path: Path) -> None:
    counter = zone(tmp_path, 0, "package-0", 1) / "energy_uj"
    meter = Meter.of_this_machine(tmp_path)
    before = meter.read()
    counter.unlink()
    assert meter.since(before) is None
