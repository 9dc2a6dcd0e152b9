"""The playground as a reader has it, in a real browser: runs, origins, cards, comparisons, history, the keyboard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.browser import until
from support.http_server import Running, chat_model, serving
from support.pages import View, checked, walked_by_tab
from support.playground import PATIENCE, WRITERS, Reader, reading

import headstart as hs
from headstart.commands.demo import PROMPTS
from headstart.engine.trace.reader import parse_trace

PROMPT = PROMPTS[0]
"""The page opens with that of `headstart demo`."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Running]:
    """The bundled pair under rule "exact". Draft lengths are fixed, so that a seed gives one text."""
    engine = hs.load(max_batch_size=2, pacing="fixed", drafter="bundled", rule="exact")
    with serving(engine, {"served_model_name": ("bundled",)}, pages=WRITERS) as running:
        yield running
        assert running.settled(), "a request or a slot was left behind"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A tiny random chat model with a draft of it, under rule "coupled"."""
    root = tmp_path_factory.mktemp("chat")
    target, draft = chat_model(root / "target", context=512), chat_model(root / "draft", context=512, noise=0.01)
    engine = hs.load(target, draft, dtype="float32", max_length=512, pacing="fixed", rule="coupled", max_batch_size=2)
    with serving(engine, pages=WRITERS) as running:
        yield running


@pytest.fixture
def reader(browser: Any, pair: Running) -> Iterator[Reader]:
    with reading(browser, pair) as found:
        yield found


def asked(server: Running, **fields: Any) -> dict[str, Any]:
    """The server's own answer, with its trace."""
    body = {"prompt": PROMPT, "speculation": {"trace": True, "metrics": "detailed"}, **fields}
    response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_run_shows_the_servers_text_origins_and_figures(reader: Reader, pair: Running) -> None:
    reader.set(seed=5, temperature=0.8, tokens=48)
    reader.run()
    answer = asked(pair, seed=5, temperature=0.8, max_tokens=48)
    assert reader.text() == answer["choices"][0]["text"]
    origins: Counter[str] = Counter()
    for step in answer["headstart"]["steps"]:
        accepted = min(len(step["path"]), len(step["emitted"]))
        origins["accepted"] += accepted
        origins[step["end"]["kind"]] += len(step["emitted"]) - accepted
    assert Counter(origin for _, origin in reader.tokens()) == +origins
    figures, timings = reader.figures(), answer["timings"]
    assert figures["accepted of judged"] == f"{timings['draft_n_accepted']} of {timings['draft_n']}"
    told = answer["metrics"]["headstart"]["tokens_per_forward"]
    assert float(figures["tokens / forward"]) == pytest.approx(told, abs=0.006)
    assert re.fullmatch(rf"\d+ of {answer['usage']['prompt_tokens']}", figures["cached"])
    assert reader.tab.locator(".legend").first.is_visible()


def test_the_page_opens_with_a_race_against_plain_decoding(browser: Any, pair: Running) -> None:
    with reading(browser, pair, motion=True) as reader:
        reader.tab.locator(".verdict.same").wait_for(timeout=PATIENCE)
        assert "Same text, bit for bit" in reader.tab.locator(".verdict").inner_text()
        assert reader.tab.locator(".ratio").bounding_box()["y"] < 900, "the result is in the first screen"
        assert reader.tab.locator(".why .round-view").is_visible(), "the third column is not empty"
        assert reader.tab.locator(".why .stepper-place").first.inner_text().split(" of ")[0].isdigit()


def test_the_card_has_the_recorded_numbers(reader: Reader, pair: Running) -> None:
    reader.set(seed=5, temperature=0.8, tokens=48)
    reader.run()
    steps = asked(pair, seed=5, temperature=0.8, max_tokens=48)["headstart"]["steps"]
    index = 0
    for step in steps:
        weights = [step["nodes"][node].get("weight") for node in step["path"]]
        if weights and weights[-1] is not None:
            break
        index += len(step["emitted"])
    node = step["nodes"][step["path"][-1]]
    token = reader.tab.locator(".answer .tok[data-index]").nth(index + len(step["path"]) - 1)
    token.hover()
    card = reader.tab.locator(".popover .token-card")
    card.wait_for(timeout=PATIENCE)
    said = card.inner_text()
    assert step["source"] in said
    assert step["budget"]["reason"] in said
    for value in (node["p"], node["q"], node["uniform"], node["weight"]):
        assert spoken(value) in said, value
    token.click()
    assert card.is_hidden(), "it stands in the column beside the text now"
    beside = reader.tab.locator(".why .token-card")
    assert beside.inner_text() == said
    assert reader.tab.locator(".why .round-view").inner_text().startswith(f"Round {step['i'] + 1}")


