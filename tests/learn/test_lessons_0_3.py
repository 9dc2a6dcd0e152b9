"""Chapters 0 to 3: exercises accept their answer and refuse others with a reason, figures step by keyboard, their
numbers are those of the library, and the pages are sound at every width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages import View, checked

from headstart.learn.pages import lessons as learn_page
from headstart.theory import Machine, Model, forward_seconds

CHAPTERS = ("00", "01", "02", "03")
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "big", "a", "red"]
TEXTS = ["for", " word", " in", " line", ":\n", "    ", "print", "(", "word", ")"]
ORIGINS = [
    "accepted",
    "accepted",
    "correction",
    "accepted",
    "accepted",
    "bonus",
    "plain",
    "correction",
    "accepted",
    "plain",
]
STEPS = [0, 0, 0, 1, 1, 1, 2, 3, 4, 4]
RACE = {
    "prompt": "# a program\n",
    "target": "a target",
    "drafter": "a draft",
    "machine": "a machine",
    "command": "headstart generate",
    "created": "2026-01-31T12:00:00Z",
    "same_text": True,
    "plain": {
        "seconds": 0.02,
        "forwards": 10,
        "tokens": [{"text": text, "at": 0.002 * (i + 1), "origin": "plain"} for i, text in enumerate(TEXTS)],
    },
    "headstart": {
        "seconds": 0.0125,
        "forwards": 5,
        "drafted": 9,
        "tokens": [
            {"text": text, "at": 0.0025 * (step + 1), "origin": origin, "step": step}
            for text, origin, step in zip(TEXTS, ORIGINS, STEPS, strict=True)
        ],
    },
}
WRONG: list[tuple[str, dict[str, Any], str]] = [  # exercise, answers by field in order, what must be said
    ("00.1", {"passes": 14, "guessed": 8}, "That is the number of passes without guesses"),
    ("00.1", {"passes": 8, "guessed": 6}, "The other way round"),
    ("00.1", {"passes": 6, "guessed": 9}, "The passes are right"),
    ("01.1", {"ms": 0.0418}, "in seconds"),
    ("01.1", {"ms": 20.9}, "16 bits are 2 bytes"),
    ("01.1", {"ms": 23.9}, "tokens a second"),
    ("01.2", {"tb": 0.14}, "This is one pass"),
    ("01.2", {"tb": "28000"}, "gigabytes"),
    ("01.2", {"tb": "28,000"}, "gigabytes"),
    ("01.3", {"wrong": "nothing"}, "Look at the unit"),
    ("01.3", {"wrong": "limit"}, "waits for memory"),
    ("02.2", {"distributions": 7, "first": 11, "last": 18}, "One more is of use"),
    ("02.2", {"distributions": 8, "first": 12, "last": 18}, "Counting from 0"),
    ("02.2", {"distributions": 8, "first": 11, "last": 19}, "last row"),
    ("02.3", {"boxes": 16}, "no pass has read it"),
    ("02.3", {"boxes": 19}, "before the rewind"),
    ("03.1", {f"case{i}": "keep" for i in range(1, 6)}, "case 3"),
    ("03.2", {"words": "sat on"}, "one more word comes out"),
    ("03.2", {"words": "sat on red mat the"}, "was refused"),
    ("03.2", {"words": "sat on a mat the"}, "guessed for another text"),
    ("03.3", {"why": "unlikely"}, "How likely they are is never asked"),
    ("03.3", {"why": "order"}, "There is always another number"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lessons") / "lessons.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn_page, "race", lambda: RACE)
        file.write_text(learn_page.lessons_page(), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    return browser.new_context(offline=True, reduced_motion="reduce").new_page()


def at(tab: Any, path: Path, chapter: str) -> Any:
    """The chapter as a reader sees it who has done nothing yet."""
    tab.goto(path.as_uri())
    tab.evaluate("localStorage.clear()")
    tab.goto(f"{path.as_uri()}#{chapter}")
    tab.reload()
    tab.locator("h1").wait_for()
    return tab


def fill(form: Any, values: dict[str, Any]) -> None:
    """Puts values into the fields of an exercise, which stand in the order of the values."""
    form.wait_for()  # the page draws itself after it has loaded
    fields = form.locator(".field")
    assert fields.count() == len(values)
    for i, value in enumerate(values.values()):
        radio = fields.nth(i).locator(f"input[type=radio][value='{value}']")
        if radio.count():
            radio.check()
        else:
            fields.nth(i).locator("input").fill(str(value))


def submitted(form: Any) -> str:
    form.get_by_role("button", name="Check").press("Enter")
    feedback = form.locator(".feedback")
    assert feedback.evaluate("each => each === document.activeElement"), "the feedback has the focus"
    return str(feedback.inner_text())


def table(tab: Any, figure: Any) -> list[list[str]]:
    details = figure.locator("details.numbers")
    if not details.evaluate("each => each.open"):
        details.locator("summary").press("Enter")
    details.locator("tbody tr").first.wait_for()
    cells = "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    return details.locator("tbody tr").evaluate_all(cells)  # type: ignore[no-any-return]


# -- exercises --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_exercise_accepts_its_answer_and_is_done_then(tab: Any, path: Path, chapter: str) -> None:
    at(tab, path, chapter)
    found = tab.evaluate("headstartLessons.exercises().map(([id, { answer }]) => [id, answer ?? null])")
    assert found
    assert all(name.startswith(f"{chapter}.") for name, _ in found)
    for name, answer in found:
        form = tab.locator(f"form[data-exercise='{name}']")
        if answer is None:
            tab.evaluate(f"headstartLessons.exercises().find(([id]) => id === '{name}')[1].solve()")
        else:
            fill(form, answer)
        submitted(form)
        assert "good" in form.locator(".feedback").get_attribute("class").split(), name
        assert tab.evaluate(f"headstartLessons.exercises().find(([id]) => id === '{name}')[1].done()")
    tab.goto(path.as_uri())
    assert "all solved" in tab.locator(f"a.card[href='#{chapter}']").inner_text()


def test_wrong_answers_are_refused_with_a_sentence_that_helps(tab: Any, path: Path) -> None:
    here = ""
    for name, values, said in WRONG:
        if name[:2] != here:
            here = name[:2]
            at(tab, path, here)
        form = tab.locator(f"form[data-exercise='{name}']")
        fill(form, values)
        words = submitted(form)
        assert said in words, (name, values, words)
        assert "bad" in form.locator(".feedback").get_attribute("class").split(), (name, values)


def test_the_row_that_judges_is_picked_by_keyboard_and_other_rows_are_refused(tab: Any, path: Path) -> None:
    form = at(tab, path, "02").locator("form[data-exercise='02.1']")
    assert "Choose a row" in submitted(form)
    rows = form.locator("button.mask-row")
    for row, said in (
        (7, "has read “mat” itself"),
        (2, "part of the text already"),
        (4, "an earlier one"),
        (8, "after “mat”"),
    ):
        rows.nth(row).press("Enter")
        assert said in submitted(form), row
    rows.nth(6).press("Space")
    assert "Row 6" in submitted(form)


# -- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chapter", "label"),
    [
        ("00", "writes the same text"),
        ("02", "Who may look"),
        ("02", "A shelf"),
        ("03", "One round"),
        ("03", "Target and draft"),
    ],
)
def test_figures_step_by_keyboard_and_say_each_step(tab: Any, path: Path, chapter: str, label: str) -> None:
    at(tab, path, chapter)
    figure = tab.locator(f".figure[aria-label*='{label}']")
    place = figure.locator(".stepper-place")
    figure.focus()
    tab.keyboard.press("Home")
    count = int(place.inner_text().split()[-1])
    assert count > 3
    heard = []
    for i in range(1, count):
        tab.keyboard.press("ArrowRight" if i % 2 else "Space")
        assert place.inner_text() == f"{i + 1} of {count}"
        tab.locator("[aria-live]:not(:empty)").wait_for(state="attached")
        heard.append(tab.locator("[aria-live]").inner_text())
    assert len(set(heard)) == count - 1, "every step is said, and none twice"
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowLeft")
    assert place.inner_text() == f"{count - 1} of {count}"


def test_the_race_shows_what_was_recorded(tab: Any, path: Path) -> None:
    at(tab, path, "00")
    figure = tab.locator(".figure[aria-label*='writes the same text']")
    assert table(tab, figure) == [["alone", "10", "10", "20 ms", "1.00"], ["with a draft", "10", "5", "13 ms", "2.00"]]
    tab.get_by_role("button", name="Start the race").press("Enter")  # with reduced motion, the end is shown at once
    assert "".join(TEXTS) in figure.locator("pre").nth(1).inner_text()
    assert figure.locator(".later").count() == 0
    assert figure.locator("pre").nth(1).locator(".tok.correction").count() == ORIGINS.count("correction")


def test_the_bet_is_shown_again_at_the_end(tab: Any, path: Path) -> None:
    at(tab, path, "00")
    assert "not guessed yet" in tab.locator(".bet").inner_text()
    bet = tab.locator("form.predict")
    bet.locator("input").fill("2,5")
    bet.get_by_role("button", name="Show me").press("Enter")
    assert "1.6 times as fast" in bet.inner_text()
    assert "You guessed 2.5 times; it was 1.6 times" in tab.locator(".bet").inner_text()
    tab.reload()
    assert "You guessed 2.5 times" in tab.locator(".bet").inner_text()


def test_marked_tokens_are_compared_with_the_truth_by_keyboard(tab: Any, path: Path) -> None:
    at(tab, path, "00")
    figure = tab.locator(".figure[aria-label*='Which tokens']")
    figure.locator(".markable").first.focus()
    for key in ("Space", "ArrowRight", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    assert "2 tokens marked" in figure.inner_text()
    figure.get_by_role("button", name="Show the truth").press("Enter")
    assert "You marked 2 tokens, and 1 of them was guessed. In truth 5 of these 10 tokens" in figure.inner_text()
    assert [row[1] for row in table(tab, figure)] == ORIGINS


def test_without_a_recorded_race_the_chapter_says_so(tab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn_page, "race", lambda: None)
    file = tmp_path / "lessons.html"
    file.write_text(learn_page.lessons_page(), encoding="utf-8")
    assert "without the recorded race" in at(tab, file, "00").locator("main").inner_text()


def test_passes_cost_what_theory_says(tab: Any, path: Path) -> None:
    at(tab, path, "01")
    rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    module = "import('hs/lessons/chapters/01-memory/machines')"
    for billions, bits, bandwidth, flops in ((70, 16, 3350, 990), (8, 4, 1010, 165), (1, 8, 80, 1.5)):
        setup = f"{{billions: {billions}, bits: {bits}, bandwidth: {bandwidth}, flops: {flops}}}"
        found = tab.evaluate(f"{module}.then((m) => {rows}.map((n) => m.passOf({setup}, n).seconds))")
        machine, model = Machine(bandwidth * 1e9, flops * 1e12), Model(billions * 1e9, bits / 8)
        assert np.allclose(found, [forward_seconds(machine, model, n) for n in rows], rtol=1e-12)
    shown = table(tab, tab.locator(".figure[aria-label*='One pass']"))
    assert shown[0] == ["1", "41.8 ms", "0.14 ms", "41.8 ms", "41.8 ms"]
    assert shown[-1][3] == "144.8 ms"


def test_handles_move_the_sentence_and_the_figure(tab: Any, path: Path) -> None:
    at(tab, path, "01")
    bits = tab.get_by_role("slider", name="bits of a weight")
    bits.press("ArrowLeft")
    assert bits.get_attribute("aria-valuetext") == "12 bits"
    bits.press("Home")
    sentence = bits.locator("xpath=ancestor::p")
    assert "35 GB" in sentence.inner_text()
    assert "10.4 ms" in sentence.inner_text()
    figure = tab.locator(".figure[aria-label*='One pass']")
    assert "This pass takes 10.4 ms for one row" in figure.inner_text()
    tab.get_by_role("radio", name="gaming card").check()
    assert "34.7 ms" in sentence.inner_text()
    figure.get_by_role("slider", name="n, rows").press("End")
    assert "It waits for arithmetic" in figure.inner_text()


def test_an_own_measurement_is_drawn_and_anything_else_is_refused(tab: Any, path: Path, tmp_path: Path) -> None:
    at(tab, path, "01")
    figure = tab.locator(".figure[aria-label*='real machine']")
    costs = {
        "seconds": 0.004,
        "v": {"1": 1.0, "8": 1.5, "2": 1.1},
        "weight_bytes_read": 4e8,
        "bytes_per_second": 1e11,
        "nearly_free_rows": 2,
    }
    mine = {
        "headstart_doctor": 1,
        "target": {"target": "mine", "dtype": "float32"},
        "provenance": {"cpu": "a processor"},
        "costs": costs,
    }
    file = tmp_path / "mine.json"
    for text, said in (
        (json.dumps(mine), "This is mine.json"),
        ("{", "not JSON"),
        ('{"headstart_bench": 1}', "not an answer of headstart doctor"),
    ):
        file.write_text(text, encoding="utf-8")
        figure.locator("input[type=file]").set_input_files(file)
        figure.get_by_text(said).wait_for()
    sentence = figure.locator(".step-words").inner_text()
    assert sentence.startswith(
        "Mine, float32, a processor: a pass with one row takes 4.00 ms, in which it reads 400 MB"
    )
    assert table(tab, figure) == [["1", "1.00", "4.00 ms"], ["2", "1.10", "4.40 ms"], ["8", "1.50", "6.00 ms"]]


def test_the_example_measurement_is_one_that_was_made(tab: Any, path: Path) -> None:
    at(tab, path, "01")
    example = tab.evaluate("import('hs/lessons/chapters/doctor-file').then((m) => m.EXAMPLE)")
    recorded = json.loads(Path("benchmarks/results/doctor-T1B-20261121-193036.json").read_text(encoding="utf-8"))
    for name, value in recorded["costs"]["v"].items():
        assert example["costs"]["v"][name] == pytest.approx(value, abs=5e-4)
    for name in ("seconds", "weight_bytes_read", "bytes_per_second", "nearly_free_rows"):
        assert example["costs"][name] == pytest.approx(recorded["costs"][name], rel=1e-3)
    (shown,), best = example["candidates"], recorded["candidates"][0]["best"]
    assert shown["best"]["k"] == best["k"]
    assert shown["best"]["speedup"]["value"] == pytest.approx(best["speedup"]["value"], abs=5e-4)
    for name in ("alpha", "c"):
        assert shown["best"]["sources"]["draft"][name] == pytest.approx(best["sources"]["D30M"][name], abs=5e-4)


def test_a_row_of_the_mask_sees_itself_and_what_stands_before(tab: Any, path: Path) -> None:
    at(tab, path, "02")
    figure = tab.locator(".figure[aria-label*='Who may look']")
    k = figure.get_by_role("slider", name="K, the number of guesses")
    for count in (1, 5):
        k.press("Home" if count == 1 else "End")
        text = ["the", "cat", "sat", "on", "the", "red", "dog", "ran"][: 3 + count]
        use = ["\N{EN DASH}", "\N{EN DASH}", *(f"guess {i + 1}" for i in range(count)), "bonus"]
        rows = [[str(i), word, " ".join(text[: i + 1]), use[i]] for i, word in enumerate(text)]
        assert table(tab, figure) == rows
        assert f"{count + 1} distributions for {count}" in figure.inner_text()
        seen = "rows => rows.map((row) => row.querySelectorAll('.seen, .self').length)"
        assert figure.locator("table.mask tbody tr").evaluate_all(seen) == list(range(1, len(text) + 1))


def distribution(context: list[int], *, draft: bool) -> np.ndarray[Any, Any]:
    """The tutorial's models."""
    place = sum(context[-3:])
    rng = np.random.RandomState(place + (200 if draft else 100))
    logits = rng.randn(10) * (0.8 if draft else 1.0)
    logits[place % 10] += 1.5 if draft else 2.0
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()  # type: ignore[no-any-return]


