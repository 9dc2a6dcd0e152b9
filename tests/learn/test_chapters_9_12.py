"""Chapters 9, 9b and 12: exercises by keyboard, the best tree and placing, newer ideas, questions from any trace."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support import traces
from support.pages import View, checked, watched

import headstart as hs
from headstart import theory
from headstart.base.web import build
from headstart.learn.pages.lessons import styles
from headstart.model.planes import StateShape
from headstart.model.states import FOLD

BY_RANK = (0.62, 0.17, 0.08, 0.04)
NODES = 8


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with two traces made by hand."""
    shipped = [
        {"name": "greedy", "title": "A chain", "lines": traces.greedy()},
        {"name": "tree", "title": "A tree", "lines": traces.tree()},
    ]
    path = tmp_path_factory.mktemp("lessons") / "lessons.html"
    page = build.page("lessons/main", "Lessons", data={"traces": shipped, "race": None}, styles=styles())
    path.write_text(page, encoding="utf-8")
    return path


def ready(tab: Any) -> None:
    """The data of a page are unpacked before its scripts run."""
    tab.locator("main article > *").first.wait_for()


def opened_at(browser: Any, path: Path, chapter: str) -> tuple[Any, list[str]]:
    tab, wrong = watched(browser.new_context(viewport={"width": 1280, "height": 900}), path.as_uri())
    tab.goto(f"{path.as_uri()}#{chapter}")
    ready(tab)
    return tab, wrong


def solved(tab: Any, exercise: str) -> bool:
    found = tab.evaluate("(id) => headstartLessons.exercises().find(([each]) => each === id)[1].done()", exercise)
    return bool(found)


def feedback(tab: Any, exercise: str) -> str:
    return str(tab.locator(f"[data-exercise='{exercise}'] .feedback").inner_text())


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ["09", "09b", "12"])
def test_the_chapter_is_sound(browser: Any, lessons: Path, chapter: str) -> None:
    checked(browser, f"{lessons.as_uri()}#{chapter}", prepare=ready, views=[View(360, "dark"), View(1280, "light")])


@pytest.mark.parametrize("chapter", ["09", "09b", "12"])
def test_every_exercise_names_its_right_answer(browser: Any, lessons: Path, chapter: str) -> None:
    tab, wrong = opened_at(browser, lessons, chapter)
    for exercise, fields in tab.evaluate(
        "headstartLessons.exercises().map(([id, { answer }]) => [id, answer ?? null])"
    ):
        form = tab.locator(f"[data-exercise='{exercise}']")
        if fields is None:
            tab.evaluate("(id) => headstartLessons.exercises().find(([each]) => each === id)[1].solve()", exercise)
        for value, field in zip((fields or {}).values(), form.locator(".field").all(), strict=True):
            choices = field.locator("input[type=radio]")
            if choices.count():
                field.locator(f"input[value='{value}']").check()
            else:
                field.locator("input").fill(str(value))
        form.get_by_role("button", name="Check").click()
        assert solved(tab, exercise), feedback(tab, exercise)
    assert not wrong


def test_the_best_tree_is_that_of_python(browser: Any, lessons: Path) -> None:
    tab, _ = opened_at(browser, lessons, "09")
    best = theory.best_tree(BY_RANK, NODES, NODES)
    form = tab.locator("[data-exercise='09.1']")
    form.get_by_role("button", name="Add a guess here").click()
    form.get_by_role("button", name="Check").click()
    assert f"the best one {best.expected:.3f}" in feedback(tab, "09.1")
    assert "7 guesses left" in feedback(tab, "09.1")


def test_a_tree_is_planted_by_keyboard_and_a_chain_is_not_enough(browser: Any, lessons: Path) -> None:
    tab, wrong = opened_at(browser, lessons, "09")
    form = tab.locator("[data-exercise='09.1']")
    add = form.get_by_role("button", name="Add a guess here")
    for _ in range(NODES):  # a chain: the chosen box is moved on after every guess
        add.focus()
        tab.keyboard.press("Enter")
        form.locator(".tree-node[tabindex='0']").focus()
        tab.keyboard.press("ArrowRight")
    form.get_by_role("button", name="Check").click()
    assert not solved(tab, "09.1")
    form.get_by_role("button", name="Start again").click()
    for _ in range(2):
        add.focus()
        tab.keyboard.press("Enter")
    form.locator(".tree-node[tabindex='0']").focus()
    tab.keyboard.press("ArrowRight")  # the first guess: six more below it, one after the other
    for _ in range(6):
        add.focus()
        tab.keyboard.press("Enter")
        box = form.locator(".tree-node[tabindex='0']")
        box.focus()
        tab.keyboard.press("ArrowRight")
    form.get_by_role("button", name="Check").click()
    assert "best one" in feedback(tab, "09.1")
    assert add.is_disabled(), "all eight are planted"
    assert not wrong


