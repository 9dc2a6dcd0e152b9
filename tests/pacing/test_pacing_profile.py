"""Measuring at load, and the file that keeps the figures: every way in which it can be of no use."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.processor import INT8
from support.tiny import random_model

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import Drafter, Row
from headstart.drafters.ngram import NgramDrafter
from headstart.model import native
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing import profile
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.measuring import Measurement, measure
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft

COSTS = StepCosts(((1, 0.5), (4, 0.75)), 0.01, {"a draft": DraftCost(0.1, 0.2, 0.003, 0.4)})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "headstart" / "profiles"


class Counted:
    """Measures the same each time, and counts how often."""

    def __init__(self, *, steady: bool = True) -> None:
        self.times = 0
        self._found = Measurement(COSTS, steady)

    def __call__(self) -> Measurement:
        self.times += 1
        return self._found


def test_a_profile_is_measured_once_for_each_set_of_facts(home: Path) -> None:
    measured = Counted()
    for _ in range(2):
        assert profile.profiled({"pair": 1}, measured, lambda: {1: 0.5}) == COSTS
    assert measured.times == 1
    profile.profiled({"pair": 2}, measured, lambda: {1: 0.5})
    assert measured.times == 2
    assert len(list(home.iterdir())) == 2


def test_a_profile_of_a_busy_machine_is_replaced(home: Path) -> None:
    measured = Counted()
    profile.profiled({}, measured, lambda: {1: 0.5})
    profile.profiled({}, measured, lambda: {1: 5.0, 4: 5.0})  # busy now: the profile is right
    assert measured.times == 1
    profile.profiled({}, measured, lambda: {1: 0.1})
    assert measured.times == 2
    profile.profiled({}, measured, lambda: {1: 0.5, 3: 0.2})  # one row takes as long as ever, three do not
    assert measured.times == 3


def test_what_is_measured_on_a_busy_machine_is_not_kept(home: Path) -> None:
    measured = Counted(steady=False)
    for _ in range(2):
        assert profile.profiled({}, measured, lambda: {1: 0.5}) == COSTS
    assert measured.times == 2
    assert not home.exists() or not list(home.iterdir())


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"costs": {}}', '{"costs": {"rows": [[1, -2]], "request": 0, "drafts": {}}}',
     '{"costs": {"rows": [[1, 1]], "request": 0, "drafts": {"x": {"speed": 1}}}}',
     '{"costs": {"rows": [[2, 1], [1, 1]], "request": 0, "drafts": {}}}', "\udcff"],
)  # fmt: skip
def test_a_damaged_profile_is_measured_again(damage: str, home: Path) -> None:
    measured = Counted()
    profile.profiled({}, measured, lambda: {1: 0.5})
    (path,) = home.iterdir()
    path.write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert profile.profiled({}, measured, lambda: {1: 0.5}) == COSTS
    assert measured.times == 2
    assert profile.read(path) == COSTS, "and mended"


def test_a_profile_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the directory should be; then there is no home at all."""
    (tmp_path / "headstart").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = Counted()
    for _ in range(2):
        assert profile.profiled({}, measured, lambda: {1: 0.5}) == COSTS
    assert measured.times == 2

    def nobody(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", nobody)
    assert profile.profiled({}, measured, lambda: {1: 0.5}) == COSTS


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert profile.directory() == tmp_path / "headstart" / "profiles"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/somewhere")
    assert profile.directory() == Path("/somewhere/.cache/headstart/profiles")


# -- measuring ---------------------------------------------------------------------------------------------------------


class Stubborn(Drafter):
    """Cannot be measured."""

    name = "stubborn"
    default_budget = 3

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        raise RuntimeError("not now")

    def release(self, request: int) -> None:
        raise RuntimeError("nor then")


def test_measuring_leaves_no_trace() -> None:
    target = ModelRunner(adopt(random_model("llama")), max_length=64)
    cache = target.new_cache(3)
    ngram = NgramDrafter()
    costs = measure(target, cache, [ngram, Stubborn()], batch=2, seconds=0.01).costs
    assert [n for n, _ in costs.rows][:5] == [1, 2, 4, 8, 16]
    assert 0 <= costs.drafts["ngram"].token < costs.rows[0][1]
    assert costs.drafts["stubborn"].token > 0
    assert cache.free_slots == 3
    cache.check()
    assert not ngram._memories
    assert not ngram._kept._kept


class Trees(Stubborn):
    """Grows trees, at a price for each draft, level and further node. seconds: since it began."""

    name = "trees"
    sizes = ((1, 1), (3, 3), (6, 6), (8, 3), (12, 5), (14, 6), (32, 6))
    cost = DraftCost(0.3, 0.2, sibling=0.05)

    def __init__(self, sizes: Sequence[tuple[int, int]] = sizes) -> None:
        self.sizes = tuple(sizes)
        self.asked: set[int] = set()
        self.seconds = 0.0

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        for each in contexts:
            self.asked.add(each.budget.nodes)
            depth = dict(self.sizes)[each.budget.nodes]
            self.seconds += self.cost.seconds(depth, 1, each.budget.nodes - depth)
        return [Draft() for _ in contexts]

    def perf_counter(self) -> float:
        self.seconds += 1e-6
        return self.seconds

    thread_time = perf_counter


@pytest.mark.parametrize(
    ("sizes", "timed"),
    [(Trees.sizes, {1, 6, 14}), (((1, 1), (2, 1), (4, 2), (9, 3), (16, 3)), {1, 9, 16}), (((1, 1), (4, 4)), {1, 4})],
)
def test_of_trees_a_level_and_a_further_node_are_timed_apart(
    sizes: Sequence[tuple[int, int]], timed: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = Trees(sizes)
    monkeypatch.setattr("headstart.pacing.measuring.time", trees)
    target = ModelRunner(adopt(random_model("llama")), max_length=64)
    found = measure(target, target.new_cache(1), [trees], batch=1, seconds=0.01).costs.drafts["trees"]
    assert trees.asked == timed
    assert (found.start, found.token) == pytest.approx((0.3, 0.2), rel=1e-3)
    assert found.sibling == pytest.approx(0.05 if len(timed) > 2 else 0.0, rel=1e-3)


def test_a_profile_from_before_nodes_had_a_price_holds(tmp_path: Path) -> None:
    profile.write(tmp_path / "now", {}, COSTS)
    stored = json.loads((tmp_path / "now").read_text())
    del stored["costs"]["drafts"]["a draft"]["sibling"]
    (tmp_path / "before").write_text(json.dumps(stored))
    assert profile.read(tmp_path / "before") == COSTS


def test_load_measures_where_there_is_something_to_decide(
    tiny: Callable[..., str], load: Callable[..., hs.Engine], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.pacing.measuring.STEADY", math.inf)  # the machine may be busy
    for options in ({"drafter": "none"}, {"pacing": "fixed"}, {"num_speculative_tokens": 0}):
        engine = load("llama", **{"drafter": "ngram", "pacing": "adaptive", **options})
        assert engine.describe()["pacing"] == "fixed"
        assert not home.exists()
    engine = load("llama", ["ngram", tiny("llama", noise=0.02)], pacing="adaptive")
    assert engine.describe()["pacing"] == "adaptive"
    (words,) = engine.describe()["drafter_weights"].values()  # n-grams have none
    assert words.startswith("rounded to int8" if INT8 else "float32")
    (path,) = home.iterdir()
    assert set(json.loads(path.read_text())["costs"]["drafts"]) == {"ngram", tiny("llama", noise=0.02)}
    assert isinstance(engine.pacing, AdaptivePacing)
    assert engine.plain().describe()["pacing"] == "fixed"
    if native.available():  # costs of other kernels are other costs
        monkeypatch.setattr(native.kernels(), "name", "decoder-of-another-version.so")
        load("llama", ["ngram", tiny("llama", noise=0.02)], pacing="adaptive")
        assert len(list(home.iterdir())) == 2


@pytest.mark.parametrize("pacing", ["quick", None, 3])
def test_an_unknown_pacing_is_refused(pacing: Any, tiny: Callable[..., str]) -> None:
    with pytest.raises(InvalidOption, match="pacing") as caught:
        hs.load(tiny("llama"), "ngram", pacing=pacing)
    assert "'adaptive' or 'fixed'" in caught.value.hint