def test_the_round_is_the_published_one_and_its_distributions_are_the_models(tab: Any, path: Path) -> None:
    at(tab, path, "03")
    figure = tab.locator(".figure[aria-label*='One round']")
    figure.focus()
    tab.keyboard.press("End")
    assert figure.locator(".round-text").inner_text().split() == ["the", "cat", "a", "cat"]
    assert "3 words for one pass" in figure.locator(".step-words").inner_text()
    module = "import('hs/lessons/chapters/03-a-round/replay')"
    toy = "import('hs/algorithm/toy')"
    stages = tab.evaluate(f"Promise.all([{module}, {toy}]).then(([m, t]) => m.stagesOf(t.recordedRound()))")
    judged = [stage for stage in stages if stage["verb"] == 2 and not stage.get("drawn")]
    contexts = [[0], [0, 1], [0, 1, 8]]
    assert len(judged) == 3
    for stage, context in zip(judged, contexts, strict=True):
        assert np.allclose(stage["p"], distribution(context, draft=False))
        assert np.allclose(stage["q"], distribution(context, draft=True))
    last = next(stage for stage in stages if stage.get("drawn"))
    rest = np.maximum(distribution(contexts[2], draft=False) - distribution(contexts[2], draft=True), 0)
    assert np.allclose(last["r"], rest / rest.sum())


