"""The clock of two lanes: events by hand, nothing done twice at once, no time lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.learn.simulate.ssd import LANES, TwoLanes

WORK = st.floats(0.01, 10)


def test_work_that_overlaps_in_part_is_slowed_in_part() -> None:
    """By hand: both work for 3 (2 units of the target at 1.5), then the target does its other 2 units alone."""
    lanes = TwoLanes({"target": 0.5, "draft": 0.0}, keep=1)
    lanes.start("target", "verify", 4)
    lanes.start("draft", "level", 3)
    assert lanes.next() == ("draft",)
    assert lanes.now == pytest.approx(3)
    assert lanes.next() == ("target",)
    assert lanes.now == pytest.approx(5)
    assert lanes.run("draft", "level", 2) == pytest.approx(2), "alone again"
    assert lanes.pause("draft", "hand over", 0.5) == 0.5
    assert [(s.lane, s.kind, round(s.start, 9), round(s.end, 9)) for s in lanes.spans] == [
        ("draft", "level", 0, 3), ("target", "verify", 0, 5), ("draft", "level", 5, 7), ("draft", "hand over", 7, 7.5),
    ]  # fmt: skip


def test_a_machine_that_is_split_for_good_is_slow_for_good() -> None:
    lanes = TwoLanes({"target": 0.5, "draft": 1.0}, always=True)
    assert lanes.run("draft", "level", 2) == pytest.approx(4)
    assert lanes.run("target", "verify", 2) == pytest.approx(3)


def test_lanes_that_end_together_are_free_together() -> None:
    lanes = TwoLanes()
    lanes.start("target", "verify", 0.1 + 0.2)
    lanes.start("draft", "level", 0.3)
    assert lanes.next() == LANES


def test_no_lane_does_two_things() -> None:
    lanes = TwoLanes()
    lanes.start("draft", "level", 1)
    with pytest.raises(RuntimeError, match="draft lane already"):
        lanes.start("draft", "glue", 1)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(LANES), WORK), max_size=20), st.floats(0, 2), st.floats(0, 2))
def test_spans_neither_overlap_nor_lose_work(jobs: list[tuple[str, float]], slow: float, draft_slow: float) -> None:
    lanes = TwoLanes({"target": slow, "draft": draft_slow}, keep=1)
    for lane, work in jobs:
        while lanes.works(lane):  # type: ignore[arg-type]
            lanes.next()
        lanes.start(lane, "work", work)  # type: ignore[arg-type]
    while lanes.works("target") or lanes.works("draft"):
        lanes.next()
    for lane in LANES:
        spans = [span for span in lanes.spans if span.lane == lane]
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(spans))
        asked = sum(work for where, work in jobs if where == lane)
        taken = sum(span.end - span.start for span in spans)
        assert lanes.worked[lane] == pytest.approx(asked)
        assert asked - 1e-9 <= taken <= asked * (1 + lanes.slow[lane]) + 1e-9
        assert taken == pytest.approx(lanes.busy[lane].get("work", 0.0))
    assert lanes.now <= sum(work for _, work in jobs) * (1 + max(slow, draft_slow)) + 1e-9
