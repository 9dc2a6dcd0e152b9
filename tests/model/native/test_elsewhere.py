"""The kernels on Windows: cross-compiled by MinGW, run by Wine, and every result has the bits that it has here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headstart.base import compiling
from headstart.base.levels import LEVELS, Level
from headstart.model.native import MAIN

MINGW, WINE = "x86_64-w64-mingw32-g++", "wine"
DRIVER = Path(__file__).parents[2] / "support" / "elsewhere.cpp"
NAMES = [name for name in compiling.levels_here() if name != "amx"]  # tiles are asked of Linux alone
HERE = [level for level in LEVELS if level.name in NAMES and level.architecture == "x86_64"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(MINGW) is None or shutil.which(WINE) is None, reason="there is no MinGW or no Wine"
    ),
]


def program(compiler: str, level: Level, path: Path, *flags: str) -> Path:
    options = (*compiling.flags_of(level), *flags, "-I", str(MAIN.parent), "-pthread", "-static")
    done = subprocess.run(
        [compiler, *options, str(DRIVER), "-o", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return path


@pytest.mark.parametrize("level", HERE, ids=lambda level: level.name)
def test_windows_has_the_same_bits(level: Level, tmp_path: Path) -> None:
    here = subprocess.run(
        [program(compiling.find_compiler(), level, tmp_path / "here")], capture_output=True, text=True, check=True
    )
    windows = program(MINGW, level, tmp_path / "there.exe", "-Wa,-muse-unaligned-vector-move")
    there = subprocess.run(
        [WINE, windows], capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"},
    )  # fmt: skip
    assert there.returncode == 0, there.stderr[-2000:]
    assert there.stdout.splitlines() == here.stdout.splitlines()
    assert "forward in bf16" in here.stdout