def test_the_two_distributions_after_the_cat_are_the_published_numbers(tab: Any, path: Path) -> None:
    at(tab, path, "03")
    p, q = distribution([0, 1], draft=False), distribution([0, 1], draft=True)
    kept = np.minimum(1, p / q)
    shown = table(tab, tab.locator(".figure[aria-label*='Target and draft']"))
    assert shown == [[word, f"{p[i]:.3f}", f"{q[i]:.3f}", f"{kept[i]:.3f}"] for i, word in enumerate(WORDS)]
    assert shown[2] == ["sat", "0.062", "0.208", "0.297"]


# -- the frame --------------------------------------------------------------------------------------------------------


def test_progress_goes_to_a_file_and_comes_back_and_can_be_forgotten(tab: Any, path: Path, tmp_path: Path) -> None:
    form = at(tab, path, "02").locator("form[data-exercise='02.3']")
    fill(form, {"boxes": 15})
    submitted(form)
    tab.goto(path.as_uri())
    card = tab.locator("a.card[href='#02']")
    assert "1 of 3 solved" in card.inner_text()
    tab.locator("details.keeping summary").press("Enter")
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Save to a file").press("Enter")
    file = tmp_path / "progress.json"
    saved.value.save_as(file)
    tab.get_by_role("button", name="Forget everything").press("Enter")
    tab.get_by_role("button", name="No", exact=True).press("Enter")
    assert "1 of 3 solved" in card.inner_text()
    tab.get_by_role("button", name="Forget everything").press("Enter")
    tab.get_by_role("button", name="Yes, forget").press("Enter")
    assert "solved" not in card.inner_text()
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"headstart_doctor": 1}', encoding="utf-8")
    tab.locator("details.keeping summary").press("Enter")
    tab.locator("input[type=file]").set_input_files(wrong)
    tab.get_by_text("not the progress of these lessons").wait_for()
    tab.locator("input[type=file]").set_input_files(file)
    tab.get_by_text("1 of 3 solved").wait_for()


