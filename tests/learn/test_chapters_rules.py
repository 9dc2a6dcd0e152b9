"""Chapters 4, 4b and 5: towers, rules and listings, driven in a browser; every claim that they make is worked out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lessons import written
from support.twins import Twin, names_in, twin_in

from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import verify
from headstart.types import Draft

CHAPTERS = ("04", "04b", "05")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("lessons"))


@pytest.fixture
def at(browser: Any, path: Path) -> Iterator[Any]:
    """Opens a chapter; no error may come up while a test looks at it."""
    context = browser.new_context(offline=True, reduced_motion="reduce", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)

    def opener(chapter: str) -> Any:
        page.goto(f"{path.as_uri()}#{chapter}")
        page.get_by_role("heading", level=1).wait_for()
        return page

    yield opener
    assert wrong == []
    context.close()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_exercise_is_not_solved_as_it_stands(at: Any, chapter: str) -> None:
    page = at(chapter)
    for exercise in page.evaluate("headstartLessons.exercises().map(([id]) => id)"):
        form = page.locator(f'[data-exercise="{exercise}"]')
        form.get_by_role("button", name="Check").click()
        assert not form.evaluate("form => form.classList.contains('done')"), exercise


# -- chapter 4 ---------------------------------------------------------------------------------------------------------


def read(text: str) -> Fraction:
    return Fraction(text.replace("\N{MINUS SIGN}", "-"))


def sums(page: Any) -> list[list[Fraction]]:
    """The rows under the towers: kept, from refusals, what comes out, p."""
    rows = page.locator(".proof-sums tbody tr").all()
    return [[read(cell) for cell in row.locator("td").all_inner_texts()] for row in rows]


def test_towers_by_keyboard_keep_the_sums_exact(at: Any) -> None:
    page = at("04")
    tower = page.locator(".proof .tower[role=slider]")
    assert tower.count() == 6
    rng = np.random.default_rng(1)
    keys = ["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"]
    seen = set()
    for _ in range(40):
        bar = tower.nth(int(rng.integers(6)))
        bar.focus()
        page.keyboard.press(keys[int(rng.integers(len(keys)))])
        rows = sums(page)
        assert all(kept + brought == out == p for kept, brought, out, p in rows)
        assert sum(p for *_, p in rows) == 1
        seen.add(tuple(p for *_, p in rows))
        assert bar.get_attribute("aria-valuetext")
    assert len(seen) > 10, "the towers moved"


def test_a_tower_is_dragged_by_the_mouse_and_by_a_finger(at: Any) -> None:
    page = at("04")
    bar = page.get_by_role("slider", name=re.compile("q, the draft.s chance of the")).first
    bar.scroll_into_view_if_needed()
    box = bar.locator(".tower-well").bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] * 0.8)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] * 0.5)
    page.mouse.up()
    assert bar.get_attribute("aria-valuenow") == "10"
    page.mouse.move(middle, box["y"])
    assert bar.get_attribute("aria-valuenow") == "10", "let go"
    # A made-up pointer cannot be captured: in the place of that, the bar believes that it is.
    bar.evaluate("bar => { bar.setPointerCapture = () => {}; bar.hasPointerCapture = () => true; }")
    drag = """([bar, x, y]) => {
      const touch = { pointerId: 1, pointerType: "touch", clientX: x, bubbles: true };
      bar.dispatchEvent(new PointerEvent("pointerdown", { ...touch, clientY: y }));
      bar.dispatchEvent(new PointerEvent("pointermove", { ...touch, clientY: y - 40 }));
    }"""
    page.evaluate(drag, [bar.element_handle(), middle, box["y"] + box["height"]])
    assert bar.get_attribute("aria-valuenow") == "5"


def test_numbers_of_ones_own(at: Any) -> None:
    page = at("04")
    form = page.locator(".own-distributions")
    for name, value in (
        ("p of the", "1/7"),
        ("p of cat", "2/7"),
        ("p of sat", "4/7"),
        ("q of the", "0"),
        ("q of cat", "1"),
    ):
        form.get_by_label(name).fill(value)
    form.get_by_role("button", name="Use them").click()
    assert "add up to 1" in form.get_by_role("status").inner_text()
    form.get_by_label("q of sat").fill("0")
    form.get_by_role("button", name="Use them").click()
    assert "2/7" in form.get_by_role("status").inner_text()
    assert [out for _, _, out, _ in sums(page)] == [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    form.get_by_label("q of sat").fill("cat")
    form.get_by_role("button", name="Use them").click()
    assert "not a number" in form.get_by_role("status").inner_text()


def test_p_itself_after_a_refusal_is_told_apart_from_other_mistakes(at: Any) -> None:
    form = at("04").locator("[data-exercise='04.1']")
    for values, said in ((("0.5", "0.3", "0.2"), "That is p itself"), (("0.2", "0.3", "0.5"), "Not this distribution")):
        for i, value in enumerate(values):
            form.locator(".field input").nth(i).fill(value)
        form.get_by_role("button", name="Check").click()
        assert said in form.locator(".feedback").inner_text()


def test_a_prediction_in_per_cent_takes_the_sign(at: Any) -> None:
    form = at("04").locator("form.predict")
    form.get_by_label("Your guess").fill("30%")
    form.get_by_role("button", name="Show me").click()
    assert "Yes." in form.locator(".revealed").inner_text()


def shares(page: Any) -> list[float]:
    return [float(text) for text in page.locator(".race .lane-value").all_inner_texts()]


def test_ten_thousand_draws_run_to_p_and_the_wrong_rule_elsewhere(at: Any) -> None:
    page = at("04")
    page.get_by_role("button", name="Draw 10,000").click()
    page.locator(".race-said", has_text="10,000 draws").wait_for()
    assert shares(page) == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    page.get_by_label("p itself").check()
    page.get_by_role("button", name="Draw 10,000").click()
    page.locator(".race-said", has_text="10,000 draws").wait_for()
    assert shares(page) == pytest.approx([0.35, 0.39, 0.26], abs=0.02)


# -- chapter 4b --------------------------------------------------------------------------------------------------------

RULE_MODULES = (
    "lessons/chapters/04-nothing-changes/two-distributions",
    "lessons/chapters/04b-the-rule-today/texts",
    "lessons/chapters/04b-the-rule-today/tree",
    "lessons/chapters/04b-the-rule-today/two-rules",
    "lessons/chapters/05-find-the-bug/listings",
)


@pytest.fixture(scope="module")
def js(browser: Any) -> Twin:
    return twin_in(browser, [*names_in("algorithm"), *RULE_MODULES])


def toy_text(rule: Any, k: int, drawn: bool, seed: int, distributions: tuple[Any, Any], length: int = 20) -> list[int]:
    """The chapter's texts once more, with the engine's own rule and noise."""
    p_table, q_table = distributions
    text, noise = [0, 1], Noise(seed)
    while len(text) < length + 2:
        place = len(text)
        guesses: list[int] = []
        rows = []
        for i in range(k):
            q = q_table[sum([*text, *guesses][-3:])]
            rows.append(q)
            coupled = rule == "coupled"
            purpose, lane = (Purpose.TOKEN, 0) if coupled else (Purpose.DRAFT, place)
            guesses.append(noise.draw(q, place + i, purpose, lane) if drawn else int(q.argmax()))
        p = np.array([p_table[sum([*text, *guesses[:i]][-3:])] for i in range(k + 1)])
        verdict = verify(Draft.chain(guesses), p, np.array(rows) if drawn and k else None, noise, place, rule)
        text += [guesses[node] for node in verdict.path] + [verdict.bonus]
    return text[2 : length + 2]


@pytest.mark.parametrize("rule", ["coupled", "exact"])
def test_texts_are_those_of_the_engines_rule(js: Twin, rule: str) -> None:
    tables = js("() => [hs['toy-table'].TARGET, hs['toy-table'].DRAFT]")
    distributions = (np.array(tables[0]), np.array(tables[1]))
    call = "([rule, name, seed]) => hs.texts.write(rule, name, seed).ids"
    drafters = js("() => hs.texts.DRAFTERS")
    for seed in range(1, 9):
        texts = {}
        for name, drafter in drafters.items():
            texts[name] = js(call, [rule, name, seed])
            assert texts[name] == toy_text(rule, drafter["k"], drafter["drawn"], seed, distributions)
        same = {tuple(text) for name, text in texts.items() if rule == "coupled" or name in ("none", "likeliest")}
        assert len(same) == 1, "one seed, one text"
    if rule == "exact":
        assert texts["two"] != texts["none"]


@pytest.mark.parametrize("rule", ["traverse", "walk"])
def test_the_steps_of_the_tree_end_with_what_came_out(js: Twin, rule: str) -> None:
    ends = set()
    for seed in range(30):
        steps = js("([rule, seed]) => hs.tree.stepsOf(rule, seed)", [rule, seed])
        assert "Out comes" in steps[-1]["words"]
        kept = [i for i, state in enumerate(steps[-1]["states"]) if state == "accepted"]
        assert kept == steps[-1]["path"]
        ends.add(tuple(kept))
    assert len(ends) >= 3, "different uniform draws, different outcomes"


def test_block_verification_is_milder_and_stricter(js: Twin) -> None:
    kept = """(uniforms) => {
      const { classic, block } = hs["two-rules"].bothRules([1, 1, 0], uniforms);
      return [classic.accepted, block.accepted];
    }"""
    assert js(kept, ["0.3", "0.7", "0.4"]) == [1, 3]
    assert js(kept, ["0.3", "0.3", "0.8"]) == [3, 0]
    assert js(kept, ["0.7", "0.3", "0.4"]) == [0, 3]


def test_the_enumeration_button_gives_both_averages(at: Any) -> None:
    page = at("04b")
    page.get_by_role("button", name="Enumerate every draft").click()
    said = page.locator(".proof-by-counting [role=status]").inner_text()
    assert said.count("is 0 away") == 2
    assert "2.533 tokens" in said
    assert "2.698 tokens" in said


def test_the_coupled_figure_says_whether_the_words_changed(at: Any) -> None:
    page = at("04b")
    figure = page.get_by_role("group", name="Twenty words after")
    text = figure.locator(".token-text")
    before = text.inner_text()
    figure.get_by_label("small model, 5 guesses").check()
    assert text.inner_text() == before
    assert "The same words" in figure.locator(".step-words").inner_text()
    figure.get_by_label("exact", exact=True).check()
    assert text.inner_text() != before
    assert "Other words" in figure.locator(".step-words").inner_text()


# -- chapter 5 ---------------------------------------------------------------------------------------------------------

FAR = {
    # The distance of the next word's distribution from p, and the share of rounds that break down or are silent.
    "05.1": (Fraction(3, 20), 0, 0),
    "05.2": (Fraction(3, 14), 0, Fraction(3, 10)),
    "05.3": (Fraction(3, 20), 0, 0),
    "05.4": (Fraction(3, 14), Fraction(51, 100), 0),
    "05.5": (Fraction(0), 0, 0),
    "05.6": (Fraction(9, 40), 0, 0),
}


@pytest.mark.parametrize("exercise", FAR)
def test_a_listing_is_as_wrong_as_it_is_said_to_be_and_mended_it_is_right(js: Twin, exercise: str) -> None:
    call = """(id) => { const { LISTINGS, exactDistribution } = hs.listings;
      const listing = LISTINGS.find((each) => each.id === id);
      return [exactDistribution(listing, listing.judge), exactDistribution(listing, hs.mutants.RIGHT_VERIFIER)]; }"""
    wrong, right = js(call, exercise)
    word, broken, silent = FAR[exercise]
    assert (Fraction(wrong["word"]), Fraction(wrong["broken"]), Fraction(wrong["silent"])) == (word, broken, silent)
    assert (Fraction(wrong["text"]) > 0) == (exercise != "05.5"), "its fault is in the number, not in the text"
    assert Fraction(right["word"]) == Fraction(right["text"]) == 0
    assert right["distribution"] == right["p"]


def test_the_acceptance_that_counts_corrections_exceeds_one(js: Twin) -> None:
    found = js("() => hs.listings.exactMetric()")
    # K = 2 and alpha = .7: 2.19 words a round, 1.19 of them guesses, of which 1.7 are looked at.
    assert found == {"printed": "219/200", "kept": "119/200", "judged": "7/10", "alpha": "7/10"}


def test_listings_are_sound(js: Twin) -> None:
    for listing in js("() => hs.listings.LISTINGS"):
        lines, mended = listing["lines"], listing["mended"]
        assert lines != mended
        assert all(line < len(lines) for line in [*listing["faults"], *map(int, listing["innocent"])])
        assert not set(listing["faults"]) & set(map(int, listing["innocent"]))
        assert all(mended[line] not in lines or line for line in listing["changed"])
        assert len(listing["hints"]) == 2


def test_a_line_is_picked_by_the_arrow_keys(at: Any) -> None:
    page = at("05")
    form = page.locator('[data-exercise="05.1"]')
    first = form.get_by_role("radio").first
    first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    feedback = form.locator(".feedback")
    assert "Not line 1" in feedback.inner_text()
    assert "3/20" in feedback.inner_text(), "the exact distribution answers all the same"
    form.get_by_role("radio").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "Line 6 it is" in feedback.inner_text()
    assert "distance 0" in feedback.inner_text()
