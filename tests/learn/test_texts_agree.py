"""What a chapter says agrees with what stands beside it: numbers with their quotient, colours with their legend."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.guides import parsed
from support.lessons import written

from headstart.learn.pages import lessons as learn_page


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("lessons"))


@pytest.fixture(scope="module")
def at(browser: Any, path: Path) -> Iterator[Any]:
    context = browser.new_context(offline=True, reduced_motion="reduce", viewport={"width": 1280, "height": 900})
    tab = context.new_page()

    def opened(chapter: str) -> Any:
        tab.goto("about:blank")
        tab.goto(f"{path.as_uri()}#{chapter}")
        tab.get_by_role("heading", level=1).wait_for()
        return tab

    yield opened
    context.close()


def test_the_exercises_of_every_chapter_stand_in_the_order_of_their_numbers(at: Any) -> None:
    for chapter in at("00").evaluate("headstartLessons.chapters.map(({ id }) => id)"):
        forms = at(chapter).locator("form.exercise").evaluate_all("all => all.map((each) => each.dataset.exercise)")
        assert forms == sorted(forms), chapter


def test_the_text_of_the_race_is_shown_to_its_end(at: Any) -> None:
    recorded = learn_page.race()
    assert recorded is not None
    assert at("00").locator(".markable").count() == len(recorded["headstart"]["tokens"])


def test_the_manager_s_look_gives_the_words_that_she_kept_and_one(at: Any) -> None:
    said = at("00").locator("main").inner_text()
    assert "drafts the next five words" in said
    assert "the first three of the five are hers, one look has given four words" in said


def test_p_over_q_as_they_are_shown_is_the_share_that_is_told(at: Any) -> None:
    """Rounded too far, they would not be: .062 / .21 is 29.5%, not 29.7%."""
    page = at("03")
    (p, q, share) = re.findall(r"p = (\.\d+), the draft had q = (\.\d+), so it is kept in only ([\d.]+)%",
                               page.locator("main").inner_text())[0]  # fmt: skip
    assert f"{100 * float(p) / float(q):.1f}" == share
    module = "import('hs/lessons/chapters/03-a-round/overrated')"
    figure = page.get_by_role("group", name="Target and draft after")
    figure.focus()
    overrated = 0
    for _ in range(10):
        found = re.search(r"p = (\.\d+), q = (\.\d+)\. The draft overrates it: kept in ([\d.]+)%",
                          figure.locator(".step-words").inner_text())  # fmt: skip
        if found:
            overrated += 1
            assert f"{100 * float(found[1]) / float(found[2]):.1f}" == found[3]
        page.keyboard.press("ArrowRight")
    assert overrated >= 3
    assert page.evaluate(f"{module}.then((m) => m.precise(0.061874))") == ".06187"


def test_the_distance_to_p_has_a_place_of_its_own_from_1_down(at: Any) -> None:
    page = at("04")
    height = "import('hs/lessons/chapters/04-nothing-changes/race').then((m) => [1, 0.7, 0.4, 0.1, 0.01].map(m.height))"
    heights = page.evaluate(height)
    assert heights == sorted(set(heights)), "the smaller the distance, the lower"
    page.get_by_role("button", name="Draw 100", exact=True).click()
    path = page.locator(".race-path")
    right = path.evaluate("each => getComputedStyle(each).stroke")
    page.get_by_label("p itself").check()
    assert path.evaluate("each => getComputedStyle(each).stroke") != right, (
        "the wrong rule alone has the wrong's colour"
    )
    labels = page.locator(".race-trail text[text-anchor=middle]").evaluate_all(
        "all => all.map((each) => each.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    )
    assert all(before[1] < after[0] for before, after in pairwise(labels))


def test_what_is_to_be_remembered_of_the_rule_is_no_menu(at: Any) -> None:
    page = at("04b")
    kept = page.locator(".summary").inner_text()
    assert "likeliest words, n-grams" in kept
    assert "4 guesses" not in kept
    assert "the same seed gives the same text with any drafter" in kept
    assert "The toy of ten words from chapter 3" in page.get_by_role("group", name="Twenty words after").inner_text()


def test_a_hatched_bar_has_the_colour_of_its_legend(at: Any) -> None:
    page = at("10")
    figure = page.get_by_role("group", name="One answer in time")
    figure.locator(".block.prefill").first.wait_for()
    fill = figure.locator("rect[fill^='url(#gantt']").first.get_attribute("fill")
    line = figure.locator(f"pattern{fill[4:-1]} line").evaluate("each => getComputedStyle(each).stroke")
    key = figure.locator(".gantt-key.prefill").evaluate("each => getComputedStyle(each).borderTopColor")
    assert line == key


def test_the_commands_of_the_checklist_exist_and_drift_is_watched_where_it_is(at: Any) -> None:
    """A fixed file of prompts cannot show that the traffic has changed."""
    cards = at("11").locator(".checklist li")
    lines = [cards.nth(i).locator("code.shell").all_text_contents() for i in range(cards.count())]
    for line in (line for card in lines for line in card):
        parsed(tuple(shlex.split(line)[1:]))
    assert [line.split()[1] for line in lines[-1]] == ["serve", "watch", "adapt"]


def test_no_story_asks_for_a_drafter_whose_range_says_that_it_needs_what_the_story_lacks(at: Any) -> None:
    page = at("09")
    assert "the text repeats nothing" not in page.locator("[data-exercise='09.3']").inner_text()
    assert "spiky" in page.get_by_role("region", name="The families side by side").inner_text()


def test_one_sentence_goes_through_all_chapters_and_each_says_which_step_it_is_about(at: Any) -> None:
    for chapter in at("00").evaluate("headstartLessons.chapters.map(({ id }) => id)"):
        beside = at(chapter).get_by_label("Where this chapter is in the round")
        steps = beside.locator("li").all_inner_texts()
        assert [step.split("\n")[0] for step in steps] == ["Draft", "Verify", "Accept", "Commit"], chapter
        assert steps[2].endswith("sat ✓ on ✓ the ✓ a ✗"), chapter
        assert steps[3].endswith("the cat sat on the dog"), chapter
        assert beside.locator("li[aria-current=step]").count() >= 1, chapter
        assert len(beside.locator("p").inner_text().split()) > 8, chapter


def test_the_numbers_of_the_sentence_are_those_of_the_ten_words(at: Any) -> None:
    said = at("03").get_by_label("Where this chapter is in the round").locator("p").inner_text()
    found = re.search(r"q = (\.\d+), .* p = (\.\d+), and the die showed (\.\d+): not below p/q = (\.\d+)", said)
    assert found
    q, p, die, limit = map(float, found.groups())
    assert p / q == pytest.approx(limit, abs=0.005)
    assert die >= limit
