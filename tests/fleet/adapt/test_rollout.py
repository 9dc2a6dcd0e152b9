"""A rollout on fake fleets: the rest follow a good replica, and a bad, broken or silent one is taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from headstart.base.errors import CheckFailed, EndpointFailed, HeadstartError, InvalidFile, InvalidOption, ServerFailed
from headstart.fleet.adapt.rollout import Rollout, RolloutOptions
from headstart.fleet.watch.counters import Counters

NEW, OLD = Path("new"), Path("old")
OPTIONS = RolloutOptions(window=10.0, windows=20, patience=2.0)


@dataclass
class Engine:
    url: str
    export: Path
    counters: Counters = Counters("vllm")


class Fleet:
    """Engines whose counters grow as requests come; acceptance depends on the export."""

    def __init__(self, acceptance: dict[Path, float], *, engines: int = 3, load: int = 400, seed: int = 0) -> None:
        self.engines = [Engine(f"http://{n}", OLD) for n in range(engines)]
        self.replaced: list[tuple[int, Path]] = []
        self.broken: set[Path] = set()
        self.failure: type[HeadstartError] = ServerFailed
        self.silent: set[Path] = set()
        self.plain = 0.0
        self.now = 0.0
        self._acceptance, self._load, self._random = acceptance, load, np.random.default_rng(seed)

    def replace(self, place: int, export: Path) -> Engine:
        if export in self.broken:
            raise self.failure("engine died", hint="see its log")
        self.replaced.append((place, export))
        self.engines[place] = Engine(f"http://{place}-{len(self.replaced)}", export)
        return self.engines[place]

    def look(self, url: str) -> list[Counters]:
        engine = next(engine for engine in self.engines if engine.url == url)
        if engine.export in self.silent:
            raise EndpointFailed(f"{url} did not answer", hint="")
        return [engine.counters]

    def serve(self, seconds: float = 10.0) -> None:
        self.now += seconds
        ease = self._random.normal(0, 0.03)  # the same traffic for all
        for engine in self.engines:
            drafts = int(self._random.poisson(self._load))
            first = self._random.binomial(drafts, np.clip(self._acceptance[engine.export] + ease, 0, 1))
            second = self._random.binomial(first, 0.5)
            plain = int(self._random.uniform(0, self.plain) * drafts) if self.plain else 0  # forwards without a draft
            counted = Counters(
                "vllm", counts_drafts=True, generated=plain + drafts + first + second, drafts=drafts,
                drafted=2 * drafts, accepted=first + second, accepted_per_position=(int(first), int(second)),
            )  # fmt: skip
            engine.counters = engine.counters + counted

    def run(self, rollout: Rollout, disturb: Callable[[], None] = lambda: None) -> list[str]:
        said: list[str] = []
        for _ in range(2000):
            said += rollout.step()
            if rollout.outcome is not None:
                return said
            self.serve()
            disturb()
        raise AssertionError(said)


def rollout(fleet: Fleet, options: RolloutOptions = OPTIONS) -> Rollout:
    return Rollout(fleet, NEW, OLD, options, look=fleet.look, clock=lambda: fleet.now)


def test_the_rest_follow_a_better_replica() -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.7})
    under_way = rollout(fleet)
    said = fleet.run(under_way)
    assert under_way.outcome == "replaced"
    assert fleet.replaced == [(0, NEW), (1, NEW), (2, NEW)]
    assert under_way.ratio.low > 1
    assert "acceptance by position 7" in said[1]
    assert "all 3 replicas" in said[-1]
    assert under_way.record()["outcome"] == "replaced"
    assert under_way.step() == []


def test_a_worse_replica_is_taken_back() -> None:
    fleet = Fleet({OLD: 0.7, NEW: 0.6})
    under_way = rollout(fleet)
    said = fleet.run(under_way)
    assert under_way.outcome == "back"
    assert fleet.replaced == [(0, NEW), (0, OLD)]
    assert under_way.ratio.high < 1
    assert "old is back" in said[-1]
    assert under_way.record()["reason"] == said[-1]


def test_a_replica_that_accepts_less_is_found_whatever_load_does_to_tokens_per_forward() -> None:
    """Where engines draft in some forwards only, and each in others, the ratio says little and the positions do."""
    fleet = Fleet({OLD: 0.7, NEW: 0.6})
    fleet.plain = 4.0
    under_way = rollout(fleet)
    assert "the new replica accepts" in fleet.run(under_way)[-1]
    assert under_way.outcome == "back"
    assert under_way.ratio.high > 1


def test_what_is_not_proved_in_time_is_taken_back() -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.6}, load=3)
    under_way = rollout(fleet, replace(OPTIONS, tolerance=0.001, patience=0.5))
    said = fleet.run(under_way)
    assert under_way.outcome == "back"
    assert "not decided yet" in said[1]
    assert "nothing was proved in 0.5 hours" in said[-1]
    idle = Fleet({OLD: 0.6, NEW: 0.6}, load=0)
    assert "nothing was proved" in idle.run(rollout(idle))[-1]


@pytest.mark.parametrize("failure", [ServerFailed, CheckFailed, EndpointFailed, InvalidFile])
def test_an_engine_that_is_not_admitted_changes_nothing(failure: type[HeadstartError]) -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.7})
    fleet.failure = failure
    fleet.broken = {NEW}
    under_way = rollout(fleet)
    assert "was not admitted, and the old one goes on: engine died" in fleet.run(under_way)[-1]
    assert (under_way.outcome, fleet.replaced) == ("back", [])


def test_one_that_fails_later_stops_the_rollout_where_it_is() -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.7})
    under_way = rollout(fleet)

    def disturb() -> None:
        if len(fleet.replaced) == 2:
            fleet.broken = {NEW}

    assert "goes on as it was" in fleet.run(under_way, disturb)[-1]
    assert (under_way.outcome, fleet.replaced) == ("stopped", [(0, NEW), (1, NEW)])


def test_a_new_replica_that_is_silent_is_taken_back_and_others_are_waited_for() -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.7})
    under_way = rollout(fleet)

    def disturb() -> None:
        fleet.silent = {OLD} if 50 < fleet.now < 100 else {NEW} if fleet.now >= 100 else set()

    assert "does not answer" in fleet.run(under_way, disturb)[-1]
    assert under_way.outcome == "back"
    assert fleet.now == 100


def test_a_restart_is_no_window() -> None:
    fleet = Fleet({OLD: 0.6, NEW: 0.7}, load=50)
    under_way = rollout(fleet)

    def disturb() -> None:
        fleet.engines[2].counters = replace(fleet.engines[2].counters, started=fleet.now)

    fleet.run(under_way, disturb)
    assert (under_way.outcome, under_way.record()["windows"]) == ("back", 0)


def test_one_replica_is_no_fleet() -> None:
    with pytest.raises(InvalidOption, match="cannot be compared"):
        rollout(Fleet({}, engines=1))


def test_a_worse_replica_seldom_passes() -> None:
    """Three per cent below the others, with a tolerance of two: the error is 5% in all, on one side half of it."""
    passed = 0
    for seed in range(16):
        fleet = Fleet({OLD: 0.64, NEW: 0.60}, load=100, seed=seed)
        under_way = rollout(fleet, replace(OPTIONS, patience=0.2))
        fleet.run(under_way)
        passed += under_way.outcome == "replaced"
    assert passed <= 2
