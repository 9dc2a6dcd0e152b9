"""Each part of a step's seconds is the time of what it names. The clock stands still but where a part is at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headstart as hs
from headstart.engine import loop
from headstart.types import PARTS, Seconds, Step

SPENT = {"plan": 1.0, "draft": 2.0, "verify": 4.0, "sample": 8.0, "commit": 16.0}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def spend(self, seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            self.now += seconds
            return work(*given, **named)

        return act


def test_every_part_has_the_time_of_what_it_names(
    load: Callable[..., hs.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock = load("llama", "ngram", pacing="fixed"), Clock()
    inside: Any = engine._loop
    for part, holder, name in (
        ("plan", inside.pacing, "plan"),
        ("draft", inside._drafter, "propose"),
        ("verify", inside._target, "forward"),
        ("sample", inside.judge, "outcomes"),
        ("commit", inside._cache, "keep"),
    ):
        monkeypatch.setattr(holder, name, clock.spend(SPENT[part], getattr(holder, name)))
    monkeypatch.setattr(loop, "time", clock)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    engine.subscribe(clock.spend(1000.0, lambda step: None))  # whoever looks at a step is no part of one
    out = engine.generate([5, 6, 5, 6, 5], hs.Sampling(max_tokens=6, ignore_eos=True))
    assert [step.seconds for step in steps] == [Seconds(**SPENT)] * len(steps)
    assert out.stats.seconds.commit == 16 * len(steps)
    assert out.stats.seconds.total == 31 * len(steps)


def test_the_parts_are_named_in_the_order_of_a_step() -> None:
    assert PARTS == ("plan", "draft", "verify", "sample", "commit")
    both = Seconds(plan=1, draft=2, verify=3, sample=4, commit=5) + Seconds(plan=1)
    assert both == Seconds(plan=2, draft=2, verify=3, sample=4, commit=5)
    assert both.total == 16
