"""`headstart demo`: on a fake engine what it says, and on real tiny models that what it says is so."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.fake_engine import FakeEngine
from typer.testing import CliRunner, Result

import headstart
from headstart.base.errors import NonFiniteLogits
from headstart.commands import demo as command
from headstart.commands import replay as player
from headstart.commands.cli import app
from headstart.commands.loading import BUNDLED_PENALTY
from headstart.commands.replay import Comparison, Pair, Run, coloured, measure, pace, replay
from headstart.types import Sampling


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine("\n    pass")
    monkeypatch.setattr(headstart, "load", fake.load, raising=False)
    return fake


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["demo", *args])


def recorded(engine: FakeEngine, *, name: str = "headstart") -> Run:
    return measure(name, engine, "def f():", Sampling(max_tokens=8))  # type: ignore[arg-type]


def row(text: str, name: str) -> list[str]:
    """The cells of a row of the table."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return re.split(r"\s{2,}", line.strip())[1:]


# -- without a terminal ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("engine")
def test_without_a_terminal_it_is_plain_text() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\r" not in result.output
    for number, prompt in enumerate(command.PROMPTS, start=1):
        assert f"prompt {number} of {len(command.PROMPTS)}" in result.stdout
        assert prompt + "\n    pass\n" in result.stdout
    assert row(result.stdout, "tokens per target forward") == ["1.00", "1.80"], "9 tokens: 9 forwards, or 5"
    assert row(result.stdout, "speedup")[0] == "1.00x"
    assert row(result.stdout, "same text") == ["5 of 5"]
    assert result.stdout.splitlines()[-3].startswith("next ")


def test_options_arrive(engine: FakeEngine) -> None:
    args = (
        "--prompt a --prompt b --target T --drafter D --k 3 --rule coupled --device cpu --dtype float32 "
        "--max-tokens 4 --temperature 0.5 --seed 9 --no-live"
    )
    assert run(*args.split()).exit_code == 0
    wanted = {"target": "T", "drafter": "D", "rule": "coupled", "device": "cpu", "dtype": "float32"}
    assert wanted.items() <= engine.loaded_with.items()
    assert engine.loaded_with["num_speculative_tokens"] == 3
    assert {bytes(r.prompt) for r in engine.requests} == {b"a", b"b"}
    assert engine.requests[-1].sampling == Sampling(max_tokens=4, temperature=0.5, seed=9)


@pytest.mark.parametrize(
    ("args", "penalty"),
    [([], BUNDLED_PENALTY), (["--target", "T"], 1.0), (["--repetition-penalty", "1.5"], 1.5)],
)
def test_the_bundled_target_has_defaults_of_its_own(engine: FakeEngine, args: list[str], penalty: float) -> None:
    result = run("--prompt", "a", *args)
    assert engine.requests[-1].sampling.repetition_penalty == penalty
    assert engine.loaded_with["dtype"] == "auto"
    assert (f"repetition penalty {penalty:g}" in result.stdout) is (penalty != 1.0), "it is said"


