"""The examples in the docstrings of the public names run as they are shown, on the bundled pair."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest
from support.guides import furnish

import headstart
from headstart.drafters import Drafter

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


def test_a_wrong_example_is_found() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


@pytest.mark.parametrize(
    "name", ["load", "Target", "Engine", "Sampling", "Drafting", "Structure", "SuffixStore", "Drafter"]
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
