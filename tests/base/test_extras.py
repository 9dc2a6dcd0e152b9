"""What is said about installing: headstart is on no package index, so every command must work from a clone."""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from headstart.base import extras
from headstart.base.errors import ModelNotFound
from headstart.model.loading import resolve

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CORE = PROJECT["dependencies"]
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


def packages(requirement: str) -> set[str]:
    """The packages of a requirement; of headstart's own extras, those that they consist of."""
    own = re.fullmatch(r"headstart\[([\w,]+)\]", requirement)
    if own:
        return {package for name in own[1].split(",") for part in EXTRAS[name] for package in packages(part)}
    return {re.split(r"[<>=\[]", requirement)[0].lower().replace("_", "-")}


def named_in_hints() -> set[str]:
    """The extras that the source asks for, read from its calls."""
    calls = [
        node
        for path in (ROOT / "src").rglob("*.py")
        if "how_to_install" in (text := path.read_text(encoding="utf-8")) and path != Path(extras.__file__)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "how_to_install"
    ]
    return {ast.literal_eval(call.args[0]) for call in calls if isinstance(call.args[0], ast.Constant)} | {
        *extras.PLAINLY_IMPORTED.values(),
        *extras.NEEDS,
    }


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
    assert packages(f"headstart[{installed}]") >= {
        package for extra in named_in_hints() for package in packages(f"headstart[{extra}]")
    }
    assert (ROOT / "constraints.txt").is_file()


def test_the_hint_is_a_command_for_the_clone_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert extras.how_to_install("serve") == f'pip install -e "{ROOT}[serve]"'
    monkeypatch.setattr(extras, "CLONE", tmp_path)  # installed as a wheel: nothing says where the clone is
    assert extras.how_to_install("fleet") == 'in a clone of headstart: pip install ".[fleet]"'


BROUGHT_ALONG = {"markupsafe": "jinja2", "starlette": "fastapi", "tokenizers": "transformers"}
"""By package that is imported, the one that is declared and always brings it."""
MODULES = {"yaml": "pyyaml"}


def imported(room: str) -> dict[str, str]:
    """By package of others that a room imports, a file that does; what `extra` imports by name as well."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "src" / "headstart" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "extra":
                names = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
            for name in (name.partition(".")[0] for name in names):
                if name not in sys.stdlib_module_names and name not in ("headstart", "vllm"):
                    package = MODULES.get(name, name.lower().replace("_", "-"))
                    found[BROUGHT_ALONG.get(package, package)] = str(path)
    return found


def test_each_wing_is_an_extra_of_what_it_needs_beside_the_core() -> None:
    core = {package for requirement in CORE for package in packages(requirement)}
    rooms = [path.name for path in (ROOT / "src" / "headstart").iterdir() if (path / "__init__.py").exists()]
    for room in rooms:
        needs = imported(room)
        declared = core | packages(f"headstart[{room}]") if room in EXTRAS else {*core}
        if room == "commands":
            declared |= packages("headstart[serve]")  # the line that chat edits
        if room in ("model", "rule"):
            declared |= packages("headstart[agents]")  # grammars, imported when one is asked for
        assert not {package: file for package, file in needs.items() if package not in declared}, room
    unused = core - {package for room in rooms if room not in EXTRAS for package in imported(room)}
    assert not unused, "only a wing needs these"


@pytest.mark.parametrize("module", extras.PLAINLY_IMPORTED)
def test_a_package_of_an_extra_that_is_missing_is_an_error_with_a_remedy(module: str) -> None:
    error = extras.missing(ModuleNotFoundError("no", name=f"{module}.part"))
    assert error is not None
    assert module in error.message
    assert error.hint == extras.how_to_install(extras.PLAINLY_IMPORTED[module])


def test_any_other_failed_import_stays_what_it_is() -> None:
    assert extras.missing(ModuleNotFoundError("no", name="headstart.nothing")) is None
    assert extras.missing(ImportError("no")) is None


def test_the_bundled_models_are_found_in_a_clone_and_in_their_own_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (extras.pair("target") / "config.json").is_file()
    monkeypatch.setattr(extras, "IN_CLONE", tmp_path / "none")  # installed as a wheel
    with pytest.raises(ModelNotFound, match="not installed") as caught:
        resolve("bundled", "target")
    (folder,) = re.findall(r"pip install \./(\S+);", caught.value.hint)
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == "headstart-pair"
    ((source, module),) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items()
    shutil.copytree(ROOT / folder / source, tmp_path / module, ignore=shutil.ignore_patterns("*.safetensors"))
    monkeypatch.syspath_prepend(tmp_path)
    assert extras.pair("target") == tmp_path / module / "target"
    assert resolve("bundled", "draft") == str(tmp_path / module / "draft")