def test_without_storage_the_lessons_work_as_long_as_the_page(browser: Any, path: Path) -> None:
    wrong: list[str] = []
    page = browser.new_context(offline=True).new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    denied = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied'); }})"
    page.add_init_script(denied)
    page.goto(f"{path.as_uri()}#02")
    form = page.locator("form[data-exercise='02.3']")
    fill(form, {"boxes": 15})
    submitted(form)
    page.evaluate("location.hash = ''")
    page.get_by_text("1 of 3 solved").wait_for()
    assert not wrong


def test_on_paper_every_word_of_a_chapter_is_there_and_no_solution(tab: Any, path: Path) -> None:
    at(tab, path, "03")
    form = tab.locator("form[data-exercise='03.3']")
    for name in ("A hint", "Show the solution"):
        form.get_by_role("button", name=name).press("Enter")
    tab.emulate_media(media="print")
    assert tab.locator("button.term").first.is_visible(), "a word that explains itself is still a word"
    assert not form.locator(".solution").is_visible()
    tab.emulate_media(media="screen")


def test_each_place_has_its_address_and_the_focus_follows(tab: Any, path: Path) -> None:
    at(tab, path, "01")
    assert tab.title().startswith("Why a token costs the whole model")
    tab.locator("nav.onward a.next").press("Enter")
    tab.get_by_role("heading", level=1, name="One forward answers").wait_for()
    assert tab.url.endswith("#02")
    assert tab.evaluate("document.activeElement.id") == "lessons"
    tab.go_back()
    tab.get_by_role("heading", level=1, name="Why a token").wait_for()


# -- the pages --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_chapter_is_sound_in_every_view(browser: Any, path: Path, chapter: str) -> None:
    def prepare(page: Any) -> None:
        for figure in page.locator(".figure[tabindex='0']").all():
            figure.focus()
            for _ in range(9):
                page.keyboard.press("ArrowRight")
        for term in page.locator("button.term").all():
            term.press("Enter")
        for guess in page.locator("form.predict").all():
            guess.get_by_role("button", name="I do not know").press("Enter")

    checked(browser, f"{path.as_uri()}#{chapter}", prepare=prepare, views=[View(360, "dark"), View(1280, "light")])
