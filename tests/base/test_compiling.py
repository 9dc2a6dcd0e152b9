"""Libraries: those of the package, those of the cache, and compiling; what is taken, and what is not."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headstart.base import compiling, levels
from headstart.base.compiling import Unavailable
from headstart.base.errors import InvalidOption
from headstart.base.levels import Level

ALL, FEATURES = levels.LEVELS, compiling.features.__wrapped__
LOW, HIGH = Level("generic", "", (), ()), Level("avx2", "x86_64", (), ("-DHIGH",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two levels on any processor, an empty cache and an empty package."""
    monkeypatch.delenv(levels.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setattr(compiling, "features", frozenset)
    monkeypatch.setattr(compiling, "architecture", lambda: "x86_64")  # of which the two are
    monkeypatch.setattr(levels, "LEVELS", (HIGH, LOW))
    (tmp_path / "prebuilt").mkdir()
    return tmp_path / "cache" / "headstart" / "kernels"


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Says which level it was compiled for, and a number of its header."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "number.h").write_text("#if defined(HIGH)\n#define NUMBER 20\n#else\n#define NUMBER 10\n#endif\n")
    (folder / "one.cpp").write_text('#include "number.h"\nextern "C" int number() { return NUMBER + 1; }\n')
    return folder / "one.cpp"


def number(found: compiling.Library) -> int:
    return int(ctypes.CDLL(str(found.path)).number())


def prebuild(main: Path, *, but: str = "") -> None:
    """As the package is built, without this level."""
    for task in compiling.build_all(main, compiling.PREBUILT):
        if f"-{but}-" not in task().name or not but:
            continue
        next(compiling.PREBUILT.glob(f"*-{but}-*")).unlink()


def without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


def test_the_best_level_is_compiled_once(main: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    @contextmanager
    def showing(what: str) -> Iterator[None]:
        shown.append(what)
        yield

    token = compiling.SHOWN.set(showing)
    try:
        first, second = compiling.library(main), compiling.library(main)
    finally:
        compiling.SHOWN.reset(token)
    assert (number(first), first.level, first.prebuilt) == (21, "avx2", False)
    assert first == second
    assert first.path.parent == cache
    assert first.compiler in compiling.version_of(compiling.find_compiler())
    assert shown == ["compiling one.cpp for the level avx2, once on this machine"]
    assert not [path for path in cache.iterdir() if path.is_dir()], "nothing is left behind"


def test_the_packages_library_needs_no_compiler(
    main: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuild(main)
    made_by = compiling.version_of(compiling.find_compiler())
    without_a_compiler(monkeypatch, tmp_path)
    found = compiling.library(main)
    assert (number(found), found.level, found.prebuilt) == (21, "avx2", True)
    assert found.compiler
    assert found.compiler in made_by
    assert not cache.exists()


@pytest.mark.parametrize("tampered", ["number.h", "one.cpp"])
def test_a_library_of_other_sources_is_not_taken(
    tampered: str, main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuild(main)
    with (main.parent / tampered).open("a") as file:
        file.write("// another line\n")
    assert not compiling.library(main).prebuilt
    without_a_compiler(monkeypatch, tmp_path)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(Unavailable, match="there is no C\\+\\+ compiler"):
        compiling.library(main)


def test_a_library_of_other_flags_is_not_taken(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prebuild(main)
    monkeypatch.setattr(compiling, "STRICT", (*compiling.STRICT, "-O1"))
    assert not compiling.library(main).prebuilt


def test_without_a_compiler_the_best_that_there_is(main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prebuild(main, but="avx2")
    assert compiling.library(main).level == "avx2", "a compiler makes the better one"
    shutil.rmtree(tmp_path / "cache")
    without_a_compiler(monkeypatch, tmp_path)
    found = compiling.library(main)
    assert (number(found), found.level) == (11, "generic")
    monkeypatch.setenv(levels.VARIABLE, "avx2")
    with pytest.raises(InvalidOption, match="the level 'avx2' cannot be had: there is no C\\+\\+ compiler") as caught:
        compiling.library(main)
    assert caught.value.hint.endswith("this processor has: avx2, generic")


def test_without_a_compiler_what_was_compiled_before(
    main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiling.library(main).path
    without_a_compiler(monkeypatch, tmp_path)
    assert compiling.library(main).path == path


def test_another_compiler_compiles_anew(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiling.library(main).path
    monkeypatch.setattr(compiling, "version_of", lambda compiler: "another one 1.0\nand more")
    found = compiling.library(main)
    assert found.path != path
    assert found.compiler == "another one 1.0"


def test_a_level_that_the_compiler_does_not_know_leaves_the_next(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "LEVELS", (Level("amx", "x86_64", (), ("-mno-such-thing",)), LOW))
    assert compiling.library(main).level == "generic"
    monkeypatch.setenv(levels.VARIABLE, "amx")
    with pytest.raises(InvalidOption, match=r"'amx' cannot be had: .* failed on one\.cpp .*no-such-thing"):
        compiling.library(main)


def test_what_cannot_be_compiled_is_not_tried_again_at_once(
    main: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "LEVELS", (Level("amx", "x86_64", (), ("-mno-such-thing",)), LOW))
    tried: list[str] = []
    build = compiling.build

    def building(compiler: str, main: Path, level: Level, *more: Any) -> Path:
        tried.append(level.name)
        return build(compiler, main, level, *more)

    monkeypatch.setattr(compiling, "build", building)
    for _ in range(2):
        assert compiling.library(main).level == "generic"
    assert tried == ["amx", "generic"]
    monkeypatch.setenv(levels.VARIABLE, "amx")  # who asks for it gets an answer of today
    with pytest.raises(InvalidOption, match="no-such-thing"):
        compiling.library(main)
    monkeypatch.delenv(levels.VARIABLE)
    (note,) = cache.glob("*.failed")
    with pytest.raises(compiling.Unavailable, match=rf"no-such-thing.* without {re.escape(str(note))}"):
        compiling.at_level(main, levels.LEVELS[0], cache)
    os.utime(note, (time.time() - 900,) * 2)
    assert compiling.library(main).level == "generic"
    assert tried == ["amx", "generic", "amx", "amx"]


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands for the compiler")
@pytest.mark.parametrize("end", ["kill -9 $$", "echo Killed signal terminated program cc1plus >&2; exit 1"])
def test_a_compiler_that_was_killed_is_believed_to_do_better(
    main: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec c++ --version\n{end}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(compiling.Unavailable, match="failed on"):
        compiling.at_level(main, LOW, cache)
    assert not list(cache.glob("*.failed"))


def test_a_forced_level(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(levels.VARIABLE, "generic")
    assert number(compiling.library(main)) == 11
    monkeypatch.setenv(levels.VARIABLE, "avx3")
    with pytest.raises(InvalidOption, match="the level 'avx3' is not known") as caught:
        compiling.library(main)
    assert caught.value.hint == "here there are: avx2, generic"


def test_where_the_cache_directory_cannot_be_written_the_library_is_built_for_one_process(
    main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    removed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(compiling.atexit, "register", lambda *args, **options: removed.append(args))
    with caplog.at_level(logging.WARNING):
        found = compiling.library(main)
    assert number(found) == 21
    assert "compiled at every start" in caplog.text
    ((remove, directory),) = removed
    assert found.path.parent == directory
    remove(directory)
    assert not directory.exists()


def test_every_source_of_the_package_is_found_by_the_build() -> None:
    """A library is a .cpp file: what the package loads is what the build compiles."""
    from headstart.model import native
    from headstart.rule import mask, race, rest

    package = Path(compiling.__file__).parents[1]
    libraries = {mask._SOURCE, race._SOURCE, rest.SOURCE}
    assert set(package.rglob("*.cpp")) == {compiling._CPU, native.MAIN, *libraries}


def test_the_processor_says_what_the_system_says() -> None:
    """Linux lists what it keeps the registers of."""
    info = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not info.exists():
        pytest.skip("nothing to compare with here")
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags")).split()
    names = {"bmi1": "bmi", "avx_vnni": "avxvnni", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
    system = {names.get(flag, flag).replace("amx_", "amx-") for flag in flags}
    asked = {feature for level in ALL for feature in level.needs if level.architecture == "x86_64"}
    assert FEATURES() == system & asked