def spoken(value: float) -> str:
    """A probability as the pages write it."""
    if value in (0, 1):
        return str(int(value))
    if value < 0.001 or value > 0.999:
        return "<.001" if value < 0.5 else ">.999"
    return f"{value:.3f}"[1:] if value < 0.1 else f"{value:.2f}"[1:]


def test_against_plain_says_same_or_why_not(reader: Reader) -> None:
    reader.set(seed=5, temperature=0.9, tokens=48)
    reader.run()
    reader.tab.get_by_role("button", name="Against plain").click()
    verdict = reader.tab.locator(".verdict")
    verdict.wait_for(timeout=PATIENCE)
    assert "Two texts of one distribution" in verdict.inner_text()
    assert "not started with --rule exact" in verdict.inner_text()
    assert reader.tab.locator(".clock").count() == 2
    reader.tab.get_by_role("button", name="Run both at temperature 0").click()
    reader.tab.locator(".verdict.same").wait_for(timeout=PATIENCE)
    assert "Same text, bit for bit: 48 tokens" in verdict.inner_text()
    assert re.search(r"\d\.\d\d\u00d7", reader.tab.locator(".ratio").inner_text())
    guessed = reader.text()
    reader.tab.get_by_role("button", name="Show the answer: plain").click()
    assert reader.text() == guessed
    assert {origin for _, origin in reader.tokens()} == {"plain"}


def test_a_chat_under_rule_coupled_gives_the_same_text_at_any_temperature(browser: Any, chat: Running) -> None:
    with reading(browser, chat) as reader:
        assert reader.tab.get_by_label("Chat", exact=True).is_checked()
        reader.set(prompt="ab", seed=3, temperature=1, tokens=24)
        reader.run()
        first = reader.text()
        reader.tab.get_by_role("button", name="Against plain").click()
        reader.tab.locator(".verdict.same").wait_for(timeout=PATIENCE)
        assert "Rule coupled promises it" in reader.tab.locator(".verdict").inner_text()
        reader.tab.get_by_role("button", name="Go on with this chat").click()
        turns = reader.tab.locator(".turn").all_inner_texts()
        assert turns[0] == "You ab"
        assert turns[1] == f"Model {first}" or turns[1].split() == f"Model {first}".split()
        with reader.tab.expect_request("**/v1/chat/completions") as sent:
            reader.set(prompt="c")
            reader.run()
        roles = [message["role"] for message in sent.value.post_data_json["messages"]]
        assert roles == ["user", "assistant", "user"]
        reader.tab.get_by_label("Text", exact=True).check()
        with reader.tab.expect_request("**/v1/completions"):
            reader.run()


def test_escape_stops_and_the_slot_is_free(reader: Reader, pair: Running) -> None:
    reader.tab.get_by_label("Guess ahead with the drafter").uncheck()
    reader.set(tokens=1000, temperature=0.8)
    reader.tab.locator(".ask .run").click()
    reader.tab.locator(".answer .tok.plain[data-index]").nth(3).wait_for(timeout=PATIENCE)
    reader.tab.keyboard.press("Escape")
    reader.ended("stopped")
    assert pair.settled()
    assert "Stopped after" in reader.tab.locator(".end-words").inner_text()
    assert 3 < len(reader.tokens()) < 1000
    assert reader.tab.locator(".ask .run").is_enabled()


def test_the_end_of_the_last_run_is_not_said_of_one_that_is_written(reader: Reader) -> None:
    reader.set(seed=5, tokens=8, temperature=0.8)
    reader.run()
    end = reader.tab.locator(".end-words")
    assert end.inner_text() == "The limit on tokens ended the text."
    reader.set(tokens=1000)
    reader.tab.locator(".ask .run").click()
    reader.tab.locator(".answer[data-status=running] .tok[data-index]").first.wait_for(timeout=PATIENCE)
    assert end.inner_text() == ""
    reader.tab.keyboard.press("Escape")
    reader.ended("stopped")
    assert end.inner_text().startswith("Stopped after")


