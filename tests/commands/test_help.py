"""The help of all commands: one screen each, every option in a group and in words, one meaning for each name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headstart.commands.cli import GROUPS, app
from headstart.commands.help import WIDEST, basic_of, default_of, flags_of

LINES = 40
"""Of a screen."""
BASIC = 16
"""Options that --help shows at most."""


def below(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands that do something, and how each is called."""
    if not getattr(command, "commands", None):
        yield names, command
    for name in getattr(command, "commands", {}):
        yield from below(command.commands[name], names if name == getattr(command, "default", "") else (*names, name))


COMMANDS = dict(below(typer.main.get_command(app)))
OPTIONS = [
    (names, option)
    for names, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option"
]
each_command = pytest.mark.parametrize("names", COMMANDS, ids=" ".join)


def said(*words: str) -> str:
    done = CliRunner().invoke(app, [*words], prog_name="headstart", env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_overview_is_one_screen_with_every_command() -> None:
    lines = said("--help").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDEST
    for commands in GROUPS.values():
        for name, words in commands.items():
            assert any(re.match(rf"  {name} +{re.escape(words)}$", line) for line in lines)


@each_command
def test_help_is_one_screen(names: tuple[str, ...]) -> None:
    lines = said(*names, "--help").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDEST
    assert f"headstart {' '.join(names)} --help-all" in lines[-1] or f"{' '.join(names)} --help-all" in lines[-2]


@each_command
def test_help_shows_the_basic_options_and_help_all_every_one(names: tuple[str, ...]) -> None:
    command = COMMANDS[names]
    options = [each for each in command.params if each.param_type_name == "option"]
    known = {flag.lstrip("-") for each in options for flag in each.opts}
    assert set(basic_of(command)) <= known
    assert len(basic_of(command) or options) <= BASIC + 4 * (not basic_of(command)), "the general ones are not shown"
    few, all_of_them = said(*names, "--help"), said(*names, "--help-all")
    for name in basic_of(command):
        assert f"--{name}" in few or f"--[no-]{name}" in few
    for each in options:
        assert flags_of(each).strip() in all_of_them
        assert f"{each.rich_help_panel}:" in all_of_them
    assert max(map(len, all_of_them.splitlines())) <= WIDEST + 60  # examples are lines to copy, and are not wrapped


def test_every_option_is_in_a_group_and_explained_in_words() -> None:
    for names, option in OPTIONS:
        where = f"{' '.join(names)} {option.opts}"
        assert option.rich_help_panel, where
        assert option.help, where
        assert option.help.rstrip().endswith("."), where
        assert PYTHON.findall(option.help) == [], where
        assert default_of(option) not in ("None", "True", "False"), where


PYTHON = re.compile(
    r"\b(?:None|True|False)\b|(?<![\w/.-])[a-z]+_[a-z_]+|\b[A-Z]\w+\.[a-z]\w+|(?<![\w-])[a-z_]+=['\"\w]"
)
"""A value, a field, a member or a keyword of Python. Names of environment variables are in capitals."""


def test_help_shows_the_default_and_the_unit_that_a_command_has() -> None:
    """--max-model-len is of many commands, and the server's default is not that of the others."""
    assert re.search(r"'auto' takes\s.*?\[default: auto\]", said("serve", "--help"), re.DOTALL)
    assert "at most 4096" not in said("serve", "--help")
    assert re.search(r"--max-model-len TOKENS .*\sDefault: the\s+model's limit, at most 4096", said("chat", "--help"))
    assert "--every SECONDS" in said("watch", "--help-all")


def test_a_short_option_means_one_thing() -> None:
    meanings: dict[str, set[str]] = {}
    for _, option in OPTIONS:
        long = next(flag for flag in option.opts if flag.startswith("--"))
        for flag in option.opts:
            if not flag.startswith("--"):
                meanings.setdefault(flag, set()).add(long)
    assert meanings == {
        "-m": {"--model"}, "-d": {"--drafter"}, "-t": {"--threads"}, "-k": {"--num-speculative-tokens"},
        "-n": {"--max-tokens"}, "-T": {"--temperature"}, "-p": {"--prompt"}, "-o": {"--output"}, "-s": {"--system"},
        "-r": {"--request"}, "-a": {"--alpha"}, "-b": {"--batch"},
    }  # fmt: skip


def test_a_long_option_takes_the_same_everywhere() -> None:
    kinds: dict[str, set[str]] = {}
    for _, option in OPTIONS:
        for flag in option.opts:
            if flag.startswith("--"):
                kinds.setdefault(flag, set()).add("switch" if option.is_flag else str(option.metavar or "choice"))
    several = {flag: found for flag, found in kinds.items() if len(found) > 1}
    assert several == SEVERAL


SEVERAL = {
    "--dtype": {"NAME", "choice"},  # of torch, or those that training knows
    "--output": {"FILE", "DIR"},  # what a command makes
}


@pytest.mark.parametrize("flag", ["--check", "--level", "--window", "--patience"])
def test_a_word_with_many_meanings_is_used_once(flag: str) -> None:
    helps = {option.help for _, option in OPTIONS if flag in option.opts}
    assert len(helps) <= 1


def test_help_waits_for_no_library_of_models() -> None:
    """One process shows the help of all commands: the first that imports such a library is named."""
    every = [[], *([name] for commands in GROUPS.values() for name in commands)]
    script = (
        "import sys; from typer.testing import CliRunner; from headstart.commands.cli import app\n"
        f"for names in {every}:\n"
        "    assert CliRunner().invoke(app, [*names, '--help']).exit_code == 0, names\n"
        "    if heavy := {'torch', 'transformers'} & set(sys.modules):\n"
        "        sys.exit(f'{names}: {sorted(heavy)}')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("headstart ser", ["serve"]),
        ("headstart serve --max-wai", ["--max-waiting-requests", "--max-waiting-prompt-tokens"]),
        ("headstart bench --k-s", ["--k-sweep"]),
        ("headstart bench com", ["compare"]),
        ("headstart train ea", ["eagle3"]),
        ("headstart generate --rule cou", ["coupled"]),
    ],
)
def test_shells_complete_commands_options_and_values(shell: str, line: str, found: list[str]) -> None:
    words = line.split()
    given = {
        "_HEADSTART_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    done = CliRunner().invoke(app, [], prog_name="headstart", env=given)
    for word in found:
        assert word in done.stdout
    assert "learn" not in done.stdout, "what does not begin so is left out"
