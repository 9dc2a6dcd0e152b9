"""The kernels of AArch64, cross-compiled and run by QEMU, and those with tiles (AMX): they pass the tests of this
machine's kernels.

The tests themselves run here, and so do PyTorch and the twins they compare with (`support.emulated`, `support.tiles`).
Compiling takes half a minute for each level, once. That the bits of AArch64 are those of this machine's levels is among
the tests of levels.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import emulated

from headstart.base import compiling
from headstart.model import native

ROOT = Path(__file__).parents[3]
TESTS = (
    "native/test_grouped.py", "native/test_rounding.py", "decoders/test_fused.py", "decoders/test_latent.py",
    "decoders/test_recurrent.py", "recipes/test_experts.py",
)  # fmt: skip

WITH_TILES = ("native/test_grouped.py", "native/test_native.py", "decoders/test_tiles.py")

needs_emulator = pytest.mark.skipif(emulated.lacking() is not None, reason=emulated.lacking() or "")


def test_the_driver_has_all_kernels() -> None:
    """The program waits for the answer to a call of one that it does not know."""
    kernels = set(re.findall(r"\bheadstart_(\w+)\(", native.MAIN.read_text()))
    assert set(re.findall(r"NAMED\((\w+)\)[,}]", emulated.DRIVER.read_text())) == kernels


def test_a_program_is_found_from_every_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def where() -> Path:
        return emulated.kept("o", emulated.LEVELS["neon"], ("-O2",), (native.MAIN,))

    first = where()
    shutil.copytree(native.MAIN.parent, tmp_path / "clone")
    monkeypatch.setattr(native, "MAIN", tmp_path / "clone" / native.MAIN.name)
    assert where() == first
    (tmp_path / "clone" / "simd" / "more.h").write_text("// another kernel")
    assert where() != first


def run_tests(plugin: str, names: Sequence[str], **environment: str) -> None:
    files = [str(ROOT / "tests" / "model" / name) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-m", "not slow", *files]
    all_of_it = {**os.environ, **environment, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(command, env=all_of_it, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize("level", emulated.LEVELS)
def test_the_kernels_pass_the_tests_of_this_machines(level: str) -> None:
    run_tests("support.emulated", TESTS, **{emulated.VARIABLE: level})


@pytest.mark.slow
@pytest.mark.skipif("avx512-bf16" not in compiling.levels_here(), reason="the rest of the level needs AVX-512 BF16")
def test_the_kernels_with_tiles_pass_the_tests_of_those_without() -> None:
    run_tests("support.tiles", WITH_TILES)


@pytest.mark.slow
@needs_emulator
def test_an_address_that_is_no_memory_ends_the_emulator_and_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    level = next(iter(emulated.LEVELS))
    library = emulated.Emulated(emulated.program(emulated.LEVELS[level]), emulated.PROCESSORS[level])
    activate = library.headstart_activate
    activate.argtypes, activate.restype = (ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64), None
    with pytest.raises(RuntimeError, match="ended with status 4"):
        activate(0, 1 << 40, 0, 1 << 40, 16)
    library.close()
    assert "no memory of the program" in capfd.readouterr().err
