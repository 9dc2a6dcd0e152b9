"""Options from `headstart.toml`: which value wins, what is refused, and what --show-config prints."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headstart.commands.cli import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def shown(*words: str) -> dict[str, Any]:
    """The values of a command, and of a command of a group, as --show-config prints them."""
    result = run(*words, "--show-config")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = tomllib.loads(result.stdout)
    while len(found) == 1 and isinstance(next(iter(found.values())), dict):
        found = next(iter(found.values()))
    return found


def test_the_command_line_wins_over_the_command_over_the_common_section(here: Path) -> None:
    text = '[common]\nmodel = "a"\nthreads = 3\nseed = 9\n[serve]\nmodel = "b"\nport = 8080\ndrafter = ["ngram", "d"]\n'
    (here / "headstart.toml").write_text(text)
    found = shown("serve", "--port", "9000")
    assert (found["model"], found["threads"], found["port"], found["drafter"]) == ("b", 3, 9000, ["ngram", "d"])
    assert "seed" not in found, "the server has none"
    found = shown("generate")
    assert (found["model"], found["seed"], found["drafter"]) == ("a", 9, ["auto"])
    assert "# headstart.toml" in run("generate", "--show-config").stdout


def test_any_name_of_an_option_is_a_key_and_switches_are_true_or_false(here: Path) -> None:
    (here / "mine.toml").write_text(
        '[serve]\ntarget = "x"\nmax-length = 512\nprefix-cache = false\ncors-origin = "*"\n'
    )
    found = shown("serve", "--config", "mine.toml")
    assert (found["model"], found["max-model-len"], found["prefix-cache"]) == ("x", "512", False)
    assert found["cors-origin"] == ["*"]


def test_a_group_shares_a_section_and_each_of_its_commands_has_one(here: Path) -> None:
    text = '[train]\nsteps = 7\noutput = "o"\nttt-steps = 3\n[train.medusa]\nheads = 2\n[bench]\nlimit = 4\n'
    (here / "headstart.toml").write_text(text)
    found = shown("train", "medusa", "m", "data")
    assert (found["steps"], found["heads"]) == (7, 2)
    assert shown("train", "eagle3", "m", "data")["ttt-steps"] == 3
    assert shown("bench")["limit"] == 4


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[serve]\nprot = 1\n", "[serve] has no option 'prot'", "did you mean 'port'?"),
        ("[common]\nthread = 1\n", "[common] has no option 'thread'", "did you mean 'threads'?"),
        ("[servr]\nport = 1\n", "headstart.toml has no option 'servr'", "did you mean 'serve'?"),
        ("port = 1\n", "'port' is outside of the sections", "[serve]"),
        ("[serve]\nverbose = 1\n", "verbose is 1", "true or false"),
        ("[serve]\nport = {a = 1}\n", "port is", "a number"),
        ("[serve]\nport = \n", "is no TOML", "port = 8080"),
        ("[common]\ntrust-remote-code = true\n", "was only found in this folder", "--config headstart.toml"),
        ('[serve]\nledger = "../mine.json"\n', "was only found in this folder", "--config headstart.toml"),
    ],
)
def test_what_is_wrong_is_said(here: Path, text: str, message: str, hint: str) -> None:
    (here / "headstart.toml").write_text(text)
    result = run("serve", "--show-config")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert message in said
    assert hint in said


def test_a_value_of_a_wrong_kind_is_refused_as_on_the_command_line(here: Path) -> None:
    (here / "headstart.toml").write_text('[serve]\nport = "often"\n')
    result = run("serve", "--show-config")
    assert result.exit_code == 2
    assert "--port" in result.stderr


def test_a_named_file_may_have_code_run_and_must_be_there(here: Path) -> None:
    (here / "mine.toml").write_text("[common]\ntrust-remote-code = true\n")
    assert shown("serve", "--config", "mine.toml")["trust-remote-code"] is True
    assert run("serve", "--config", "none.toml").exit_code == 2


def test_what_is_shown_is_a_file_and_holds_no_key(here: Path) -> None:
    result = run("serve", "--api-key", "secret", "--port", "81", "--show-config")
    assert "secret" not in result.stdout
    (here / "again.toml").write_text(result.stdout)
    assert shown("serve", "--config", "again.toml") == shown("serve", "--port", "81")


def test_the_first_word_is_the_model_unless_the_command_line_names_one(here: Path) -> None:
    (here / "headstart.toml").write_text('[common]\nmodel = "a"\n')
    result = run("chat", "/no/such/model", "hello")
    assert "/no/such/model" in result.stderr
    result = run("chat", "--model", "/no/such/one", "hello")
    assert "/no/such/one" in result.stderr
    result = run("serve", "m", "n")
    assert "'n' is one word too many" in result.stderr
    (here / "headstart.toml").unlink()
    result = run("generate", "some/model")
    assert "looks like a model" in result.stderr


def test_a_command_without_a_file_has_its_defaults() -> None:
    assert shown("serve")["port"] == 8000
