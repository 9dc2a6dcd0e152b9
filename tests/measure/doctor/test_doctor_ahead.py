"""What the doctor says of drafting ahead, from made-up rounds; and one that is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.base.prompt_sets import PromptItem
from headstart.engine.in_turn import Round
from headstart.loading.advice import Advice
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.doctor import ahead as subject
from headstart.measure.doctor.ahead import Outlook, hopeless, outlook, put_ahead, ranked_ahead
from headstart.measure.doctor.candidates import Candidate, absolute
from headstart.measure.doctor.costs import fit
from headstart.measure.doctor.examination import Examination, examine
from headstart.measure.doctor.facts import ahead_words, record
from headstart.measure.doctor.prediction import BATCHES, Member, Prediction
from headstart.measure.doctor.question import Question, Setup
from headstart.measure.doctor.verdict import Ranked, decide
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.statistics import Interval
from headstart.types import Draft, Preparation, Sampling, Seconds, Speculation, Step

NAME = Candidate(("ahead:d",), "ahead")


def step(draft: float, verify: float, prepared: Preparation | None = None) -> Step:
    made = replace(Draft.chain([1, 2, 3]), source="d", prepared=prepared)
    return Step(
        0, 0, 9, made, (0,), (0, 0), None, 4, 1, Seconds(draft=draft, verify=verify), None, Speculation(True, "d")
    )


def rounds(hits: int, misses: int, *, verify: float = 1.0, busy: float = 0.5, in_turn: float = 0.5) -> list[Step]:
    """Ahead: ready drafts cost nothing, with the bonus token second; missed ones what they cost in turn."""
    ready = Preparation(True, 1, 2, 1, 8, 4, 10.0, 10.0 + busy)
    late = replace(ready, hit=False, rank=None)
    return [step(0.0, verify, ready)] * hits + [step(in_turn, verify, late)] * misses


TURN = [step(0.5, 1.0)] * 10


def test_it_pays_where_the_target_has_its_own_hardware() -> None:
    found = outlook(NAME, 3, Interval(1.3), TURN, rounds(9, 1))
    assert found.pays
    assert found.account is not None
    assert found.account.gain == pytest.approx(1.5 / (1 + 0.1 * 0.5))
    assert found.by_fan_out == {1: 0.0, 2: 0.9, 4: 0.9, 8: 0.9, 16: 0.9}
    assert found.sentence == (
        "ahead:d: drafting ahead is 1.30 times as fast as drafting in turn: 90% of its drafts were ready, "
        "and a draft in turn takes 0.50 of a verification."
    )
    assert "2: 90%" in ahead_words(found)


@pytest.mark.parametrize(
    ("steps", "gain", "why"),
    [
        (rounds(9, 1, verify=1.9), 0.8, "is 0.80 times as fast as drafting in turn: beside a drafter that works, the "
         "target takes 1.90 times as long, and all there is to hide is 0.50 of a verification."),
        (rounds(2, 8), 1.02, "is 1.02 times as fast as drafting in turn, too little to count on: only 20% of its "
         "drafts were ready"),
        (rounds(10, 0, busy=1.7), 0.9, "takes 1.70 of a verification, and the target waits for it"),
    ],
)  # fmt: skip
def test_the_term_that_costs_most_is_named(steps: list[Step], gain: float, why: str) -> None:
    found = outlook(NAME, 3, Interval(gain), TURN, steps)
    assert not found.pays
    assert why in found.sentence


def test_too_little_to_hide_is_not_tried() -> None:
    found = hopeless(NAME, 3, 0.03)
    assert found is not None
    assert not found.pays
    assert "at most 1.03 times as fast as drafting in turn" in found.sentence
    assert ahead_words(found) == ""
    assert hopeless(NAME, 3, 0.2) is None


def test_a_gain_that_cannot_be_is_not_believed() -> None:
    """On a busy machine one way may have been held up and the other not."""
    found = outlook(NAME, 3, Interval(50.0, 0.9, 90.0), TURN, rounds(9, 1))
    assert found.gain == Interval(1.5, 0.9, 1.5)
    assert not outlook(NAME, 3, Interval(50.0), TURN, rounds(9, 1, verify=1.9)).pays, "its own rounds say otherwise"


def test_few_rounds_say_nothing() -> None:
    found = outlook(NAME, 3, Interval(2.0), TURN, rounds(3, 1))
    assert not found.pays
    assert "too few rounds" in found.sentence


def test_where_it_pays_it_is_recommended_by_name() -> None:
    members = {"d": Member(1.0, 0.6, 0.2, 0.3, (0.6,), ((60, 100),))}
    prediction = Prediction(3, 3, Interval(1.2, 1.1, 1.4), 2.0, members, dict.fromkeys(BATCHES, 1.2))
    base = Ranked(Candidate(("ngram", "d"), "list"), False, prediction)
    found = replace(outlook(NAME, 3, Interval(1.5), TURN, rounds(9, 1)), candidate=put_ahead(base.candidate, "d"))
    better = ranked_ahead(base, found)
    assert better.candidate.drafters == ("ngram", "ahead:d")
    assert better.gain == pytest.approx(1.8)
    assert better.best.speedup.low == pytest.approx(1.65)
    verdict = decide([base, better])
    assert verdict.best is better
    assert "ngram + ahead:d" in verdict.headline


def test_names_with_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draft").mkdir()
    monkeypatch.chdir(tmp_path)
    name = absolute("ahead:draft")
    assert name == f"ahead:{tmp_path / 'draft'}"
    assert Candidate((name,), "given").name == "ahead:draft"
    advice = Advice((name,), 3, "auto", 1.5, (), "2026-11-22")
    assert advice.missing == ()
    (tmp_path / "draft").rmdir()
    assert advice.missing == (str(tmp_path / "draft"),)


def test_drafts_that_are_hidden_now_and_then_count_by_their_mean() -> None:
    costs = StepCosts(((1, 1.0), (4, 1.1)), drafts={"d": DraftCost(token=0.1, hidden=0.6, slowing=0.3)})
    seconds = [0.0, 0.0, 0.0, 0.3]
    drafted = [Round("d", 3, 3, 1, 2, 1.5 + each, Seconds(draft=each, verify=1.43)) for each in seconds]
    timing = fit(costs, [Round("", 0, 0, 0, 1, 1.0, Seconds(draft=0.0, verify=1.0))], drafted)
    assert timing.of("d").draft("d", 3) == pytest.approx(0.075)
    assert timing.step("d", 4, 3) == pytest.approx(1.43 + 0.075 + 0.07), "the slowing is in the measured forward once"


def test_an_examination_says_whether(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tiny model's own time is all overhead, so what is measured is not asked about; that it is told is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subject, "HOPELESS", 0.0)
    monkeypatch.setattr(subject, "PAYS", 0.0)
    monkeypatch.setattr(subject, "ENOUGH_ROUNDS", 1)
    draft = tiny("llama", noise=0.02)
    items = tuple(PromptItem([5 + i, 6, 7, 5 + i, 6, 7], "kind", f"prompt {i}") for i in range(2))
    setup = Setup(tiny("llama"), TargetOptions(dtype="float32", max_length=96), EngineOptions(max_batch_size=1))
    asked = Question(setup, items, Sampling(max_tokens=24, ignore_eos=True), given=(draft,), seconds=2.0, keep=False)
    found: Examination = examine(asked, lambda what, share: None)
    assert isinstance(found.ahead, Outlook)
    assert found.ahead.candidate.drafters[-1] == f"ahead:{draft}"
    assert found.verdict.reasons[-1] == found.ahead.sentence
    written = json.loads(json.dumps(record(found), allow_nan=False))["ahead"]
    assert written["sentence"] == found.ahead.sentence
    assert found.ahead.pays
    assert found.ahead.candidate in [one.candidate for one in found.ranked]