def test_the_best_placing_of_branches_is_the_best_of_all(browser: Any, lessons: Path) -> None:
    tab, _ = opened_at(browser, lessons, "09")
    form = tab.locator("[data-exercise='09.2']")
    tab.evaluate("headstartLessons.exercises().find(([id]) => id === '09.2')[1].solve()")
    placed = [int(each) for each in form.locator(".place-count").all_inner_texts()]
    chances = [0.3, 0.7 * 0.3, 0.49 * 0.3, 0.343]
    refusal, whole = [0, 0.45, 0.63, 0.72, 0.78, 0.82, 0.85], [0, 0.62, 0.79, 0.87, 0.91, 0.93, 0.95]

    def rate(fans: tuple[int, ...]) -> float:
        return sum(c * (whole if i == 3 else refusal)[f] for i, (c, f) in enumerate(zip(chances, fans, strict=True)))

    most = max(rate(fans) for fans in product(range(7), repeat=4) if sum(fans) == 6)
    assert sum(placed) == 6
    assert rate(tuple(placed)) == pytest.approx(most)


def test_the_gallery_tells_recordings_from_illustrations(browser: Any, lessons: Path) -> None:
    tab, wrong = opened_at(browser, lessons, "09")
    figure = tab.get_by_role("group", name="Drafters at work, round by round")
    assert "Recorded from a real run" in figure.inner_text()
    families = figure.get_by_label("Family of drafters")
    for i in range(1, families.locator("option").count()):
        families.select_option(str(i))
        assert "An illustration, not a recording" in figure.inner_text()
        figure.focus()
        kept = 0
        for _ in range(6):
            tab.keyboard.press("ArrowRight")
            kept += figure.locator(".tree-node.accepted").count()
        assert kept > 0, families.locator("option").nth(i).inner_text()
    assert not wrong


NEW = "import('hs/lessons/chapters/09b-new-ideas/{}')"


def test_a_stack_s_figure_says_what_the_theory_says(browser: Any, lessons: Path) -> None:
    tab, wrong = opened_at(browser, lessons, "09b")
    v = {1: 1.0, 8: 1.5}
    steps = theory.draft_steps(12, 0.7, 0.05, v)
    best = max(range(13), key=lambda k: theory.stacked_speedup(0.95, k, 0.4, steps, v))
    figure = tab.get_by_role("group", name="A draft model alone, and with a drafter of its own")
    said = figure.locator(".break-words").inner_text()
    assert f"{best} tokens cost the draft model {best} steps alone, and {steps[best]:.2f} with" in said
    assert f"stacked, K = {best} is best, with {theory.stacked_speedup(0.95, best, 0.4, steps, v):.2f}" in said
    alone = theory.best_k(0.95, 0.4, v, most=12)
    assert f"Alone, K = {alone.k} is best, with {alone.speedup:.2f}" in said
    assert not wrong


def test_the_sizes_of_a_hybrid_are_those_of_its_planes_and_its_log(browser: Any, lessons: Path) -> None:
    tab, _ = opened_at(browser, lessons, "09b")
    plane, logged, fold = tab.evaluate(NEW.format("states") + ".then((m) => [m.PLANE, m.LOGGED, m.FOLD])")
    layer = StateShape(channels=6144, taps=4, gates=32, numbers=16 * 128 * 128)  # Qwen3.5-0.8B has 18 of these
    assert plane == pytest.approx(18 * layer.saved_bytes / 1e6, abs=0.05)
    assert logged == pytest.approx(18 * 4 * layer.logged / 1e6, abs=0.005)
    assert fold == FOLD
    figure = tab.get_by_role("group", name="States of a hybrid through the rounds")
    figure.get_by_role("button", name="Play a round").click()
    assert "2 rounds" in figure.inner_text()
    assert f"Written so far: {2 * 5 * logged:.1f} MB" in figure.inner_text()
    assert f"would be {2 * 4 * plane:.0f} MB" in figure.inner_text()


def test_the_head_of_a_model_costs_what_its_shape_says(browser: Any, lessons: Path) -> None:
    tab, _ = opened_at(browser, lessons, "09b")
    step, head = tab.evaluate(NEW.format("mtp") + ".then((m) => [m.STEP, m.headStep(248320)])")
    assert 248320 * 1024 / step == pytest.approx(1 / 3, abs=0.01), "docs/guides/drafters-inside-models.md: a third"
    best = theory.best_k([0.77, 0.63, 0.64, 0.83], head / step, most=8)
    said = tab.get_by_role("group", name="A head that may guess all tokens").inner_text()
    assert (
        f"If it may guess all tokens, c = {head / step:.2f}, and K = {best.k} is best, with {best.speedup:.2f}" in said
    )


