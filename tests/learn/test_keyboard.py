"""The course by keyboard alone: what can be pressed is reached by Tab, figures step, every exercise is finished.

The fast suite has every fifth chapter; the others are slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.lessons import CHAPTERS, written
from support.pages import walked_by_tab, watched

SOME = [pytest.param(each, marks=() if place % 5 == 4 else pytest.mark.slow) for place, each in enumerate(CHAPTERS)]


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("lessons")).as_uri()


@pytest.fixture
def width() -> int:
    return 1280


@pytest.fixture
def tab(browser: Any, lessons: str, width: int) -> Iterator[Any]:
    """A tab at the lessons without a past, in which nothing may go wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    tab, wrong = watched(context, lessons)
    tab.set_default_timeout(60_000)
    yield tab
    context.close()
    assert not wrong


def open_chapter(tab: Any, lessons: str, chapter: str) -> None:
    tab.goto(f"{lessons}#{chapter}")
    tab.locator("article").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("chapter", ["", *CHAPTERS])
def test_tab_reaches_every_control_and_shows_where_it_is(tab: Any, lessons: str, chapter: str) -> None:
    tab.goto(f"{lessons}#{chapter}")
    tab.locator("main h1").wait_for()
    walked_by_tab(tab)


@pytest.mark.parametrize("chapter", SOME)
def test_figures_step_and_handles_move_by_arrow_keys(tab: Any, lessons: str, chapter: str) -> None:
    open_chapter(tab, lessons, chapter)
    for figure in tab.locator(".figure[tabindex='0']").all():
        place = figure.locator(".stepper-place").first
        figure.focus()
        tab.keyboard.press("Home")
        before = place.inner_text()
        tab.keyboard.press("ArrowRight")
        assert place.inner_text() != before, figure.get_attribute("aria-label")
        tab.keyboard.press("End")
        tab.keyboard.press("ArrowLeft")
    for slider in tab.locator("[role='slider']").all():
        slider.focus()
        values = []
        for key in ("Home", "ArrowRight", "ArrowLeft", "ArrowUp"):
            tab.keyboard.press(key)
            values.append(slider.get_attribute("aria-valuenow"))
        assert len(set(values)) > 1, f"{slider.get_attribute('aria-label')} stays at {values[0]}"


@pytest.mark.parametrize("chapter", SOME)
def test_every_prediction_and_exercise_is_finished_by_keyboard(tab: Any, lessons: str, chapter: str) -> None:
    open_chapter(tab, lessons, chapter)
    for form in tab.locator("form.predict").all():
        form.get_by_role("button", name="I do not know").press("Enter")
        assert form.locator(".revealed").is_visible()
    exercises = dict(
        tab.evaluate(
            "window.headstartLessons.exercises().map(([id, { answer, solve }]) => [id, { answer, solves: !!solve }])"
        )
    )
    assert exercises, "no exercise"
    for name, declared in exercises.items():
        form = tab.locator(f"form.exercise[data-exercise='{name}']")
        answer(tab, form, name, declared)
        form.get_by_role("button", name="Check", exact=True).press("Enter")
        feedback = form.locator(".feedback")
        assert "good" in feedback.get_attribute("class").split(), f"{name}: {feedback.inner_text()}"
        assert feedback.evaluate("(each) => document.activeElement === each"), f"{name}: the feedback has no focus"
        assert "done" in form.get_attribute("class").split(), name
    tab.goto(lessons)
    card = tab.locator(f"a.card[href='#{chapter}']")
    assert "all solved" in card.inner_text()


def answer(tab: Any, form: Any, name: str, declared: dict[str, Any]) -> None:
    """Fill in the right answer: by keyboard where there are fields, as the exercise itself says for a widget."""
    assert declared.get("answer") is not None or declared["solves"], f"{name} declares no right answer"
    if declared["solves"]:
        tab.evaluate("(id) => new Map(window.headstartLessons.exercises()).get(id).solve()", name)
    for key, value in (declared.get("answer") or {}).items():
        field = form.locator(f"[data-field='{key}']")
        radios = field.locator("input[type='radio']")
        if not radios.count():
            field.locator("input").press("Control+a")
            tab.keyboard.type(str(value))
            continue
        radios.first.press(" ")
        wanted = str(value).lower() if isinstance(value, bool) else str(value)
        for _ in range(radios.count()):
            if tab.evaluate("document.activeElement.value") == wanted:
                break
            tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.value") == wanted, f"{name}: {key} has no {wanted}"
