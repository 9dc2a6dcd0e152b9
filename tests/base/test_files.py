"""Files are written whole or not at all; caches lie where the user's other caches lie."""

from __future__ import annotations

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
