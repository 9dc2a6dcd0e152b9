"""The command line as a whole: help, versions, the entry points."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import headstart
from headstart.base import compiling
from headstart.base.errors import InvalidOption
from headstart.base.extras import how_to_install
from headstart.commands import cli, terminal
from headstart.commands.cli import app
from headstart.commands.loading import DRAFTER


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["demo"],
        ["generate"],
        ["simulate"],
        ["learn"],
        ["info"],
        ["doctor"],
        ["bench"],
        ["bench", "compare"],
        ["audit"],
        ["train"],
        ["train", "draft"],
    ],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize("command", ["demo", "generate", "simulate", "info", "doctor", "bench", "audit", "train"])
def test_the_overview_names_the_command(command: str) -> None:
    assert f" {command} " in CliRunner().invoke(app, ["--help"]).stdout


def test_help_names_every_drafter_that_readme_names() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| `drafter=` |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    quoted = re.findall(r'"([\w-]+)[":]', "".join(rows))
    heads = next(row for row in rows if "EAGLE" in row)
    families = [*re.findall(r"Medusa|EAGLE|P-EAGLE|DFlash|DSpark", heads), "PARD"]
    assert {"auto", "self-int4", "prediction"} <= set(quoted)
    assert {"Medusa", "DFlash"} <= set(families)
    said = DRAFTER.metadata["option"].help
    assert [name for name in quoted if f"'{name}" not in said] + [name for name in families if name not in said] == []


def test_version_names_what_a_bug_report_needs() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"headstart {headstart.__version__} (torch ")
    assert "transformers" in result.stdout


def test_help_needs_no_torch() -> None:
    """Importing torch takes seconds; `--help` and a mistyped option must not."""
    script = (
        "import sys; from typer.testing import CliRunner; from headstart.commands.cli import app;"
        "assert CliRunner().invoke(app, ['generate', '--help']).exit_code == 0;"
        "sys.exit(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) in ((0, ""), (1, "[]"))


def test_the_help_of_all_imports_no_command() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from headstart.commands.cli import COMMANDS, app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "heavy = {'torch', 'numpy', 'transformers', 'pydantic', *(f'headstart.commands.{name}' for name in COMMANDS)};"
        "sys.exit(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) in ((0, ""), (1, "[]"))


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("httpx2", ["launch", "out", "--engines", "2"]),
        ("httpx2", ["watch", "http://127.0.0.1:9", "--once"]),
        ("yaml", ["export", "bundled", "eagle3", "-o", "out"]),
    ],
)
def test_a_command_whose_packages_are_missing_says_how_to_install_them(module: str, arguments: list[str]) -> None:
    script = f"import sys; sys.modules[{module!r}] = None; from headstart.commands.cli import app; app({arguments})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert module in done.stderr
    assert how_to_install("fleet") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_shows_the_other_commands_where_a_package_is_missing() -> None:
    said = []
    for words in (["--help"], ["launch", "--help"]):
        script = f"import sys; sys.modules['httpx2'] = None; from headstart.commands.cli import app; app({words})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert re.search(r"generate +Continue a prompt", said[0])
    assert "Not installed: this needs httpx2" in said[1]


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("headstart ")


@pytest.mark.parametrize("command", ["demo", "generate"])
def test_an_unknown_option_is_refused(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--temprature", "1"])
    assert result.exit_code == 2
    assert "--temprature" in result.stderr
    assert "--temperature" in result.stderr, "the nearest option is named"


def test_a_value_that_is_no_choice_is_refused() -> None:
    result = CliRunner().invoke(app, ["generate", "x", "--rule", "lossy"])
    assert result.exit_code == 2
    assert "exact" in result.stderr
    assert "coupled" in result.stderr


@pytest.mark.parametrize(("system", "written"), [("win32", "→"), ("linux", "\\u2192")])
def test_text_is_utf_8_on_windows_and_what_a_terminal_cannot_show_fails_nowhere(
    monkeypatch: pytest.MonkeyPatch, system: str, written: str
) -> None:
    """Elsewhere the user's own encoding holds."""
    out = io.TextIOWrapper(io.BytesIO(), "cp1252", newline="")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("→".encode()), "cp1252"))
    monkeypatch.setattr(sys, "stdout", out)
    read: list[str] = []
    monkeypatch.setattr(cli, "app", lambda: (print("→", end="", flush=True), read.append(sys.stdin.read())))
    cli.main()
    assert out.buffer.getvalue().decode() == written  # type: ignore[attr-defined]
    assert (read == ["→"]) is (system == "win32")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_command_shows_that_something_is_compiled(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For which a terminal has a bar; what is logged elsewhere is not for it."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=80)
    monkeypatch.setattr(terminal, "messages", lambda: console)
    before = compiling.SHOWN.get()
    with terminal.reported(False), compiling.SHOWN.get()("compiling kernels"):
        pass
    assert ("compiling kernels" in written.getvalue()) is is_terminal
    assert compiling.SHOWN.get() is before


def test_errors_name_options_as_the_command_line_does(capsys: pytest.CaptureFixture[str]) -> None:
    flags = {"max_length": "--max-model-len", "layers": "--layers"}
    with pytest.raises(typer.Exit), terminal.reported(False, flags):
        raise InvalidOption(
            "max_length=9 is too short for 8 layers in /tmp/max_length", hint="try max_length or layers=4."
        )
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: --max-model-len=9 is too short for 8 layers in /tmp/max_length"
    assert second == "hint: try --max-model-len or --layers=4."
