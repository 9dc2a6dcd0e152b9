"""The detector of one stream: what it takes, what it says, and that it goes on where it ended."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.fleet.watch.drift import (
    Baseline,
    Cell,
    Detector,
    Level,
    Settings,
    acceptance_now,
    by_position,
    shorter_drafts,
)
from headstart.theory import best_k

RNG = np.random.default_rng


def window(
    rng: np.random.Generator, acceptance: float = 0.8, *, drafts: int = 1000, depth: int = 3, **names: Any
) -> list[Cell]:
    """Counts of one window: drafts of `depth` tokens, each accepted with one chance if all before it were."""
    cells, tested = [], drafts
    for position in range(1, depth + 1):
        accepted = int(rng.binomial(tested, acceptance))
        cells.append(Cell(position, tested=tested, accepted=accepted, **names))
        tested = accepted
    return cells


def watched(windows: int = 60, seed: int = 0, **names: Any) -> tuple[Detector, np.random.Generator]:
    rng, detector = RNG(seed), Detector()
    for _ in range(windows):
        detector.observe(window(rng, **names))
    return detector, rng


def test_it_learns_then_it_is_silent_then_it_proves_a_fall_and_says_how_large_it_is_and_since_when() -> None:
    rng, detector = RNG(1), Detector()
    assert detector.learning
    assert detector.estimate is None
    for _ in range(47):
        detector.observe(window(rng))
        assert detector.learning
        assert {cell.state for cell in detector.cells} == {"learning"}
    for _ in range(153):
        assert detector.observe(window(rng)) is Level.NONE
    assert not detector.learning
    levels = [detector.observe(window(rng, 0.8 * 0.85)) for _ in range(30)]
    assert levels == sorted(levels)
    assert levels[-1] is Level.PROVED
    assert detector.since is not None
    assert 200 < detector.since <= 230
    estimate = detector.estimate
    assert estimate is not None
    assert 0.15 in estimate.drop
    assert estimate.drop.low > 0.1
    assert abs(estimate.began - 201) <= 3
    assert {cell.state for cell in estimate.cells} == {"watched"}
    assert all(0.15 in cell.drop for cell in estimate.cells)
    assert detector.evidence[Level.PROVED] > 10_000


def test_a_rise_is_no_alarm() -> None:
    detector, rng = watched()
    for _ in range(100):
        assert detector.observe(window(rng, 0.9)) is Level.NONE


def test_a_fall_of_one_tag_is_found_there_however_small_its_share() -> None:
    rng, detector = RNG(2), Detector()
    for t in range(120):
        chat = window(rng, 0.6 if t < 60 else 0.45, drafts=100, tag="chat")
        detector.observe(window(rng, tag="code") + chat)
    assert detector.level is Level.PROVED
    assert {cell.tag for cell in detector.cells[:2]} == {"chat"}
    assert all(cell.evidence < 100 for cell in detector.cells if cell.tag == "code")


def test_a_new_tag_is_learnt_first_and_the_rest_is_watched_meanwhile() -> None:
    detector, rng = watched(tag="code")
    for t in range(70):
        detector.observe(window(rng, tag="code") + window(rng, 0.3, tag="poem"))
        states = {cell.state for cell in detector.cells if cell.tag == "poem"}
        assert states == {"learning" if t < 47 else "watched"}
    assert detector.level is Level.NONE


def test_another_fixed_draft_length_is_learnt_anew_and_the_old_one_is_known_when_it_comes_back() -> None:
    detector, rng = watched(depth=4)
    fixed = [[Cell(c.position, tested=c.tested, accepted=c.accepted, depth=2) for c in window(rng, 0.5, depth=2)]]
    for each in fixed * 60:
        assert detector.observe(each) is Level.NONE
    for _ in range(60):
        detector.observe(window(rng, 0.8 * 0.85, depth=4))
    assert detector.level is Level.PROVED


def test_drafts_that_varied_in_length_and_are_longer_than_those_learnt_from_say_nothing() -> None:
    detector, rng = watched(depth=3)
    for _ in range(100):
        assert detector.observe(window(rng, 0.5, depth=6)) is Level.NONE
    assert {c.state for c in detector.cells if c.position <= 3} == {"longer drafts"}
    for _ in range(60):
        detector.observe(window(rng, 0.8 * 0.85, depth=3))
    assert detector.level is Level.PROVED


def test_the_length_of_drafts_may_be_told() -> None:
    rng, detector = RNG(3), Detector()
    for t in range(160):
        detector.observe(window(rng, 0.8 if t < 60 else 0.5, depth=1), depth=3.0 if t < 60 else 5.0)
    assert detector.level is Level.NONE
    assert [c.state for c in detector.cells] == ["longer drafts"]


def manifest(*acceptances: float, half: float = 0.02) -> list[dict[str, Any]]:
    return [
        {"position": i, "tested": 4000, "accepted": int(4000 * a), "value": a, "low": a - half, "high": a + half}
        for i, a in enumerate(acceptances, 1)
    ]


def test_a_baseline_from_an_export_finds_traffic_that_never_reached_it() -> None:
    rng, low, right = RNG(4), *(Detector(Baseline.of(manifest(0.8, 0.8, 0.8))) for _ in range(2))
    for _ in range(48):
        low.observe(window(rng, 0.65))
        right.observe(window(rng, 0.8))
    assert low.level is Level.PROVED
    assert low.since == 48
    assert right.level is Level.NONE
    assert low.estimate is not None
    assert low.estimate.began == 1
    assert 1 - 0.65 / 0.8 in low.estimate.drop


@pytest.mark.parametrize(
    "entry",
    [{}, {"position": 0}, {"value": "high"}, {"low": 0.9}, {"high": 1.2}, {"tested": None}],
)
def test_a_damaged_baseline_is_refused(entry: dict[str, Any]) -> None:
    whole = manifest(0.8)[0]
    with pytest.raises(InvalidFile, match="expected acceptance"):
        Baseline.of([{**whole, **entry} if entry else {}])


def test_cells_can_be_summed_over_sources_and_tags() -> None:
    cells = [Cell(1, "a", "x", 10, 5), Cell(1, "b", "y", 20, 9), Cell(2, "a", "x", 5, 1)]
    assert by_position(cells) == [Cell(1, tested=30, accepted=14), Cell(2, tested=5, accepted=1)]


def test_counts_and_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"position": 0}, {"tested": 3, "accepted": 4}, {"tested": 3, "accepted": -1}):
        with pytest.raises(InvalidOption):
            Cell(**{"position": 1, **wrong})
    for settings_ in ({"drop": -0.1}, {"learning": 2}, {"mean_windows_to_false_alarm": 1}, {"patience": 3}):
        with pytest.raises(InvalidOption):
            Settings(**settings_)


def test_cells_too_rare_to_be_watched_begin_anew() -> None:
    rng, detector = RNG(5), Detector()
    for _ in range(60):
        detector.observe([*window(rng, depth=1), Cell(2, tested=1, accepted=1)])
    assert [(c.position, c.state) for c in detector.cells] == [(1, "watched"), (2, "learning")]


# -- going on where it ended ------------------------------------------------------------------------------------------


def through(record: Any) -> Any:
    return json.loads(json.dumps(record, allow_nan=False))


@pytest.mark.parametrize("baseline", [None, Baseline.of(manifest(0.8, 0.8, 0.8))])
def test_a_detector_that_is_written_and_read_after_every_window_says_the_same(baseline: Baseline | None) -> None:
    rng, detector = RNG(6), Detector(baseline)
    other = copy.deepcopy(detector)
    for t in range(90):
        cells = window(rng, 0.8 if t < 60 else 0.7) + (window(rng, 0.5, tag="chat") if t > 20 else [])
        assert detector.observe(cells) is other.observe(cells)
        other = Detector.restore(through(other.record()))
        assert through(other.record()) == through(detector.record())
    assert detector.level is Level.PROVED
    assert other.evidence == detector.evidence
    assert other.estimate == detector.estimate


def damaged(record: Any) -> list[Any]:
    """The record with one thing wrong, many times."""
    found = [None, [], {}, "text", {**record, "headstart_drift": 99}]
    found += [{name: value for name, value in record.items() if name != gone} for gone in record]
    found += [{**record, name: wrong} for name in record for wrong in (None, "text", [[1]], {"a": 1})]
    for name in record["pools"][0]:
        for wrong in ("text", [[1]], 7):
            other = copy.deepcopy(record)
            other["pools"][0][name] = wrong
            found.append(other)
    return found


def test_a_damaged_record_is_refused_with_what_to_do() -> None:
    record = through(watched()[0].record())
    for wrong in damaged(record):
        if wrong == record:
            continue
        with pytest.raises(InvalidFile) as refused:
            Detector.restore(wrong)
        assert "learns anew" in refused.value.hint


# -- what holds for any counts ----------------------------------------------------------------------------------------


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    tested = draw(st.integers(0, 300))
    return Cell(
        draw(st.integers(1, 3)),
        draw(st.sampled_from(["", "ngram"])),
        draw(st.sampled_from(["", "chat"])),
        tested,
        draw(st.integers(0, tested)),
        draw(st.sampled_from([None, 3])),
    )


streams = st.lists(st.lists(cells(), max_size=6), min_size=14, max_size=20)


def run(stream: Sequence[Sequence[Cell]]) -> Detector:
    detector = Detector(settings=Settings(learning=12))
    for each in stream:
        detector.observe(each)
    return detector


@given(streams, st.randoms())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_whatever_comes_evidence_is_a_number_and_the_order_of_cells_and_empty_windows_change_nothing(
    stream: list[list[Cell]], random: Any
) -> None:
    detector = run(stream)
    for value in [*detector.evidence.values(), *(cell.evidence for cell in detector.cells)]:
        assert math.isfinite(value)
        assert value >= 0
    for cell in detector.cells:
        assert cell.state == "learning" or math.isfinite(cell.expected)
        assert math.isnan(cell.drop.value) or cell.drop.value <= 1
    through(detector.record())  # JSON knows no NaN
    shuffled = [random.sample(each, len(each)) for each in stream]
    emptied = [part for each in shuffled for part in (each, [], [Cell(1, tested=0, accepted=0)])]
    assert run(emptied).record() == detector.record()


# -- how long drafts should be after a fall ---------------------------------------------------------------------------


def test_after_a_fall_theory_says_how_short_drafts_should_be() -> None:
    detector, rng = watched(100, depth=6)
    before = detector.estimate
    assert before is not None
    assert acceptance_now(before.cells) == pytest.approx([0.8] * 6, abs=0.08)
    assert shorter_drafts(before.cells, 6, 0.05) == ""
    for _ in range(60):
        detector.observe(window(rng, 0.4, depth=6))
    after = detector.estimate
    assert after is not None
    assert acceptance_now(after.cells) == pytest.approx([0.4] * 6, abs=0.05)
    assert best_k(0.4, 0.1).k == 2
    words = "lower K from 6 to 2: 1.30x instead of 1.04x of plain decoding by theory"
    assert shorter_drafts(after.cells, 6, 0.1) == words
    assert shorter_drafts(after.cells, 6, 0.5).startswith("switch speculation off")
    assert shorter_drafts((), 6, 0.1) == ""
    with pytest.raises(InvalidOption):
        shorter_drafts(after.cells, 0, 0.1)


def test_while_it_learns_the_longest_drafts_are_learnt_too() -> None:
    rng, detector = RNG(8), Detector()
    for t in range(48):
        detector.observe(window(rng, depth=2 if t % 2 else 4))
    assert {cell.state for cell in detector.cells if cell.position <= 2} == {"watched"}
    detector.observe(window(rng, depth=4))
    assert {cell.state for cell in detector.cells if cell.position <= 2} == {"watched"}
    detector.observe(window(rng, depth=6))
    assert {cell.state for cell in detector.cells if cell.position <= 2} == {"longer drafts"}


def test_one_drafter_may_have_fixed_lengths_first_and_others_later() -> None:
    rng, detector = RNG(9), Detector()
    for t in range(120):
        fixed = [Cell(c.position, tested=c.tested, accepted=c.accepted, depth=3) for c in window(rng)]
        detector.observe(fixed if t < 60 else window(rng))
    assert {cell.state for cell in detector.cells if cell.depth is None} == {"watched"}
    assert detector.level is Level.NONE
