"""Compiled code as a program with the address sanitizer, which ends it at the first byte outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headstart.base import compiling


def runs_within_bounds(main: str, include: Path, folder: Path) -> None:
    """Assert that a program runs to its end without a fault; skips where there are no sanitizers.

    main: its text. include: where what it includes is. folder: where it is built.
    """
    (folder / "main.cpp").write_text(main, encoding="utf-8")
    flags = ["-O1", "-std=c++17", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I", str(include)]
    command = [str(compiling.find_compiler()), *flags, str(folder / "main.cpp"), "-o", str(folder / "main")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no sanitizers: {made.stderr[-200:]}")
    done = subprocess.run([folder / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
