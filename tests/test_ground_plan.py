"""The ground plan holds: a core that imports no wing, wings that never meet, and few enough rooms to know them all."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CORE = ("base", "types", "rule", "theory", "model", "drafters", "pacing", "engine", "loading")
WINGS = ("serve", "train", "measure", "learn", "fleet")


@pytest.fixture(scope="module")
def plan() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ground_plan", ROOT / "tools" / "ground_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def house(plan: ModuleType) -> Any:
    """Read once: it parses every file."""
    return plan.House(ROOT / "src")


def rooms_loaded(program: str) -> set[str]:
    """The rooms of which a new process has imported something after a program."""
    program += (
        "\nprint(*{name.split('.')[1] for name in sys.modules if name.startswith('headstart.')}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", "import sys\n" + program], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_importing_headstart_imports_no_wing_and_no_model() -> None:
    assert rooms_loaded("import headstart") == {"base", "types"}


def test_generating_imports_no_wing_and_little_of_the_core(house: Any) -> None:
    assert {house.room(name) for name in house.loaded} - {""} == set(CORE)
    # 19,733 before what the first load finds out was kept, and wheels held kernels of several levels. At every load 867
    # lines of that read or write what is kept (`kept`), with 80 of rotations; 317 choose the level of the kernels.
    # Experts and latent attention are 1,080 lines of what every load passes through, cores that are counted 188. What
    # only they need (`decoders.experts`) is imported with the first such model.
    # `base.extras` and `model.coded`, 197 lines, are new for one function each, and would not make the difference.
    # Rounded keys and values, bounded chunks of prompts and the file of large weights are 220. Decisions of pacing that
    # stand, pages of files asked about one by one, and the place of recorded forwards are 80. What pacing keeps until
    # it changes is 150: costs of sizes, budgets, and what a decision takes. The rule of a request is 22. What drafters
    # read within a step's bound is 189. Compiled softmax, its use and batches that are kept are 240.
    # Draws of columns by their tokens, and layers that lie alike, are 50. What tokens of a prompt take by their place
    # is 70. What a judged draft asks of compiled code, with its twin, is 130. What bounds the time of pacing, and what
    # drafts pay for asking, is 95, for a tenth of a small model's step. What a node of a tree takes, parts of drafts
    # that are corrected apart, and learning when a decision ends are 135. Rows that compiled code lays out, and a
    # level's candidates that it chooses, are 30.
    assert house.weight(house.loaded) <= 26_135
    rare = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["headstart.drafters"]
    assert rare
    assert not house.loaded & set(rare.values())
    assert not [name for name in house.loaded if name.startswith("headstart.engine.trace")]


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["generate", "--pacing", "fixed", "--max-tokens", "2", "--max-length", "64", "def"]],
    ids=["version", "generate"],
)
def test_a_command_imports_no_wing_that_it_does_not_need(arguments: list[str]) -> None:
    loaded = rooms_loaded(f"from headstart.commands.cli import app\napp({arguments}, standalone_mode=False)")
    assert "commands" in loaded
    assert not loaded & set(WINGS)


def test_a_wing_would_be_noticed() -> None:
    assert "learn" in rooms_loaded("import headstart.learn.simulate")


def test_rooms_floors_and_arrows(house: Any) -> None:
    assert set(house.rooms) == {*CORE, *WINGS, "commands"}
    assert min(house.floors.values()) > 0, "no rooms in a circle"
    assert max(house.floors.values()) <= 10
    assert len(house.arrows) <= 80


def test_the_step_loop_imports_little(house: Any) -> None:
    # Docstrings count: those of the public types list every field with its default, which is 50 lines of it. Compiled
    # softmax is 90, what drafters may read in a step 41, what
    # tokens take by their place 31, what a judged draft asks of compiled code 105, and what a level's candidates ask of
    # it, with its twin, 55.
    assert house.weight(house.closure("headstart.engine.loop")) <= 5_585


def test_a_walk_follows_a_parameter_from_call_to_call(plan: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "headstart"
    for name, text in {
        "__init__.py": "",
        "a.py": "from headstart.b import C, g as h\n\ndef f(x, y):\n    h(1, z=x)\n    h(y, x + 1)\n",
        "b.py": "def g(y, z):\n    return C(z)\n\nclass C:\n    def __init__(self, p):\n        self.m(p)\n"
        "    def m(self, q):\n        pass\n",
    }.items():
        package.mkdir(exist_ok=True)
        (package / name).write_text(text)
    house = plan.House(tmp_path)
    assert house.walk("headstart.a.f", "x") == {
        *("headstart.a.f", "headstart.b.g", "headstart.b.C.__init__", "headstart.b.C.m")
    }
    assert house.walk("headstart.a.f", "y") == {"headstart.a.f", "headstart.b.g"}
    assert house.longest_walks[0] == (4, 2, 2, "headstart.a.f: x")


def test_pacing_has_few_numbers_that_somebody_chose(house: Any) -> None:
    found = house.constants("pacing")
    assert len(found) <= 31, found
    assert not [each for each in found if each.endswith("without a name")]
    assert {each.partition(":")[0] for each in found} == {"constants", "profile"}, "one table, and a file's version"


def test_chosen_numbers_are_found_wherever_they_hide(plan: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "headstart" / "a"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from dataclasses import dataclass\n"
        "ONE, TABLE = 1, (1, 2)\n"
        "SHARE: float = 1 / 50\n"
        "LAST, KEPT = TABLE[-1], 1 - SHARE\n"
        "HIDDEN = 8 * SHARE\n"
        "NAME = 'a'\n"
        "@dataclass\n"
        "class Rates:\n"
        "    step: float = 0.05\n"
        "    count: int = 0\n"
        "    def f(self, most: int = 7) -> float:\n"
        "        return 0.6 * self.step / 2\n"
    )
    found = [each.partition(": ")[2] for each in plan.House(tmp_path).constants("a")]
    assert found == ["ONE", "TABLE", "SHARE", "HIDDEN", "step", "7 without a name", "0.6 without a name"]


def test_a_circle_and_a_closure_are_found(plan: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "headstart"
    for name, text in {
        "__init__.py": "",
        "a/__init__.py": "from headstart.b.one import x\n",
        "b/__init__.py": "",
        "b/one.py": "def f():\n    import headstart.a\n",
        "c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headstart import a\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    house = plan.House(tmp_path)
    assert house.arrows == {("a", "b"), ("b", "a"), ("c", "a")}
    assert house.floors == {"a": 0, "b": 0, "c": 0}
    assert house.closure("headstart.a") == {"headstart", "headstart.a", "headstart.b", "headstart.b.one"}
    assert house.closure("headstart.c") == {"headstart", "headstart.c"}
