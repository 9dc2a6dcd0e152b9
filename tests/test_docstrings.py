"""The examples in the docstrings of the public names run as they are shown, on the bundled pair."""

from __future__ import annotations

import dataclasses
import doctest
import functools
import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from support.guides import furnish

import headstart
from headstart import Target
from headstart.drafters import Drafter
from headstart.loading.options import EngineOptions, TargetOptions

PUBLIC = {name: getattr(headstart, name) for name in headstart.__all__ if name not in ("__version__", "errors")}
SHOWN = {**PUBLIC, "Drafter": Drafter}


def texts(name: str) -> list[tuple[str, str]]:
    """The docstrings with examples of a public name and of its members."""
    value = SHOWN[name]
    members: dict[str, Any] = {name: value}
    if inspect.isclass(value):
        members |= {f"{name}.{key}": each for key, each in vars(value).items() if key[0] != "_"}
    found = [(key, inspect.getdoc(each) or "") for key, each in members.items() if not isinstance(each, str)]
    return [(key, text) for key, text in found if ">>>" in text]


EXAMPLES = [each for name in SHOWN for each in texts(name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "structure=" in text:
        pytest.importorskip("llguidance")
    monkeypatch.chdir(folder)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL, verbose=False)
    runner.run(test, out=said.append)
    assert runner.tries
    assert not said, "".join(said)


@pytest.mark.parametrize(("about", "options"), [(Target, TargetOptions), (Target.engine, EngineOptions)])
def test_every_option_is_explained_where_it_is_given(about: Any, options: Any) -> None:
    text = inspect.getdoc(about) or ""
    missing = [each.name for each in dataclasses.fields(options) if f" {each.name}: " not in text]
    assert not missing


@pytest.mark.parametrize("name", [name for name, each in PUBLIC.items() if dataclasses.is_dataclass(each)])
def test_every_field_of_a_public_type_is_explained(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    missing = [
        each.name
        for each in dataclasses.fields(PUBLIC[name])
        if not re.search(rf"^ *(?:\w+, )*{each.name}(?:, \w+)*: ", text, re.MULTILINE)
    ]
    assert not missing


@pytest.mark.parametrize("name", [name for name, each in PUBLIC.items() if inspect.isclass(each)])
def test_every_member_of_a_public_type_says_what_it_is(name: str) -> None:
    members = {key: each for key, each in vars(PUBLIC[name]).items() if key[0] != "_"}
    asked = (property, functools.cached_property, classmethod, FunctionType)
    assert not [key for key, each in members.items() if isinstance(each, asked) and not inspect.getdoc(each)]


def test_a_wrong_example_is_found() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


@pytest.mark.parametrize(
    "name",
    ["load", "Target", "Engine", "Sampling", "Drafting", "Structure", "SuffixStore", "Drafter", "Ahead", "Stack"],
)
def test_what_a_user_calls_has_an_example(name: str) -> None:
    assert texts(name)


@pytest.mark.parametrize("name", ["load", "Target.engine", "Engine.generate", "Engine.chat", "Engine.stream"])
def test_what_a_user_calls_says_what_it_takes_gives_and_raises(name: str) -> None:
    value: Any = headstart
    for part in name.split("."):
        value = getattr(value, part)
    text = inspect.getdoc(value) or ""
    assert all(f"\n{section}:\n" in text for section in ("Args", "Returns", "Raises"))
    for parameter in inspect.signature(value).parameters:
        if parameter != "self":
            assert f"    {parameter}:" in text, parameter