def test_without_row_kernels_the_bundled_target_runs_in_float32(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There bf16 texts part at near-ties now and then."""
    monkeypatch.setattr(command, "_has_row_kernels", lambda: False)
    run("--prompt", "a")
    assert engine.loaded_with["dtype"] == "float32"
    run("--prompt", "a", "--target", "T")
    assert engine.loaded_with["dtype"] == "auto"


def test_short_runs_are_made_twice_and_long_ones_once(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Each prompt was run twice" in run("--prompt", "a").stdout
    assert len(engine.requests) == 1 + 2, "a warm-up and two runs"
    engine.requests.clear()
    monkeypatch.setattr(command, "_SHORT_SECONDS", 0.0)
    assert "run twice" not in run("--prompt", "a").stdout
    assert len(engine.requests) == 1 + 1


@pytest.mark.usefixtures("engine")
def test_an_interrupt_leaves_the_figures_of_the_prompts_that_were_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([lambda pair: command.Text("done")])

    def interrupted(pair: Pair) -> Any:
        try:
            return next(lines)(pair)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(command, "_in_a_line", interrupted)
    result = run()
    assert result.exit_code == 130
    assert "stopped: the figures are of 2 of 5 prompts" in result.stdout
    assert row(result.stdout, "same text") == ["2 of 2"]
    assert "next " in result.stdout


def test_an_interrupt_before_the_first_figures_ends_it(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_measure_both", interrupted)
    result = run()
    assert result.exit_code == 130
    assert "same text" not in result.stdout
    assert "stopped before a prompt was measured both ways" in result.stdout


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("where", ["table", "remarks"])
def test_an_interrupt_behind_the_last_prompt_does_not_take_the_figures(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    whole = getattr(command.Comparison, where)
    calls: list[int] = []

    def interrupted_once(comparison: object) -> object:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return whole(comparison)

    monkeypatch.setattr(command.Comparison, where, interrupted_once)
    result = run()
    assert result.exit_code == 130
    assert "stopped: the figures are of 5 of 5 prompts" in result.stdout
    assert row(result.stdout, "same text") == ["5 of 5"]
    assert "next " in result.stdout


@pytest.mark.usefixtures("engine")
def test_it_says_at_once_what_will_be_seen() -> None:
    assert run("--prompt", "a").stdout.startswith("Each prompt is written twice")


@pytest.mark.usefixtures("engine")
def test_the_built_in_prompts_have_a_budget_and_ones_own_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_BUDGET_SECONDS", 0.0)
    assert row(run().stdout, "same text") == ["1 of 1"]
    assert "no more prompts were begun" in run().stdout
    assert row(run("--prompt", "a", "--prompt", "b").stdout, "same text") == ["2 of 2"]


@pytest.mark.usefixtures("engine")
def test_an_empty_prompt_is_refused() -> None:
    result = run("--prompt", "")
    assert result.exit_code == 2
    assert "error: a --prompt is empty\nhint: " in result.stderr


def test_a_request_that_ends_with_an_error_ends_the_demo(engine: FakeEngine) -> None:
    engine.spoil[1] = NonFiniteLogits("the target gave NaN", hint="use float32")  # the run after the warm-up
    result = run("--prompt", "a")
    assert result.exit_code == 2
    assert "error: the target gave NaN\nhint: use float32" in result.stderr


# -- honest about texts that differ ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "args", "words"),
    [
        ("bfloat16", [], "In bfloat16 a forward pass of another width rounds differently"),
        ("float32", [], "In float32 they should not: please report this"),
        ("float32", ["--temperature", "1", "--rule", "exact"], "With --rule auto or coupled a seed gives one text"),
        ("float32", ["--temperature", "1"], "In float32 they should not"),
        ("float32", ["--temperature", "1", "--rule", "coupled"], "In float32 they should not"),
        ("bfloat16, any width", [], "With this target's forward they should not: please report this"),
    ],
)
def test_texts_that_differ_are_counted_and_explained(
    engine: FakeEngine, dtype: str, args: list[str], words: str
) -> None:
    engine.dtype, engine.width_invariant = dtype.partition(",")[0], "any width" in dtype
    engine.plain_reply = "\n    fail"
    result = run("--prompt", "a", "--prompt", "b", *args)
    text = " ".join(result.stdout.split())
    assert row(result.stdout, "same text") == ["0 of 2"]
    assert "texts differ from token 6 on" in text, "'\\n    p' against '\\n    f'"
    assert words in text


def test_a_text_that_only_goes_on_differs_at_its_end() -> None:
    short, longer = recorded(FakeEngine("ab")), recorded(FakeEngine("abc"))
    assert Pair(short, longer).differs_at == 2
    assert Pair(short, short).differs_at is None


def test_speculation_that_did_not_run_is_named() -> None:
    off = recorded(FakeEngine(speculating=False))
    remarks = Comparison([Pair(off, off)], greedy=True, coupled=False, dtype="float32").remarks()
    assert [str(remark) for remark in remarks] == ["Speculation was off, drafter none: as asked."]


@pytest.mark.parametrize(("seconds", "slower"), [(0.5, False), (2.0, True)])
def test_a_slowdown_is_named(seconds: float, slower: bool) -> None:
    taken = recorded(FakeEngine())
    plain, fast = (replace(taken, prompt="", seconds=s) for s in (1.0, seconds))
    remarks = Comparison([Pair(plain, fast)], greedy=True, coupled=False, dtype="float32").remarks()
    assert any("Speculation was slower" in str(remark) for remark in remarks) is slower


# -- the recording and its replay ------------------------------------------------------------------------------------


def test_every_second_token_was_guessed() -> None:
    pieces = recorded(FakeEngine("abcd")).pieces
    assert [(piece.text, piece.guessed) for piece in pieces] == [("a", True), ("b", False), ("c", True), ("d", False)]
    times = [piece.at for piece in pieces]
    assert times == sorted(times)
    assert times[0] == times[1] < times[2] == times[3], "tokens of one step come together"


def test_guessed_tokens_are_coloured() -> None:
    taken = recorded(FakeEngine("abcd"))
    text = coloured(taken, taken.seconds)
    assert text.plain == "def f():abcd"
    assert [text.plain[s.start : s.end] for s in text.spans if s.style == player.GUESSED] == ["a", "c"]
    assert coloured(taken, -1.0).plain == "def f():"


@pytest.mark.parametrize(("seconds", "slower"), [(0.5, 5.0), (3.0, 1.0), (8.0, 1.0), (60.0, 1 / 8)])
def test_a_replay_lasts_some_seconds_by_a_whole_factor(seconds: float, slower: float) -> None:
    taken = recorded(FakeEngine())
    assert pace(replace(taken, prompt="", seconds=seconds)) == slower


def test_a_run_in_which_something_cut_in_does_not_stand_still() -> None:
    first, usual, spoilt = (
        replace(recorded(FakeEngine()), prompt="", seconds=seconds) for seconds in (0.11, 0.15, 0.75)
    )
    assert pace(first, usual) == pace(first) == 23
    assert pace(first, spoilt) == 3


@pytest.mark.parametrize("size", [(100, 30), (50, 24), (100, 4)])
def test_the_replay_fits_its_terminal(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "_LAST_FRAME_SECONDS", 0.0)
    width, height = size
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, height=height, color_system="truecolor")
    slow, fast = (recorded(FakeEngine("x = 1\n" * 40), name=name) for name in ("plain", "headstart"))
    replay((slow, fast), 1, "prompt 1 of 1", console)
    last = screen.getvalue().rsplit("\x1b[2K", 1)[-1]
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "plain ·" in last
    assert "headstart ·" in last
    assert "at true speed" in last or width < 60
    replay((slow, fast), 4.0, "prompt 1 of 1", console)
    replay((slow, fast), 0.25, "prompt 1 of 1", console)
    assert "4x slower" in screen.getvalue() or width < 60
    assert "4x faster" in screen.getvalue() or width < 60