def test_everything_works_by_keyboard(reader: Reader) -> None:
    keys = reader.tab.keyboard
    focused = "document.activeElement.tagName"
    assert reader.tab.evaluate(focused) == "TEXTAREA", "one can begin to write"
    keys.press("Control+A")
    keys.type("x = [")
    keys.press("Control+Enter")
    reader.ended()
    assert reader.tab.locator(".tok.prompt").inner_text() == "x = ["
    first = reader.text()
    reader.tab.locator("#seed").focus()
    keys.type("12")
    keys.press("Enter")
    reader.tab.locator(".answer[data-status=running]").or_(reader.tab.locator(".answer[data-status=done]")).wait_for()
    until(reader.tab, "first => document.querySelector('.answer').innerText !== first", first)
    reader.ended()
    for _ in range(40):
        keys.press("Tab")
        if reader.tab.evaluate("document.activeElement.matches('.tok[data-index]')"):
            break
    keys.press("ArrowRight")
    assert reader.tab.locator(".why .token-card").is_visible()
    reader.tab.evaluate("document.activeElement.blur()")
    begin = int(reader.tab.locator(".why .stepper-place").first.inner_text().split()[0])
    for key, place in (("ArrowRight", begin + 1), ("ArrowRight", begin + 2), ("ArrowLeft", begin + 1)):
        keys.press(key)
        assert reader.tab.locator(".why .stepper-place").first.inner_text().startswith(f"{place} of")
    reader.tab.locator(".round-strip").focus()
    keys.press("End")
    count = reader.tab.locator(".why .stepper-place").first.inner_text()
    assert count.split()[0] == count.split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_tab_leads_through_all_of_it(browser: Any, pair: Running, width: int) -> None:
    with reading(browser, pair, width=width) as reader:
        finished(reader.tab)
        walked_by_tab(reader.tab)


def test_pinned_runs_are_compared(reader: Reader) -> None:
    reader.set(temperature=0.7, tokens=48)
    reader.run()
    reader.tab.get_by_role("button", name="Pin", exact=True).click()
    seed = reader.tab.locator("#seed").input_value()
    assert seed, "the seed is held"
    reader.run()
    reader.tab.locator(".actions").get_by_role("button", name="Pin").click()
    cards = reader.tab.locator(".pin")
    assert "Nothing changed" in cards.nth(1).inner_text()
    assert "bit for bit" in cards.nth(1).inner_text()
    assert cards.nth(1).locator(".tok.differs").count() == 0
    reader.set(temperature=1.3)
    reader.run()
    reader.tab.locator(".actions").get_by_role("button", name="Pin").click()
    third = cards.nth(2).inner_text()
    assert "temperature 0.70 → 1.30" in third
    assert "seed" not in third.partition("\n")[0]
    marked = cards.nth(2).locator(".tok.differs").count()
    assert f"{marked} tokens marked" in third
    assert marked > 0
    reader.tab.get_by_role("button", name="Unpin all").click()
    assert not reader.tab.locator(".compare").is_visible()


def test_history_stays_in_the_browser_until_it_is_cleared(reader: Reader) -> None:
    reader.set(prompt="import os", seed=1, tokens=24)
    reader.run()
    before = reader.tokens()
    reader.tab.reload()
    reader.ready()
    entry = reader.tab.locator(".history .entry")
    entry.first.wait_for()
    assert entry.count() == 1
    entry.locator(".entry-text").click()
    assert reader.tokens() == before
    reader.set(prompt="other", seed=2)
    entry.get_by_role("button", name="Use its prompt and settings").click()
    assert reader.tab.locator("#seed").input_value() == "1"
    assert reader.tab.locator(".text-part textarea").input_value() == "import os"
    reader.tab.get_by_role("button", name="Clear the history").click()
    assert not reader.tab.locator(".history").is_visible()
    assert reader.tab.evaluate("localStorage.getItem('headstart-history')") == "[]"


def test_the_saved_trace_is_a_trace(reader: Reader, tmp_path: Path) -> None:
    reader.set(seed=9, tokens=32)
    reader.run()
    with reader.tab.expect_download() as download:
        reader.tab.get_by_role("button", name="Save the trace").click()
    path = tmp_path / "run.jsonl"
    download.value.save_as(path)
    trace = parse_trace(path.read_text(encoding="utf-8").splitlines())
    assert trace.warnings == ()
    (request,) = trace.requests
    assert request.line.seed == "9"
    assert request.line.prompt.endswith(PROMPT), "the tokenizer begins it with a token of its own"
    assert request.end is not None
    assert request.end.text == reader.text()
    assert trace.header.engine["target"] == "bundled target"
    reader.tab.get_by_role("link", name="Traces").click()
    reader.tab.get_by_label("Open a trace").set_input_files(path)
    reader.tab.locator(".token-text").wait_for(timeout=PATIENCE)
    assert request.text(request.emitted[0]).strip() in reader.tab.locator(".token-text").inner_text()