def test_the_call_of_a_tool_is_what_the_bundled_model_writes(browser: Any, lessons: Path) -> None:
    pytest.importorskip("llguidance")
    tab, _ = opened_at(browser, lessons, "09b")
    call, measured, rounds = tab.evaluate(NEW.format("forced") + ".then((m) => [m.CALL, m.MEASURED, m.roundsOf(true)])")
    arguments = {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    }

    def closed(properties: dict[str, Any]) -> dict[str, Any]:
        required = list(properties)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    schema = closed({"name": {"enum": ["get_weather"]}, "arguments": closed(arguments)})
    engine = hs.load("bundled", dtype="float32", pacing="fixed", num_speculative_tokens=8)
    structure = hs.Structure.schema(schema, whitespace="spaced")
    sampling = hs.Sampling(max_tokens=120, temperature=0, structure=structure)
    found: list[tuple[int, int]] = []
    forwards = 0
    for chunk in engine.stream("Weather in Oslo for three days: ", sampling):
        step, forwards = chunk.step, forwards + 1
        certain = [node in step.draft.forced for node in step.path] + [False]
        found += [(token, int(only)) for token, only in zip(step.tokens, certain, strict=False)]
    kept = [(token, only) for token, only in found if token not in engine.eos_token_ids]
    assert [[engine.tokenizer.decode([token]), only] for token, only in kept] == call
    assert forwards == measured < len(rounds)
    assert sum(map(len, rounds)) == len(call)


def test_the_figures_of_a_run_are_shown_after_the_guess(browser: Any, lessons: Path) -> None:
    tab, wrong = opened_at(browser, lessons, "12")
    tiles = tab.locator(".tiles")
    assert tiles.count() == 1
    assert not tiles.is_visible(), "they would tell the answer to the first question"
    tab.locator("form.predict").get_by_role("button", name="I do not know").click()
    assert tiles.is_visible()
    tab.reload()
    ready(tab)
    assert tab.locator(".tiles").is_visible(), "the guess was kept"
    assert not wrong


def test_12_1_asks_of_a_stretch_that_the_figures_of_the_run_do_not_tell(
    browser: Any, lessons: Path, tmp_path: Path
) -> None:
    tab, _ = opened_at(browser, lessons, "12")
    rounds = [traces.chain(i, i + 1, [1, 2], 1, 3) for i in range(3)]  # two tokens each
    rounds += [traces.chain(i, i + 1, [1], 0, 3) for i in range(3, 9)]  # one each
    own = tmp_path / "own.jsonl"
    own.write_text(traces.text([traces.header(), traces.request(), *rounds, traces.end([1, 3] * 3 + [3] * 6)]))
    tab.get_by_label("Open a trace of your own").set_input_files(own)
    tab.locator(".tile-value", has_text="1.33").first.wait_for(state="attached")
    form = tab.locator("[data-exercise='12.1']")
    assert "in rounds 4 to 8" in form.inner_text()
    for given, told in (("1.33", "That is the whole run"), ("1", "5 tokens over 5 forwards: 1.00")):
        form.locator("input").fill(given)
        form.get_by_role("button", name="Check").click()
        assert told in feedback(tab, "12.1")


def test_wrong_answers_are_told_what_they_mixed_up(browser: Any, lessons: Path) -> None:
    tab, _ = opened_at(browser, lessons, "12")

    def answer(exercise: str, value: str) -> str:
        form = tab.locator(f"[data-exercise='{exercise}']")
        form.locator("input").fill(value)
        form.get_by_role("button", name="Check").click()
        return feedback(tab, exercise)

    assert "accepted guesses only" in answer("12.1", "1.25")
    assert "9 tokens over 4 forwards" in answer("12.1", "2,3")
    assert "accepted of drafted" in answer("12.2", "56")
    assert "2 of 2" in answer("12.2", "100%")
    assert "another one lost more" in answer("12.3", "1")
    assert "Round 3" in answer("12.3", "3")
    certificate = tab.get_by_role("group", name="Your certificate").inner_text()
    assert "2.25 tokens per forward" in certificate
    assert "solved 3 exercises" in certificate
    assert "no guess in chapter 0" in certificate
    tab.evaluate("localStorage.setItem('headstart-lessons', JSON.stringify({'prediction 00': 2.5}))")
    tab.reload()
    ready(tab)
    certificate = tab.get_by_role("group", name="Your certificate").inner_text()
    assert "you guessed that a draft would make it 2.5 times as fast" in certificate


def test_ones_own_trace_brings_its_own_questions(browser: Any, lessons: Path, tmp_path: Path) -> None:
    tab, wrong = opened_at(browser, lessons, "12")
    lines = [traces.header(), traces.request(), traces.chain(0, 1, [1, 2, 7, 8], 4, 3), traces.end([1, 2, 7, 8, 3])]
    own, bad = tmp_path / "own.jsonl", tmp_path / "bad.jsonl"
    own.write_text(traces.text(lines), encoding="utf-8")
    bad.write_text("no trace", encoding="utf-8")
    chooser = tab.get_by_label("Open a trace of your own")
    chooser.set_input_files(bad)
    tab.get_by_text("is not a trace").wait_for()
    chooser.set_input_files(own)
    tab.locator(".tile-value", has_text="5.00").first.wait_for(state="attached")
    answers = tab.evaluate("headstartLessons.exercises().map(([, { answer }]) => answer)")
    assert json.loads(json.dumps(answers)) == [{"tokens": "5.00"}, {"share": "100.0"}, {"round": 0}]
    assert not wrong
