"""The trace viewer as a reader has it: it opens, tells where tokens come from, steps by keyboard, opens other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import traces
from support.pages import View, checked, watched

import headstart as hs
from headstart.base.web import build


def written(folder: Path, lines: list[traces.Line] | None) -> Path:
    """The page, with a trace inside or with none."""
    path = folder / "trace.html"
    data = None if lines is None else {"trace": lines}
    path.write_text(build.page("viewer/main", "A trace", data=data, styles=["viewer"]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sampled() -> list[traces.Line]:
    """Recorded from the bundled pair at temperature 0.8."""
    engine = hs.Target("bundled", dtype="float32").engine(
        num_speculative_tokens=5, pacing="fixed", drafter="bundled", rule="exact"
    )
    with engine.trace() as recording:
        engine.generate("def mean(values):\n    ", hs.Sampling(max_tokens=40, temperature=0.8, seed=7))
    return json.loads(json.dumps(recording.lines))


def long() -> list[traces.Line]:
    """Eighty rounds, and a draft of sixty guesses in the last of them."""
    steps = [traces.chain(i, 1 + 2 * i, [1, 2], 1, 3) for i in range(79)]
    steps.append(traces.chain(79, 159, [1] * 60, 30, 2))
    return [traces.header(), traces.request(), *steps, traces.end([t for step in steps for t in step["emitted"]])]


def open_page(browser: Any, path: Path) -> tuple[Any, list[str]]:
    tab, wrong = watched(browser.new_context(viewport={"width": 1280, "height": 900}), path.as_uri())
    tab.goto(path.as_uri())
    tab.locator("main").wait_for()
    return tab, wrong


@pytest.mark.parametrize(
    "kind", ["sampled", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("greedy", "tree", "long", "ahead"))]
)
def test_the_page_is_sound(browser: Any, tmp_path: Path, kind: str, sampled: list[traces.Line]) -> None:
    lines = {
        "sampled": sampled,
        "greedy": traces.greedy(),
        "tree": traces.tree(),
        "long": long(),
        "ahead": traces.ahead(),
    }[kind]

    def prepare(tab: Any) -> None:
        tab.get_by_label("What the papers of 2023 would have done").check()
        tab.locator("summary", has_text="Provenance").click()
        if kind == "long":
            tab.get_by_role("slider", name="Rounds").press("End")

    views = [View(1280, "light")] if kind == "sampled" else [View(360, "dark")]
    checked(browser, written(tmp_path, lines), prepare=prepare, views=views)


def slowed(lines: list[traces.Line], times: float) -> list[traces.Line]:
    """The trace as if drafting had taken so many times as long."""
    found = json.loads(json.dumps(lines))
    for line in found:
        if line["type"] == "step":
            line["seconds"]["draft"] *= times
    return found


def test_the_page_says_whether_speculation_paid(browser: Any, tmp_path: Path, sampled: list[traces.Line]) -> None:
    for times, verdict in ((0.0, "Speculation paid"), (1e4, "Speculation lost")):
        tab, wrong = open_page(browser, written(tmp_path, slowed(sampled, times)))
        said = tab.get_by_label("What if K were", exact=True).locator("p").first.inner_text()
        assert said.startswith(f"{verdict}: this run took "), said
        assert "and plain decoding would have taken about" in said
        assert not wrong


def test_draft_lengths_that_change_nothing_share_a_row(browser: Any, tmp_path: Path) -> None:
    steps = [traces.chain(i, 1 + 2 * i, [1, 2], 1, 3) for i in range(9)]
    steps.append(traces.chain(9, 19, [1] * 8, 2, 2))  # drafts of two would have done
    lines = [traces.header(), traces.request(), *steps, traces.end([t for step in steps for t in step["emitted"]])]
    tab, _ = open_page(browser, written(tmp_path, lines))
    rows = tab.get_by_label("Other draft lengths, as a table").locator("tbody tr")
    assert rows.evaluate_all("all => all.map((row) => row.cells[0].innerText)") == ["0", "1", "2 to 7", "8", "9", "10"]


def test_every_emitted_token_stands_there_with_its_origin(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, traces.greedy()))
    tokens = tab.locator(".token-text .tok").evaluate_all(
        "all => all.map(t => [t.textContent, t.className.split(' ')[1]])"
    )
    assert tokens[0] == ["the", "prompt"]
    assert [kind for _, kind in tokens[1:]] == [
        *("accepted", "accepted", "correction"),
        *("accepted", "accepted", "accepted", "bonus"),
        "correction",
        "plain",
    ]
    assert "".join(text for text, _ in tokens[1:4]) == " cat sat on"
    assert not wrong


def test_tokens_rounds_and_the_rule_are_walked_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, traces.greedy()))
    tab.locator(".token-text [tabindex='0']").focus()
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    card = tab.locator(".token-card")
    assert "Round2, place 1" in card.inner_text().replace("\n", "")
    assert "accepted" in card.inner_text()
    assert "Round 2" in tab.locator(".round-headline").inner_text()
    strip = tab.get_by_role("slider", name="Rounds")
    strip.focus()
    tab.keyboard.press("End")
    assert strip.get_attribute("aria-valuenow") == "4"
    assert "one token without a draft" in strip.get_attribute("aria-valuetext")
    tab.keyboard.press("Home")
    rule = tab.get_by_role("group", name="The rule that ran, step by step")
    rule.focus()
    tab.keyboard.press("Home")
    said = tab.locator(".round-event")
    assert "the target\u2019s own token is “·cat”" in said.inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press(" ")
    assert "No guess bears it" in said.inner_text()
    tab.locator(".draft-tree [tabindex='0']").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".tree-node.selected .tree-token").inner_text() == "·cat"
    assert not wrong


def test_the_two_lanes_follow_the_chosen_round(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, traces.ahead()))
    section = tab.get_by_role("region", name="Drafting ahead", exact=True)
    assert "1 of 2 drafts were ready when they were asked for: 50%" in section.inner_text()
    picture = section.get_by_role("img")
    tab.get_by_role("slider", name="Rounds").focus()
    tab.keyboard.press("ArrowRight")
    assert "around round 2. Its draft was ready" in picture.get_attribute("aria-label")
    assert "Its draft was ready" in tab.locator(".round-facts").inner_text()
    signs = section.locator("svg .lane-sign").all_text_contents()
    assert signs == ["✓", "✗"], "the first draft, and no draft, have none"
    for kind, count in (("verify", 4), ("wait", 4), ("ahead", 2), ("now", 3)):
        assert section.locator(f"svg .lane-part.{kind}").count() == count, kind
    boxes = section.locator("svg .lane-part.verify, svg .lane-part.ahead").evaluate_all(
        "all => all.map(t => [t.classList[1], t.getBoundingClientRect()]).map(([c, {left, right}]) => [c, left, right])"
    )
    judging = [(left, right) for kind, left, right in boxes if kind == "verify"]
    drafting = [(left, right) for kind, left, right in boxes if kind == "ahead"]
    for (left, right), (begin, end) in zip(judging, drafting, strict=False):
        assert left < end, "it drafts while the target judges"
        assert begin < right, "it drafts while the target judges"
    section.get_by_label("all rounds").check()
    picture.locator("svg").click(position={"x": picture.bounding_box()["width"] * 0.7, "y": 40})
    assert "Round 3" in tab.locator(".round-headline").inner_text()
    assert "Its draft was not ready" in section.locator(".ahead-words").inner_text()
    section.locator("summary", has_text="The numbers").click()
    cells = section.locator("details tbody tr").nth(1).locator("td").all_inner_texts()
    assert cells == ["2", "yes", "2", "1", "8", "3", "4.00", "0.30"]
    assert not wrong


def test_a_greedy_round_without_a_guess_does_not_speak_of_drawing(browser: Any, tmp_path: Path) -> None:
    """The card of its token and the words of its rule, once greedy and once not."""
    for temperature, said in ((0.0, "likeliest token"), (1.0, "draw")):
        lines = traces.tree()
        lines[1]["sampling"] = {**lines[1].get("sampling", {}), "temperature": temperature}
        tab, wrong = open_page(browser, written(tmp_path, lines))
        tab.locator(".tok.plain[data-index]").first.click()
        words = [tab.locator(place).first.inner_text() for place in (".card-why", ".round-event")]
        assert all(said in each for each in words), words
        assert ("draw" in "".join(words)) == (temperature > 0)
        assert not wrong


def test_without_drafting_ahead_there_are_no_lanes(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, traces.greedy()))
    assert tab.locator(".lanes").count() == 0
    assert not wrong


def test_it_plays_to_the_end_by_itself(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, traces.tree()))
    tab.clock.install()
    tab.get_by_role("button", name="Play").click()
    tab.clock.run_for(30_000)
    assert "Round 2" in tab.locator(".round-headline").inner_text()
    assert tab.get_by_role("button", name="Play").is_visible()
    assert not wrong


def test_the_numbers_are_those_of_the_engine(browser: Any, tmp_path: Path, sampled: list[traces.Line]) -> None:
    tab, wrong = open_page(browser, written(tmp_path, sampled))
    stats = sampled[-1]["stats"]
    tiles = tab.locator(".tile").all_inner_texts()
    assert f"{stats['tokens_per_forward']:.2f}" in tiles[0]
    judged, kept = (sum(stats[name]) for name in ("drafted_per_position", "accepted_per_position"))
    assert tiles[3].startswith("accepted of judged"), "as in the playground, and what chapter 6 calls alpha"
    assert f"{100 * kept / judged:.0f}%" in tiles[3]
    assert f"{kept} of {judged} guesses" in tiles[3]
    depths = tab.locator("section[aria-label='Acceptance by depth'] tbody tr").all_inner_texts()
    pairs = zip(stats["accepted_per_position"], stats["drafted_per_position"], strict=True)
    assert [row.split("\t")[1] for row in depths] == [f"{kept} of {tested}" for kept, tested in pairs]
    tab.locator("summary", has_text="Provenance").click()
    assert "all agree with the file" in tab.locator(".provenance").inner_text()
    assert not wrong


def test_what_ran_is_told_apart_from_what_2023_would_have_done(
    browser: Any, tmp_path: Path, sampled: list[traces.Line]
) -> None:
    tab, _ = open_page(browser, written(tmp_path, sampled))
    assert "Block verification" in tab.locator(".round-rule").inner_text()
    assert tab.locator(".round-classic").inner_text() == ""
    tab.get_by_label("What the papers of 2023 would have done").check()
    assert "Not what ran" in tab.locator(".round-classic").inner_text()
    step = next(line for line in sampled if line["type"] == "step" and line["nodes"])
    node = step["nodes"][0]
    kept = node["uniform"] < min(node["p"] / node["q"], 1)
    assert ("✓ kept" if kept else "✗ not kept") in tab.locator(".round-classic li").first.inner_text()


def test_another_file_is_opened_and_what_is_no_trace_is_said(browser: Any, tmp_path: Path) -> None:
    tab, wrong = open_page(browser, written(tmp_path, None))
    assert "generate --trace" in tab.locator("main").inner_text()
    chooser = tab.get_by_label("Open a trace").first
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(traces.text(traces.greedy()), encoding="utf-8")
    bad.write_text("{}\n", encoding="utf-8")
    chooser.set_input_files(good)
    tab.locator(".tile").first.wait_for()
    chooser.set_input_files(bad)
    trouble = tab.get_by_role("alert")
    trouble.get_by_text("not a trace of headstart").wait_for()
    assert "bad.jsonl" in trouble.inner_text()
    assert tab.locator(".tile").count() == 4, "the trace before stays"
    assert not wrong


def test_a_trace_with_several_requests_lets_one_choose(browser: Any, tmp_path: Path) -> None:
    lines = traces.greedy()
    other = [traces.request(1), traces.walked(0, 1, [1], [-1], [0], 2, number=1), traces.end([1, 2], 1)]
    tab, wrong = open_page(browser, written(tmp_path, [*lines, *other]))
    tab.get_by_label("Request").select_option("1")
    assert "2" in tab.locator(".tile").nth(1).inner_text()
    assert tab.locator(".token-text .tok:not(.prompt)").count() == 2
    assert not wrong
