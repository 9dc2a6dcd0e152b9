"""`headstart simulate --ssd`: placements or own figures, verdicts with their reason, lanes, JSON, a page, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from headstart import theory
from headstart.commands.simulate import simulate
from headstart.learn.what_if.options import Question, SsdQuestion
from headstart.learn.what_if.ssd import ask_ssd

APP = typer.Typer(rich_markup_mode="markdown")
APP.command()(simulate)
QUICK = "--rounds 40"


def run(words: str) -> Result:
    return CliRunner().invoke(APP, words.split(), env={"COLUMNS": "80"})


def text(words: str) -> str:
    result = run(words)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    return result.stdout


def test_without_figures_it_compares_placements() -> None:
    words = " ".join(text(f"--ssd {QUICK}").split())
    assert "70B + 1B, 4 + 1 H100" in words
    assert "Measured: 1.58x." in words
    assert "Draft in turn: ahead loses" in words
    assert "because the verification is slowed down by sharing the machine" in words


def test_own_figures_are_answered_first_and_in_words() -> None:
    found = text(f"--ssd --alpha 0.8 -k 5 --draft-cost 0.1 --hits 0.6,0.75,0.85 --plain-ms 4 {QUICK}")
    assert found.startswith("Draft ahead: ")
    assert "It hides 2.00 ms of drafting a round" in " ".join(found.split())
    assert "Tokens/s of a request" in found
    lanes = [line for line in found.splitlines() if line.startswith(("target   ", "drafter  "))][-2:]
    assert set(lanes[0].split()[1]) == {"V", "."}
    assert {"g", "L", "D"} <= set(lanes[1].split()[1])
    assert "best" in found, "other fan-outs, where their hit rates are known"


def test_it_says_plainly_when_it_loses_and_why() -> None:
    """Two cores: the target keeps one. By hand: 0.5 of a draft hidden against 0.8 of a slower verification."""
    words = " ".join(text(f"--ssd -k 5 --draft-cost 0.1 --slow 0.8 --split {QUICK}").split())
    assert words.startswith("Draft in turn: ahead loses")
    assert "hides 0.50 plain steps of drafting a round" in words
    assert "(0.80 plain steps) because the verification is slowed down" in words


def test_misses_and_late_drafts_are_named_too() -> None:
    assert "because misses are drafted for" in " ".join(
        text(f"--ssd --draft-cost 0.1 --hits 0.1 --fan-out 1 {QUICK}").split()
    )
    late = text(f"--ssd -k 5 --late wait --draft-costs 1:0.2,18:0.6 {QUICK}")
    assert "because the target waits for drafts" in " ".join(late.split())


def test_json_has_all_numbers() -> None:
    result = run(f"--ssd --alpha 0.8 -k 4 --verify-cost 1:2,8:2.4 {QUICK} --json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    one = found["placements"][0]
    assert found["headstart_simulate_ssd"] == 1
    assert one["costs"]["verify"] == {"1": 1.0, "8": pytest.approx(1.2)}, "in plain steps"
    assert one["over_in_turn"] == pytest.approx(one["over_plain"] / one["in_turn_over_plain"])
    assert sum(one["ahead"]["target"].values()) == pytest.approx(one["ahead"]["round_time"] * 40)
    assert one["in_turn_over_plain"] == pytest.approx(theory.speedup(0.8, 4, 0.1, {1: 2, 8: 2.4}), rel=0.15)
    assert one["by_formula"] > 1


def test_one_placement_in_detail() -> None:
    found = text(f"--ssd --placement 32b {QUICK}")
    assert "Known: github.com/Weili-0234/ssd-wl" in found
    assert "Assumed: 85% foreseen." in found
    assert "Measured by others: 1.49x" in found


def test_a_page_shows_the_lanes(tmp_path: Path) -> None:
    for name, words in (("own", "--hits 0.5,0.7,0.8"), ("all", "")):
        file = tmp_path / f"{name}.html"
        assert run(f"--ssd {words} --rounds 10 --html {file}").exit_code == 0
        page = file.read_text(encoding="utf-8")
        assert "Would drafting ahead pay?" in page
        assert "drafter" in page
        assert ("How many outcomes to foresee?" in page) == (name == "own")


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("--slow 0.2", "--slow is a question about drafting ahead", "add --ssd"),
        ("--ssd -T 1", "--temperature has no part in --ssd", "it takes --alpha"),
        ("--ssd --scenarios", "--ssd has no part in a scenario", "own figures"),
        ("--ssd --fan-out 2.5 --hits 0.5", "are not whole numbers", "for example 3"),
        ("--ssd --placement H200", "is part of several placements", "which of"),
        ("--ssd --placement moon", "there is no placement 'moon'", "the placements are"),
        ("--ssd --placement 70B --alpha 0.5", "--alpha has no part in a placement", "has its own figures"),
        ("--ssd -a 0.5 -a 0.6", "--ssd takes one --alpha", "once for each"),
        ("--ssd --draft-cost 0.1 --draft-costs 1:0.1", "exclude each other", "by rows"),
        ("--ssd --draft-costs 2:0.1", "level: costs must begin", "from 1 row"),
        ("--ssd --hits 0.9,0.5", "does not rise", "among the first"),
        ("--ssd -a 0.8 --by-position 0.8,0.7", "exclude each other", "one of them"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_hint(words: str, says: str, hint: str) -> None:
    result = run(words)
    assert result.exit_code == 2, result.stdout
    assert says in " ".join(result.stderr.split())
    assert hint in " ".join(result.stderr.split())


def test_a_batch_draws_its_rows_apart() -> None:
    alone, many = (
        ask_ssd(Question(alpha=[0.8], batch=[size]), SsdQuestion(rounds=120)).prospects[0] for size in (1, 8)
    )
    assert many.ahead.hit_rate == pytest.approx(alone.ahead.hit_rate, abs=0.08), "of a row"
    assert many.costs["draft now"] > alone.costs["draft now"], "some row misses in most rounds"
    assert many.over_in_turn < alone.over_in_turn
