"""`headstart simulate`: answers on the terminal, as JSON and as a page; contradictions refused; no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from headstart import theory
from headstart.commands.simulate import simulate
from headstart.learn.simulate import scenarios
from headstart.learn.views import answers as views
from headstart.learn.what_if.options import DEFAULT_ALIKE, one_named
from headstart.learn.what_if.question import what_if
from headstart.theory.mixture import RHO

APP = typer.Typer(rich_markup_mode="markdown")
APP.command()(simulate)

MACHINE = "--bandwidth 3350 --flops 800 --parameters 70B --draft-parameters 1B"


def run(words: str = "") -> Result:
    return CliRunner().invoke(APP, words.split(), env={"COLUMNS": "80"})


def answers(words: str) -> dict[str, Any]:
    result = run(f"{words} --json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# -- on the terminal -------------------------------------------------------------------------------------------------


def test_the_answer_comes_first_and_in_words() -> None:
    result = run("--alpha 0.7 --c 0.1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Speculate. K = 4 gives 1.98x.")
    words = " ".join(result.stdout.split())
    assert "2.77 tokens per target forward, 1.98x plain decoding" in words
    assert "Pays above alpha 0.29" in words
    assert "1.98*" in result.stdout, "where one is on the maps"


def test_without_options_it_answers_for_its_defaults() -> None:
    assert run().stdout == run("--alpha 0.7 --c 0.1 --most 16").stdout


def test_do_not_speculate_is_said_with_the_reason() -> None:
    words = " ".join(run("--alpha 0.48 --c 0.5").stdout.split())
    assert "Do not speculate with this draft. Alpha 0.48 is not above 0.50" in words
    assert "Even a perfect draft would not pay at this K" in " ".join(run("--c 1.5").stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        "", "-a 0.3 -a 0.95 -k 12", "-T 0 -T 0.7 -T 1.5", f"{MACHINE} -b 1 -b 64 -b 1024",
        "--verify-cost 1:1,8:1.2,16:1.6", "--by-position 0.9,0.8,0.7 -k 3", "--scenarios", "--scenario expensive",
    ],
)  # fmt: skip
def test_everything_fits_eighty_columns_and_nothing_is_cut(words: str) -> None:
    result = run(words)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout


def test_several_acceptances_stand_side_by_side() -> None:
    lines = run("-a 0.5 -a 0.8 -k 5").stdout.splitlines()
    header = next(line for line in lines if "alpha 0.5 alpha 0.8" in line)
    row = lines[lines.index(header) + 1 + 3]
    assert row.split() == ["3", f"{theory.speedup(0.5, 3, 0.1):.2f}", f"{theory.speedup(0.8, 3, 0.1):.2f}"]


def test_the_map_holds_the_published_figures() -> None:
    lines = run("--alpha 0.85 --c 0.1").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("alpha \\ K"))
    row = next(line for line in lines[at:] if line.split()[0] == "0.85")
    published = "1.68 2.14 2.45 2.65 2.77 2.83 2.85 2.85 2.78 2.66"  # K = 1 to 8, 10, 12
    assert " ".join(row.replace("*", "").split()) == f"0.85 {published}"


def test_cells_are_orange_below_one_and_blue_above() -> None:
    shades = [views.cell(value).style for value in (0.4, 1.0, 3.0)]
    loss, even, gain = (style.bgcolor.triplet for style in shades)  # type: ignore[union-attr]
    assert loss.red > loss.blue + 50
    assert gain.blue > gain.red + 50
    assert max(even) - min(even) < 5


def test_a_terminal_without_block_characters() -> None:
    console = Console(file=open("/dev/null", "w", encoding="ascii"), width=80)  # noqa: SIM115
    console.begin_capture()
    views.view(console, what_if([[0.7]], theory.StepCosts.in_plain_steps()))
    shown = console.end_capture()
    console.file.close()
    assert shown.isascii()
    assert "#" in shown


# -- machines, temperatures, scenarios -------------------------------------------------------------------------------


def test_a_machine_says_where_it_stops_paying() -> None:
    result = run(f"{MACHINE} --alpha 0.7 -k 5 -b 1 -b 64 -b 256")
    words = " ".join(result.stdout.split())
    assert "6 rows cost no more than one up to batch 39; drafting 5 pays up to batch 114." in words
    found = answers(f"{MACHINE} --alpha 0.7 -k 5 -b 64 -b 256")
    assert found["batch"] == 64
    assert [row["batch"] for row in found["batches"][0]["rows"]] == [64, 256]
    assert found["batches"][0]["rows"][1]["speedup"] < 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{MACHINE} -k 300 -a 0.99", "301 rows cost more than one at any batch size"),
        (f"{MACHINE} -k 5 -a 0.01", "does not pay even alone"),
        (f"{MACHINE} -k 2 --kv-bytes-per-token 2e6 --context 100000", "at any batch size (reading the caches"),
        (f"{MACHINE} -k 2 --kv-bytes-per-token 2e6 --context 100000", "pays at every batch size up to 65536"),
    ],
)
def test_limits_in_words(words: str, says: str) -> None:
    assert says in " ".join(run(words).stdout.split())


def test_units_of_the_machine() -> None:
    spelt = answers("--bandwidth 100 --flops 10 --parameters 1B --draft-cost 0.2")
    assert spelt["batches"][0]["rows"][0]["plain"] == pytest.approx(50)  # 2 GB at 100 GB/s
    for same in ("1000M", "1e9", "1000000000", "1b"):
        assert answers(f"--bandwidth 100 --flops 10 --parameters {same} --draft-cost 0.2") == spelt
    narrow = answers("--bandwidth 100 --flops 10 --parameters 1B --draft-cost 0.2 --bytes-per-weight 1")
    assert narrow["batches"][0]["rows"][0]["plain"] == pytest.approx(100)


def test_temperature_says_that_it_is_a_toy() -> None:
    words = " ".join(run("--alpha 0.8 -T 0 -T 1.5").stdout.split())
    assert "a toy pair with alpha 0.80 at 1" in words
    least = answers("--alpha 0.2 -T 1")["temperatures"][0]["at_one"]
    assert f"{least:.2f} is as near as it gets" in " ".join(run("--alpha 0.2 -T 1").stdout.split())


def test_scenarios() -> None:
    result = run("--scenarios")
    assert "the draft is too expensive" in result.stdout
    assert "text that changes" in result.stdout
    one = run("--scenario expensive")
    assert "the draft is too expensive" in one.stdout
    assert "100,000 rounds, standard error" in one.stdout
    assert "too different" not in one.stdout
    found = answers("--scenario expensive")["scenarios"][0]
    assert found["predicted"] == pytest.approx(theory.speedup(found["alpha"], found["k"], found["c"]))
    assert abs(found["speedup"][0] - found["predicted"]) < 4 * found["speedup"][1]


def test_a_scenario_may_be_named_in_part() -> None:
    assert one_named("EXPENSIVE", scenarios(), "scenario") == "the draft is too expensive"
    assert one_named("a short context", scenarios(), "scenario") == "a short context"


# -- JSON and page ---------------------------------------------------------------------------------------------------


def test_json_says_what_theory_says() -> None:
    found = answers("-a 0.7 -a 0.85 -k 5 --c 0.05 --verify-cost 1:1,8:1.4")
    assert found["c"] == 0.05
    assert found["verify_cost"]["8"] == 1.4
    for one, alpha in zip(found["answers"], (0.7, 0.85), strict=True):
        assert one["speedup"] == pytest.approx(theory.speedup(alpha, 5, 0.05, {1: 1, 8: 1.4}))
        assert one["kind"] == "good"
    assert found["maps"]["here"] == [0.7, 5, 0.05]
    assert answers("--by-position 0.9,0.5")["answers"][0]["acceptance"] == [0.9, 0.5]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-a 0.7 -a 0.3", ["alpha 0.7: Speculate.", "you are here", "How long a draft?"]),
        ("-a 0.3 --draft-cost 0.5", ["Do not speculate"]),
        (f"{MACHINE} -b 1 -b 64 -T 0 -T 1", ["requests in a batch", "A toy shows the direction of the effect"]),
        ("--by-position 0.9,0.8", ["acceptance 0.9 0.8"]),
        ("--scenarios", ["the draft is too expensive", "text that changes"]),
    ],
)
def test_a_page(words: str, says: list[str], tmp_path: Path) -> None:
    file = tmp_path / "new" / "page.html"
    result = run(f"{words} --html {file}")
    assert result.exit_code == 0, result.stderr
    assert "wrote" in result.stderr
    text = file.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html")
    for part in says:
        assert part in text


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--alpha 1.4", "alpha=1.4"),
        ("--alpha -0.1", "alpha=-0.1"),
        ("--c -1", "--draft-cost=-1.0 is out of range"),
        ("-k 0", "--num-speculative-tokens=0 is out of range"),
        ("--most 0", "most=0"),
        ("-T -1", "temperatures=-1"),
        ("--verify-cost 1:1,x", "'x' is not ROWS:COST"),
        ("--verify-cost 1:1,8:slow", "'slow' is not a number"),
        ("--verify-cost 2:1", "no cost for 1 row"),
        ("--by-position 0.9,,0.8", "'' is not a number"),
        ("--by-position 0.9 --alpha 0.8", "exclude each other"),
        ("--by-position 0.9 -T 1", "ask about one alpha"),
        ("--batch 3", "--batch needs --bandwidth and --flops and --parameters"),
        ("--bytes-per-weight 1", "--bytes-per-weight needs"),
        ("--bandwidth 1 --flops 2", "needs --parameters"),
        ("--bandwidth 1 --flops 2 --parameters 1Q", "'1Q' is not a number"),
        ("--bandwidth 0 --flops 2 --parameters 1B", "bandwidth=0"),
        (f"{MACHINE} -b 0", "batch=0"),
        (f"{MACHINE} --c 0.1", "--c and --draft-parameters"),
        (f"{MACHINE} --verify-cost 1:1", "--verify-cost and a machine"),
        (f"{MACHINE} --context -5", "context=-5"),
        ("--scenario nothing", "no scenario 'nothing'"),
        ("--scenario draft", "part of several"),
        ("--scenarios -k 3", "--k has no part in a scenario"),
        ("--scenarios --bandwidth 3", "--bandwidth has no part"),
    ],
)
def test_bad_values_are_errors_with_a_hint(words: str, says: str) -> None:
    result = run(words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert "hint:" in result.stderr


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    result = run(f"--html {tmp_path}")
    assert result.exit_code == 2
    assert str(tmp_path) in result.stderr


def test_simulate_needs_no_torch() -> None:
    script = (
        "import sys, typer; from typer.testing import CliRunner; from headstart.commands.simulate import simulate;"
        "app = typer.Typer(); app.command()(simulate);"
        "results = [CliRunner().invoke(app, words.split()) for words in ('-T 0.5', '--scenario expensive', '--json')];"
        "assert [r.exit_code for r in results] == [0, 0, 0], results;"
        "sys.exit(str(sorted({'torch', 'transformers'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == "[]"


def test_the_examples_stand_on_lines_of_their_own() -> None:
    shown = [line.strip() for line in run("--help").stdout.splitlines()]
    assert "headstart simulate --alpha 0.7 --c 0.1" in shown
    assert "headstart simulate --scenarios" in shown


def test_asking_for_help_computes_nothing() -> None:
    script = (
        "import sys, headstart.commands.simulate; "
        "sys.exit(str(sorted({'torch', 'jinja2', 'headstart.theory', 'headstart.learn.simulate'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == "[]"


# -- mixtures of experts ---------------------------------------------------------------------------------------------

MIXTURE = "--experts 128 --experts-per-token 8 --expert-share 0.6"


def test_a_mixture_wants_shorter_drafts_than_a_dense_model() -> None:
    dense, mixture, strangers = (answers(f"--alpha 0.7 {more}") for more in ("", MIXTURE, f"{MIXTURE} --alike 0"))
    assert [found["answers"][0]["best"]["k"] for found in (dense, mixture, strangers)] == [4, 2, 1]
    assert mixture["verify_cost"]["4"] == pytest.approx(1.91, abs=0.01)
    assert strangers["verify_cost"]["4"] == pytest.approx(2.58, abs=0.01)


def test_the_usual_correlation_is_that_of_theory() -> None:
    assert DEFAULT_ALIKE == RHO


def test_a_mixture_on_a_machine() -> None:
    machine = "--bandwidth 50 --flops 100 --parameters 3B --alpha 0.7 -b 1 -b 8"
    alone, together = answers(f"{machine} {MIXTURE}")["batches"][0]["rows"]
    assert alone["verify"] > answers(machine)["batches"][0]["rows"][0]["verify"]
    assert alone["plain"] * 8 > together["plain"], "requests share fewer experts than a dense model's weights"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--experts 8", "--experts needs --experts-per-token too"),
        ("--alike 0.5", "--alike needs --experts and --experts-per-token too"),
        ("--experts 8 --experts-per-token 9", "9 of 8 experts cannot be chosen"),
        (f"{MIXTURE} --verify-cost 1:1,2:2", "--verify-cost and --experts exclude each other"),
        ("--experts 8 --experts-per-token 2 --expert-share 1.5", "--expert-share=1.5 is out of range"),
        ("--experts 8 --experts-per-token 2 --expert-share nan", "--expert-share=nan is out of range"),
        ("--experts 8 --experts-per-token 2 --alike -1", "alike=-1.0 is out of range"),
        ("--experts 8 --experts-per-token 2 --alike 1.5", "--alike 1.5: all rows would meet the same experts"),
    ],
)
def test_half_a_mixture_is_refused(words: str, complaint: str) -> None:
    result = run(words)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
