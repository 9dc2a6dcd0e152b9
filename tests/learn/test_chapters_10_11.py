"""Chapters 10 and 11: their figures are the library's formulas, their exercises judge rightly, their commands exist.

The modules run in a browser, as the page has them; what they compute is compared with Python.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.guides import parsed
from support.lessons import written

from headstart.learn.simulate import run_scenario, scenarios
from headstart.theory import Machine, Model, batch_speedup, expected_tokens, forward_seconds, paying_batch

CHAPTERS = ("10", "11")
MACHINE, TARGET, DRAFT = Machine(3.35e12, 8e14), Model(70e9), Model(1e9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("chapters"))


@pytest.fixture(scope="module")
def page(browser: Any) -> Any:
    return browser.new_context(offline=True, reduced_motion="reduce").new_page()


def at(page: Any, path: Path, chapter: str) -> Any:
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#{chapter}")
    page.evaluate("localStorage.clear()")
    page.reload()
    page.locator("article").wait_for()
    return page


def modules(page: Any, path: Path, name: str, expression: str) -> Any:
    """The value of an expression in which `m` is a module of the page."""
    if not page.url.startswith(path.as_uri()):
        at(page, path, "10")
    return page.evaluate(f"import('hs/lessons/chapters/{name}').then((m) => {expression})")


# -- twins ------------------------------------------------------------------------------------------------------------


def test_speed_by_batch_is_the_theorys(page: Any, path: Path) -> None:
    grid = [(a, k, b) for a in (0.3, 0.6, 0.8, 0.95) for k in (1, 4, 5, 10) for b in (1, 8, 40, 107, 256, 512)]
    found = modules(page, path, "10-when-it-hurts/machine", f"{[list(each) for each in grid]}.map((x) => m.gain(...x))")
    wanted = [float(batch_speedup(MACHINE, TARGET, a, k, b, draft=DRAFT)) for a, k, b in grid]
    assert np.allclose(found, wanted, rtol=1e-12)
    for alpha, k in ((0.6, 4), (0.8, 5)):
        last = modules(page, path, "10-when-it-hurts/machine", f"m.paysUpTo({alpha}, {k})")
        assert last == paying_batch(MACHINE, TARGET, alpha, k, draft=DRAFT)


def test_an_answer_in_time_has_every_token_and_the_times_of_its_steps(page: Any, path: Path) -> None:
    base = "batch: 32, tokens: 41, first: 0.3, k: 5, alpha: 0.8, seed: 4"
    setup = f"m.answer({{{base}, paced: false}})"
    found = modules(page, path, "10-when-it-hurts/machine", setup)
    plain_step = forward_seconds(MACHINE, TARGET, 1, 32)
    round_ = forward_seconds(MACHINE, TARGET, 6, 32) + 5 * forward_seconds(MACHINE, DRAFT, 1, 32)
    assert len(found["plain"]["shown"]) == len(found["fast"]["shown"]) == 41
    assert found["plain"]["shown"][-1] == pytest.approx(0.3 + 40 * plain_step)
    assert found["fast"]["shown"][-1] == pytest.approx(0.3 + found["fast"]["calls"] * round_)
    paced = modules(page, path, "10-when-it-hurts/machine", setup.replace("false", "true"))["fast"]["shown"]
    assert all(late >= soon - 1e-12 for late, soon in zip(paced, found["fast"]["shown"], strict=True))
    assert max(np.diff(paced)) < max(np.diff(found["fast"]["shown"])), "pacing takes from the longest gap"
    assert (np.diff(paced) >= -1e-12).all(), "and keeps the order"


def test_bursts_bring_the_tokens_that_theory_expects(page: Any, path: Path) -> None:
    each = "m.answer({batch: 1, tokens: 2001, first: 0, k: 4, alpha: 0.7, paced: false, seed: s}).fast.calls"
    calls = modules(page, path, "10-when-it-hurts/machine", f"[1, 2, 3, 4, 5].map((s) => {each})")
    assert 10_000 / sum(calls) == pytest.approx(float(expected_tokens(0.7, 4)), rel=0.03)


def test_situations_are_the_simulators_and_their_speeds_too(page: Any, path: Path) -> None:
    at(page, path, "10")
    names = page.locator(".situation").all_inner_texts()
    assert names == list(scenarios())
    for name, scenario in scenarios().items():
        page.get_by_role("button", name=name, exact=True).click()
        said = page.locator(".figure:has(.situations) .figure-said").inner_text()
        if isinstance(scenario.alpha, tuple):
            assert "a K that follows gives" in said
            continue
        result = run_scenario(scenario, rounds=20, streams=50)
        assert float(said.split(" ")[0]) == pytest.approx(result.predicted, abs=0.006)
        assert ("slower" in said) == (result.predicted is not None and result.predicted < 1)
        assert result.best_k is not None
        if 0 < result.best_k <= 12:
            best = float(said.split("with ")[-1].rstrip("."))
            assert f"Best: K = {result.best_k} with" in said
            assert best == pytest.approx(result.best_speedup, abs=0.006)
        elif result.best_k == 0:
            assert "Best: do not speculate." in said


def test_the_rivals_lose_as_the_text_says(page: Any, path: Path) -> None:
    found = modules(page, path, "11-keep-it-good/rules", "m.rivals()")
    practice = next(each for each in found if not each["fixed"])
    assert all(practice["time"] < each["time"] for each in found if each["fixed"])
    for each in found:
        assert each["time"] == pytest.approx(each["calls"] + 0.1 * each["drafted"])


def test_the_detector_keeps_its_promise_and_finds_what_falls(page: Any, path: Path) -> None:
    """Promised is at most one false alarm in 1,000 requests without drift."""
    streams = modules(
        page,
        path,
        "11-keep-it-good/stream",
        "Array.from({length: 250}, (_, i) => m.stream(i + 1))",
    )
    early = [
        each
        for each in streams
        if each["detected"] is not None and (each["fall"] is None or each["detected"] < each["fall"])
    ]
    watched = sum(160 if each["fall"] is None else each["fall"] for each in streams)
    assert len(early) <= watched / 1000
    large = [each for each in streams if each["drop"] == 0.25]
    assert large
    assert all(each["detected"] is not None and each["detected"] - each["fall"] < 40 for each in large)
    assert 0.6 < sum(each["fall"] is not None for each in streams) / len(streams) < 0.9


@pytest.mark.parametrize(
    ("stream", "seen", "kind"),
    [
        ("{fall: 40, detected: 59}", 40, "early"),
        ("{fall: 40, detected: 59}", 41, "good"),
        ("{fall: 40, detected: 59}", 70, "good"),
        ("{fall: 40, detected: 59}", 71, "late"),
        ("{fall: 40, detected: null}", 150, "good"),
        ("{fall: null, detected: null}", 100, "early"),
    ],
)
def test_a_press_is_judged_by_its_delay(page: Any, path: Path, stream: str, seen: int, kind: str) -> None:
    assert modules(page, path, "11-keep-it-good/stream", f"m.judge({stream}, {seen}).kind") == kind


# -- exercises --------------------------------------------------------------------------------------------------------


def exercise(page: Any, number: str) -> Any:
    return page.locator(f'form[data-exercise="{number}"]')


def fill(form: Any, values: dict[str, Any], page: Any) -> None:
    """Put values into the fields of an exercise, in their order."""
    fields = form.locator(".field").all()
    assert len(fields) == len(values)
    for field, value in zip(fields, values.values(), strict=True):
        if field.locator("input.answer").count():
            field.locator("input.answer").fill(str(value))
        else:
            options = field.locator("label.choice")
            field.locator("input").nth(int(value)).check() if isinstance(value, int) else options.filter(
                has_text=value
            ).locator("input").check()


def told(page: Any, number: str, values: dict[str, Any]) -> tuple[bool, str]:
    form = exercise(page, number)
    fill(form, values, page)
    form.get_by_role("button", name="Check").click()
    feedback = form.locator(".feedback")
    return "good" in (feedback.get_attribute("class") or ""), feedback.inner_text()


def test_10_1_wants_the_batch_at_which_it_stops_paying(page: Any, path: Path) -> None:
    at(page, path, "10")
    right = paying_batch(MACHINE, TARGET, 0.6, 4, draft=DRAFT)
    assert told(page, "10.1", {"batch": 40}) == (
        False,
        "✗\nWith 40 requests the speed is 2.18 times the baseline: still faster, so go higher.",
    )
    assert "already slower" in told(page, "10.1", {"batch": 240})[1]
    assert not told(page, "10.1", {"batch": round(1.05 * right)})[0]
    assert told(page, "10.1", {"batch": right})[0]


def test_10_3_names_the_cards_that_are_wrong(page: Any, path: Path) -> None:
    at(page, path, "10")
    right = {"a": 0, "a?": 0, "b": 1, "b?": 1, "c": 1, "c?": 2, "d": 0, "d?": 3}
    assert "card 2, 4" in told(page, "10.3", {**right, "b?": 3, "d": 1})[1]
    assert told(page, "10.3", right)[0]


def test_10_2_keeps_the_first_token_apart(page: Any, path: Path) -> None:
    at(page, path, "10")
    assert "decoding alone" in told(page, "10.2", {"times": "2.5"})[1]
    assert told(page, "10.2", {"times": f"{1.6 / 1.36:.2f}"})[0]


def test_11_1_is_not_won_by_the_practice_rule_and_is_by_a_quicker_one(page: Any, path: Path) -> None:
    at(page, path, "11")
    form = exercise(page, "11.1")
    form.get_by_role("button", name="Check").click()
    assert "the practice rule takes" in form.locator(".feedback").inner_text()
    for label, keys in (
        ("Rounds looked at", ["ArrowLeft"] * 3),
        ("Never fewer than", ["Home"]),
        ("Never more than", ["Home"] + ["ArrowRight"] * 3),
    ):
        slider = page.get_by_role("slider", name=label)
        for key in keys:
            slider.press(key)
    form.get_by_role("button", name="Check").click()
    assert "good" in (form.locator(".feedback").get_attribute("class") or "")


def test_11_2_is_lost_by_pressing_at_once_and_won_at_the_detectors_time(page: Any, path: Path) -> None:
    at(page, path, "11")
    form = exercise(page, "11.2")

    def check() -> str:
        form.get_by_role("button", name="Check").click()
        return str(form.locator(".feedback").inner_text())

    assert "not judged" in check()
    page.get_by_role("button", name="Ten requests").click()
    page.get_by_role("button", name="It has fallen").click()
    assert "false alarm" in check().lower()
    page.get_by_role("button", name="Another stream").click()
    fall = page.evaluate("import('hs/lessons/chapters/11-keep-it-good/stream').then((m) => m.stream(2))")
    assert fall["fall"] is not None
    assert "20 requests so far" in page.get_by_role("group", name="The drift game").inner_text(), "it begins with some"
    rest = fall["detected"] + 1 - 20
    for _ in range(rest // 10):
        page.get_by_role("button", name="Ten requests").click()
    for _ in range(rest % 10):
        page.get_by_role("button", name="One request").click()
    page.get_by_role("button", name="It has fallen").click()
    assert "after the fall" in check()


def test_11_3_tells_load_from_drift(page: Any, path: Path) -> None:
    at(page, path, "11")
    assert "like with like" in told(page, "11.3", {"drift": 0, "why": 1})[1]
    assert told(page, "11.3", {"drift": 1, "why": 0})[0]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_answers_that_the_page_offers_are_right(page: Any, path: Path, chapter: str) -> None:
    at(page, path, chapter)
    for number in page.evaluate("window.headstartLessons.exercises().map(([id]) => id)"):
        solved = page.evaluate(
            """(id) => {
              const { answer, solve } = Object.fromEntries(window.headstartLessons.exercises())[id];
              solve?.();
              return answer ?? null;
            }""",
            number,
        )
        form = exercise(page, number)
        if solved is not None:
            for field, value in zip(form.locator(".field").all(), solved.values(), strict=True):
                if field.locator("input.answer").count():
                    field.locator("input.answer").fill(str(value))
                else:
                    field.locator(f'input[value="{value}"]').check()
        form.get_by_role("button", name="Check").click()
        feedback = form.locator(".feedback")
        assert "good" in (feedback.get_attribute("class") or ""), f"{number}: {feedback.inner_text()}"


# -- commands ---------------------------------------------------------------------------------------------------------


def test_every_command_that_is_shown_exists(page: Any, path: Path) -> None:
    commands = [
        text for chapter in CHAPTERS for text in at(page, path, chapter).locator("code.shell").all_text_contents()
    ]
    assert len(commands) >= 9
    for words in map(shlex.split, commands):
        assert words[0] == "headstart"
        parsed(tuple(words[1:]))
