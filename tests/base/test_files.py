"""Files are written whole or not at all; caches lie where the user's other caches lie."""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path

import pytest

from headstart.base import machine
from headstart.base.errors import InvalidOption
from headstart.base.files import cache_directory, replacing, write_text


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    with replacing(path) as part:
        part.write_text("first")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        part.write_text(f"half {1 / 0}")
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a" / "b.txt", "ä").read_text(encoding="utf-8") == "ä"
    with pytest.raises(InvalidOption, match=r"cannot write .*a.*directory") as caught:
        write_text(tmp_path / "a", "text", hint="another one")
    assert caught.value.hint == "another one"


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory("kernels") == tmp_path / "headstart" / "kernels"


def test_the_processor_has_a_name_even_where_the_system_does_not_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("model name\t: A processor\nflags\t\t: avx2 fma\nmodel name\t: A processor\n")
    monkeypatch.setattr(machine, "_CPUINFO", info)
    assert machine.cpu_name() == "A processor"
    assert machine.cpu_features() == "A processor\navx2 fma"
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    assert machine.cpu_name()


def test_a_file_in_use_on_windows_is_replaced_when_it_is_free_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, in_use, move = tmp_path / "file.json", [], os.replace

    def replace(source: str, target: Path) -> None:
        if in_use:
            raise in_use.pop()
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "platform", "win32")
    in_use[:] = [PermissionError(13, "used by another process")] * 2
    with replacing(path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    in_use[:] = [PermissionError(13, "used by another process")] * 9  # and is not waited for without end
    with pytest.raises(PermissionError), replacing(path) as part:
        part.write_text("newer")
    assert list(tmp_path.iterdir()) == [path]


def test_the_package_reads_and_writes_text_as_utf_8() -> None:
    """Where nothing is said, Windows takes the encoding of the country."""
    places = [
        f"{file.name}:{call.lineno}"
        for file in sorted(Path(machine.__file__).parents[1].rglob("*.py"))
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and _is_of_no_encoding(call)
    ]
    assert not places


def _is_of_no_encoding(call: ast.Call) -> bool:
    module, _, called = ast.unparse(call.func).rpartition(".")
    if "encoding" in {each.arg for each in call.keywords}:
        return False
    if called == "run":
        return "text" in {each.arg for each in call.keywords}
    if called == "open":  # of text, where the mode is a plain word
        return any(isinstance(each, ast.Constant) and each.value in ("r", "w", "a", "x", "r+") for each in call.args)
    return bool(module) and called in ("read_text", "write_text")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("path.read_text()", True), ("path.read_text(encoding='utf-8')", False), ("path.write_text(text)", True),
        ("path.open('w')", True), ("path.open('rb')", False), ("open(path, 'a')", True),
        ("subprocess.run(command, text=True)", True), ("subprocess.run(command)", False),
    ],
)  # fmt: skip
def test_a_missing_encoding_would_be_noticed(code: str, found: bool) -> None:
    assert _is_of_no_encoding(ast.parse(code, mode="eval").body) is found  # type: ignore[arg-type]
