"""What is said about installing: headstart is on no package index, so every command must work from a clone."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from headstart.base import extras

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
COMMAND = re.compile(r"pip install\s([^\n`(#]*)")


def from_an_index(text: str) -> list[str]:
    """The commands in a text that ask an index for headstart."""
    name = re.compile(r"""["']?headstart(\[.*)?["']?""")
    return [found[0] for found in COMMAND.finditer(text) if any(name.fullmatch(word) for word in found[1].split())]


def texts() -> list[Path]:
    source = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".md", ".js", ".html", ".j2")]
    return [*source, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tools").rglob("*.py")]


def test_nobody_is_told_to_install_headstart_from_an_index() -> None:
    told = {str(path): from_an_index(path.read_text(encoding="utf-8")) for path in texts()}
    assert not {path: commands for path, commands in told.items() if commands}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('pip install "headstart[serve]"', True),
        ("pip install headstart", True),
        ("pip install -U 'headstart'", True),
        ('pip install -c constraints.txt -e ".[serve]"', False),
        ('pip install -e "path/to/headstart[serve]"', False),
        ("pip install --no-deps path/to/headstart", False),
        ("pip install vllm-router (in the environment of headstart, or of vLLM)", False),
    ],
)
def test_which_lines_mean_an_index(line: str, wrong: bool) -> None:
    assert bool(from_an_index(line)) is wrong


def named_in_hints() -> set[str]:
    """The extras that the source asks for, read from its calls."""
    calls = [
        node
        for path in (ROOT / "src").rglob("*.py")
        if "how_to_install" in (text := path.read_text(encoding="utf-8")) and path != Path(extras.__file__)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "how_to_install"
    ]
    return {ast.literal_eval(call.args[0]) for call in calls} | set(extras.NEEDS)


def test_every_extra_that_a_hint_names_exists() -> None:
    assert named_in_hints() == set(get_args(extras.Extra))
    assert set(get_args(extras.Extra)) <= set(EXTRAS)


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), Path(extras.__file__)])
def test_every_extra_that_a_command_names_exists(path: Path) -> None:
    for names in re.findall(r"pip install [^\n`]*\[([\w,]+)\]", path.read_text(encoding="utf-8")):
        assert set(names.split(",")) <= set(EXTRAS)


def test_what_the_readme_installs_runs_every_command_that_it_shows() -> None:
    """A command of README that needs an extra would ask for it in a hint."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (installed,) = re.findall(r"^pip install -c constraints\.txt -e \"\.\[([\w,]+)\]\"", readme, re.MULTILINE)
    assert named_in_hints() <= set(installed.split(","))
    assert (ROOT / "constraints.txt").is_file()


def test_the_hint_is_a_command_for_the_clone_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert extras.how_to_install("serve") == f'pip install -e "{ROOT}[serve]"'
    monkeypatch.setattr(extras, "CLONE", tmp_path)  # installed as a wheel: nothing says where the clone is
    assert extras.how_to_install("report") == 'in a clone of headstart: pip install ".[report]"'
