"""Drafters that other packages add as entry points: they draft by their name, and what is wrong with one is said."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.greedy import prompts

import headstart as hs
from headstart.base.errors import DrafterFailed, InvalidOption
from headstart.drafters import kinds
from headstart.drafters.building import CORE, GROUP, Kind
from headstart.engine.trace.lines import header

THING = """
from headstart.drafters import Drafter
from headstart.types import Draft

WEIGHTS = "none"


class Thing(Drafter):
    '''Guesses that the last token repeats itself.'''

    name = "thing"

    def __init__(self, budget):
        self.default_budget = 3 if budget is None else budget

    def propose(self, rows):
        return [Draft.chain(row.tokens[-1:] * row.budget.nodes) for row in rows]


def build(context):
    return Thing(context.budget)
"""
AROUND = """
from headstart.drafters import Drafter

WEIGHTS = "drafter"


class Halved(Drafter):
    '''Half of what another drafter guesses.'''

    def __init__(self, inner):
        self.inner, self.name, self.default_budget = inner, "halved:" + inner.name, inner.default_budget
        self.draws = False

    def propose(self, rows):
        return self.inner.propose([row.with_budget(row.budget.within(row.budget.nodes // 2)) for row in rows])

    def release(self, request):
        self.inner.release(request)


def build(context):
    return Halved(context.inner)
"""
HEAD = (
    THING.replace('"none"', '"head"')
    + """

def recognises(folder):
    return (folder / "thing.json").exists()
"""
)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package of one module on the path, with an entry point for it."""

    def make(source: str, name: str = "thing", module: str = "thing", package: str = "thing") -> None:
        folder = tmp_path / f"installed-{package}"
        about = folder / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[headstart.drafters]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return make


def texts(engine: hs.Engine, **sampling: object) -> list[tuple[int, ...]]:
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=24, **sampling))  # type: ignore[arg-type]
    return [tuple(out.tokens) for out in outs]


@pytest.mark.parametrize("pacing", ["fixed", "adaptive"])
def test_a_drafter_of_another_package_drafts_by_its_name(
    pacing: str, install: Install, tiny: Callable[..., str]
) -> None:
    plain = texts(hs.load(tiny("llama"), "none", dtype="float32"))
    install(THING)
    assert "thing" not in sys.modules
    assert "thing" in kinds()
    assert "thing" not in sys.modules, "imported when it is chosen, not when it is found"
    engine = hs.load(tiny("llama"), "thing", dtype="float32", pacing=pacing, num_speculative_tokens=2)
    assert engine.drafter.default_budget == 2
    assert texts(engine) == plain
    if pacing == "fixed":
        out = engine.generate([5, 6, 7], hs.Sampling(max_tokens=24))
        assert out.stats.drafted > 0
    assert header(engine, command="", note="")["drafters"] == [{"name": "thing", "kind": "thing"}]


def test_it_may_be_one_of_a_list_and_be_put_around_another_one(install: Install, tiny: Callable[..., str]) -> None:
    plain = texts(hs.load(tiny("llama"), "none", dtype="float32"))
    install(THING)
    install(AROUND, "halved", "halved_drafter", "halved")
    for asked in (["ngram", "thing"], "halved:ngram", ["halved:thing", "suffix"]):
        engine = hs.load(tiny("llama"), asked, dtype="float32", pacing="fixed")
        assert texts(engine) == plain
    assert engine.drafter_name == "halved:thing + suffix"
    with pytest.raises(InvalidOption, match="put around"):
        hs.load(tiny("llama"), "halved:halved:ngram", dtype="float32")


def test_the_drafter_of_the_guide_runs_as_an_object_and_by_its_name(
    install: Install, tiny: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "write-a-drafter.md").read_text(encoding="utf-8")
    whole, defined = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(whole, {"__name__": "guide"})
    text, _, tokens_per_forward = capsys.readouterr().out.rstrip().rpartition(" ")
    assert (
        text.strip() == hs.load("bundled", "none").generate("x = [0, 0, 0, 0,", hs.Sampling(max_tokens=32)).text.strip()
    )
    assert float(tokens_per_forward) > 1
    name, module = re.findall(r"^(\w+) = \"(\w+)\"$", guide.split("entry-points")[1], re.MULTILINE)[0]
    install(whole.partition("\n\nengine = ")[0] + defined, name, module, "echo_drafter")
    engine = hs.load(tiny("llama"), "echo", dtype="float32", pacing="fixed", num_speculative_tokens=2)
    assert engine.drafter.default_budget == 2
    assert texts(engine) == texts(hs.load(tiny("llama"), "none", dtype="float32"))


def test_a_head_of_another_package_is_recognised_by_its_folder(
    install: Install, tiny: Callable[..., str], tmp_path: Path
) -> None:
    install(HEAD)
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "thing.json").write_text("{}")
    engine = hs.load(tiny("llama"), str(folder), dtype="float32", pacing="fixed")
    assert engine.drafter.name == "thing"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module_at_all", "cannot be imported.*no_such_module_at_all"),
        ("raise SystemExit(1)", "cannot be imported.*SystemExit"),
        ("WEIGHTS = 'none'", "does not define build"),
        ("def build(context): ...", "does not define WEIGHTS"),
        ("WEIGHTS = 'much'\ndef build(context): ...", "does not define WEIGHTS"),
        ("WEIGHTS = 'head'\ndef build(context): ...", "does not define recognises"),
        ("WEIGHTS = 'none'\ndef build(context): 1 / 0", "cannot be built: ZeroDivisionError"),
        ("WEIGHTS = 'none'\ndef build(context): return 3", "built what is no drafter"),
    ],
)
def test_what_is_wrong_with_one_is_a_typed_error_with_a_hint(
    source: str, message: str, install: Install, tiny: Callable[..., str]
) -> None:
    install(source)
    with pytest.raises(DrafterFailed, match=message) as caught:
        hs.load(tiny("llama"), "thing", dtype="float32")
    assert caught.value.hint


def test_a_broken_one_does_not_hurt_the_others(
    install: Install, tiny: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    install("import no_such_module_at_all")
    hs.load(tiny("llama"), "ngram", dtype="float32", pacing="fixed")
    assert not caplog.records
    hs.load(tiny("llama"), tiny("llama", noise=0.05), dtype="float32", pacing="fixed")  # it might have been its head
    assert "no_such_module_at_all" in caplog.text


def test_a_name_that_is_taken_is_refused_when_it_is_chosen(install: Install, tiny: Callable[..., str]) -> None:
    install(THING, "ngram")
    with pytest.raises(InvalidOption, match="several definitions") as caught:
        hs.load(tiny("llama"), "ngram", dtype="float32")
    assert "uninstall" in caught.value.hint
    hs.load(tiny("llama"), "suffix", dtype="float32", pacing="fixed")


def test_two_packages_may_not_share_a_name(install: Install, tiny: Callable[..., str]) -> None:
    install(THING)
    install(THING, "thing", "other_thing", "other")
    with pytest.raises(InvalidOption, match="other_thing"):
        hs.load(tiny("llama"), "thing", dtype="float32")


def test_headstarts_own_entry_points_define_what_a_kind_must() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    own = project["entry-points"][GROUP]
    assert not set(own) & set(CORE), "the core's names are the core's"
    for name, value in own.items():
        kind = Kind(name, (EntryPoint(name, value, GROUP),))
        assert kind.definition.build
        assert kind.defined_in(value)