def test_it_speaks_at_the_end_only_and_looks_at_the_server_seldom(reader: Reader) -> None:
    looks: list[str] = []
    reader.tab.on("request", lambda request: looks.append(request.url) if request.url.endswith("/slots") else None)
    reader.tab.evaluate(
        """() => { window.said = []; new MutationObserver((all) => { for (const each of all)
          for (const node of each.addedNodes) if (each.target.matches?.('[role=status]')) said.push(node.data);
        }).observe(document.body, { childList: true, subtree: true }); }"""
    )
    reader.set(tokens=200)
    reader.run()
    reader.tab.wait_for_timeout(1500)
    said = reader.tab.evaluate("said")
    assert len(said) == 1
    assert re.match(r"Done: \d+ tokens in .*, \d+\.\d\d tokens a forward\.", said[0])
    before = len(looks)
    reader.tab.wait_for_timeout(1000)
    assert 1 <= len(looks) - before <= 5
    assert reader.tab.locator(".slot").count() == 2
    assert "keeps" in reader.tab.locator(".slots").inner_text() or "empty" in reader.tab.locator(".slots").inner_text()


def test_drafter_controls_reach_the_request(reader: Reader) -> None:
    reader.set(draft=1, tokens=24)
    with reader.tab.expect_request("**/v1/completions") as sent:
        reader.run()
    body = sent.value.post_data_json
    assert body["speculation"] == {"enabled": True, "trace": True, "metrics": "detailed", "max_draft_tokens": 1}
    assert {"temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"} <= body.keys()
    reader.tab.get_by_label("Guess ahead with the drafter").uncheck()
    with reader.tab.expect_request("**/v1/completions") as sent:
        reader.run()
    assert sent.value.post_data_json["speculation"]["enabled"] is False
    assert {origin for _, origin in reader.tokens()} == {"plain"}
    assert reader.tab.get_by_role("button", name="Against plain").count() == 0


def test_pieces_of_streams_and_of_characters(reader: Reader) -> None:
    """However the network cuts events, and however tokens cut characters."""
    found = reader.tab.evaluate(
        """async () => {
          const { eventReader } = await import("hs/playground/sse");
          const { speller } = await import("hs/playground/spelling");
          const { commonWith } = await import("hs/playground/compare");
          const stream = ': ping\\n\\ndata: {"a":1}\\r\\n\\r\\ndata: x\\ndata: y\\n\\nevent: z\\ndata:last\\n\\n';
          const cuts = [1, 2, 3, 7, stream.length].map((size) => {
            const read = eventReader();
            const parts = [];
            for (let i = 0; i < stream.length; i += size) parts.push(...read(stream.slice(i, i + size)));
            return parts;
          });
          const texts = { 1: "Hé", 2: "<0xF0><0x9F>", 3: "<0x98><0x80>", 4: " b", 5: "<end>" };
          const spell = speller((token) => texts[token]);
          const spelt = [...spell.add([{ token: 1 }, { token: 2 }], "Hé"), ...spell.add([{ token: 3 }], "😀"),
            ...spell.add([{ token: 4 }, { token: 5 }], " b"), ...spell.end()];
          return { cuts, spelt: spelt.map((each) => [each.token, each.text]),
            common: commonWith([1, 2, 3, 4], [1, 9, 3, 4, 4]) };
        }"""
    )
    assert found["cuts"] == [['{"a":1}', "x\ny", "last"]] * 5
    assert [token for token, _ in found["spelt"]] == [1, 2, 3, 4, 5]
    assert "".join(text for _, text in found["spelt"]) == "Hé😀 b"
    assert found["spelt"][0] == [1, "Hé"]
    assert found["spelt"][3] == [4, " b"]
    assert found["common"] == [True, False, True, True]


def finished(tab: Any) -> None:
    """A run that has been compared, a token chosen, another run pinned."""
    reader = Reader(tab, []).ready()
    for group in tab.locator("details.group").all():
        group.evaluate("each => (each.open = true)")
    reader.set(seed=5, temperature=0.9, tokens=48)
    reader.run()
    tab.get_by_role("button", name="Pin", exact=True).click()
    tab.get_by_role("button", name="Against plain").click()
    tab.locator(".verdict").wait_for(timeout=PATIENCE)
    tab.locator(".answer .tok[data-index]").nth(8).click()
    tab.locator(".machine summary").click()


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda tab: Reader(tab, []).ready(), id="idle"),
        pytest.param(finished, id="finished", marks=pytest.mark.slow),
    ],
)
def test_it_is_sound_in_every_view(browser: Any, pair: Running, prepare: Any) -> None:
    views = [View(360, "dark"), View(1280, "light")] if prepare is finished else [View(1280, "dark")]
    checked(browser, f"{pair.url}/", prepare=prepare, allow_origin=pair.url, views=views)
