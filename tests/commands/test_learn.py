"""`headstart learn`: the page written and opened, the starter, the check and its exit codes, the solutions."""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from headstart.commands.learn import learn
from headstart.learn.exercises import EXERCISES, starter

APP = typer.Typer(rich_markup_mode="markdown")
APP.command()(learn)
HEAD = "from collections.abc import Callable, Sequence\nfrom typing import Any\nimport numpy as np\n\n"


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Pages that were opened, in a browser that is there; nothing is kept from other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: addresses.append(url) or True)
    return addresses


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(APP, [str(word) for word in words], env={"COLUMNS": "80"})


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_written_to_the_cache_opened_and_named(shown: list[str], tmp_path: Path) -> None:
    result = run()
    assert result.exit_code == 0, result.stderr
    file = Path(result.stdout.strip())
    assert shown == [file.as_uri()]
    assert tmp_path / "cache" in file.parents
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run().stdout == result.stdout, "browsers keep progress by address, so it stays the same"


def test_no_open_only_names_it(shown: list[str]) -> None:
    assert Path(run("--no-open").stdout.strip()).is_file()
    assert shown == []


def test_without_a_browser_the_path_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    result = run()
    assert result.exit_code == 0
    assert "No browser" in result.stderr
    assert Path(result.stdout.strip()).is_file()


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, shown: list[str]) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    file = Path(run().stdout.strip())
    assert file.is_file()
    assert shown == [file.as_uri()]


def test_html_writes_it_where_it_is_wanted_and_opens_nothing(tmp_path: Path, shown: list[str]) -> None:
    file = tmp_path / "new" / "lessons.html"
    result = run("--html", file)
    assert result.exit_code == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert shown == []


# -- the exercises ----------------------------------------------------------------------------------------------------


def test_start_writes_the_exercises_and_never_over_anything(tmp_path: Path) -> None:
    file = tmp_path / "answers.py"
    assert f"headstart learn --check {file}" in run("--start", file).stderr
    assert file.read_text(encoding="utf-8") == starter()
    again = run("--start", file)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert run("--start", tmp_path / "answers.txt").exit_code == 2


def test_check_says_what_became_of_each_and_tells_scripts(tmp_path: Path) -> None:
    file = tmp_path / "answers.py"
    file.write_text(HEAD + EXERCISES[0].source + "def corrected_distribution(p, q):\n    return p\n")
    result = run("--check", file)
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert "1 Expected tokens a round passed" in words
    assert "2 The corrected distribution not yet" in words
    assert "hint: Take what the target gives" in words
    assert "hint: Then divide" not in words
    assert "3 A draft length that adapts missing" in words
    assert "1 of 4 passed." in words
    assert "hint: Then divide" in " ".join(run("--check", file).stdout.split()), "the second failure brings more"
    assert "headstart learn --solution 2" in run("--check", file).stdout


def test_all_right_is_exit_code_0_with_the_proof_and_the_race(tmp_path: Path) -> None:
    file = tmp_path / "answers.py"
    file.write_text(HEAD + "\n".join(each.source for each in EXERCISES))
    result = run("--check", file)
    assert result.exit_code == 0, result.stdout
    assert "PROVED" in result.stdout
    assert "target calls" in result.stdout
    assert "4 of 4 passed." in result.stdout


def test_a_harmful_file_is_reported_with_its_line_and_no_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "answers.py"
    file.write_text("print('x')\nraise ValueError('\\x1b[31mred')\n")
    result = run("--check", file)
    assert result.exit_code == 1
    assert "answers.py cannot be loaded" in " ".join(result.stdout.split())
    assert "line 2: raise ValueError" in result.stdout
    assert "\x1b" not in result.stdout


def test_solutions_are_shown_with_the_reason_and_are_python() -> None:
    for exercise in EXERCISES:
        result = run("--solution", str(exercise.number))
        assert result.exit_code == 0
        compile(result.stdout, "solution", "exec")
        assert exercise.name in result.stdout
        assert exercise.why in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--solution", "9"], "there is no exercise 9"),
        (["--check", "none.py"], "there is no file"),
        (["--check", "a.py", "--start", "b.py"], "do not go together"),
        (["--no-open", "--solution", "1"], "do not go together"),
        (["--html", "a.html", "--solution", "1"], "do not go together"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(words: list[str], told: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "hint: " in result.stderr


def test_lessons_need_neither_torch_nor_the_server() -> None:
    script = (
        "import sys; import headstart.learn.pages.lessons, headstart.learn.check, headstart.learn.examine;"
        "headstart.learn.pages.lessons.lessons_page();"
        "sys.exit(', '.join({'torch', 'transformers', 'headstart.serve'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == ""
