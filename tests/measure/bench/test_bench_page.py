"""The page of a bench: every section for every kind of result, and a look in the browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import bench_runs as made
from support.charts import drawn
from support.pages import EITHER, VIEWS, checked

from headstart.measure.bench.result import BenchResult
from headstart.measure.bench.summary import summarise
from headstart.measure.pages.bench_page import bench_page


def full() -> BenchResult:
    whole = made.noisy(0, categories={"code": 5, "prose and <other> text": 4, "tests": 5})
    arms = tuple(replace(each, arm="K=3" if each.arm == "speculative" else "plain") for each in whole.trials)
    return replace(whole, sweep=arms, provenance={**whole.provenance, "cpu": "a <processor>"})


def html(result: BenchResult) -> str:
    return bench_page(result, summarise(result)).html()


def test_all_sections_are_there() -> None:
    text = html(full())
    for heading in (
        "Speedup", "Acceptance by position", "Speedup by draft length", "Where this stands", "Waiting",
        "Prompt by prompt", "Where the time goes", "Costs", "Where this comes from",
    ):  # fmt: skip
        assert f">{heading}</h2>" in text, heading
    assert "you are here" in text
    assert "tokens per target forward" in text
    assert "<other>" not in text
    assert "<processor>" not in text


def test_sections_without_data_are_left_out() -> None:
    plain = made.result([[1.0], [1.0]], [[1.0], [1.0]], costs=None)
    runs = tuple(
        replace(each, runs=(made.run(each.unit, each.seconds, on=False, reason="asked for"),)) for each in plain.trials
    )
    text = html(replace(plain, trials=runs))
    for heading in ("Acceptance by position", "Speedup by draft length", "Where this stands"):
        assert f">{heading}</h2>" not in text
    assert "off in 2 of 2 runs: asked for" in text


def test_one_prompt_has_a_page_too() -> None:
    assert "too few" in html(made.result([[1.0]], [[0.5]]))


@pytest.mark.parametrize("compared", [True, False])
def test_energy_and_sameness(compared: bool) -> None:
    whole = full()
    trials = tuple(replace(each, joules=2.0) for each in whole.trials)
    text = html(replace(whole, trials=trials, no_energy="", compared=compared))
    assert "J per token" in text
    assert ("token for token" in text) is compared


@pytest.mark.parametrize(
    "views", [pytest.param(EITHER, id="either"), pytest.param(VIEWS, id="all", marks=pytest.mark.slow)]
)
def test_the_page_in_a_browser(browser: Any, tmp_path: Path, views: Any) -> None:
    result = full()
    path = bench_page(result, summarise(result)).write(tmp_path / "bench.html")
    checked(browser, path, prepare=drawn(8), views=views)
