"""The kernels under the address and undefined-behaviour sanitizers, which must also find a fault that is planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.base import compiling
from headstart.model import native

SCRIPT = Path(__file__).parents[2] / "support" / "sanitized.py"
PLANTS = {
    "nothing": ("", "", ""),
    "a value written behind its slot": (
        "attention.h",
        "s.capacity + token) * (s.dim + SCALE<KV>);\n}\n\n// A key",
        "s.capacity + token + s.capacity) * (s.dim + SCALE<KV>);\n}\n\n// A key",
    ),
}


def preloaded() -> str:
    """The sanitizers' runtimes; skips where the compiler has none."""
    if not native.available():
        pytest.skip(f"no row kernels: {native.reason()}")
    found = []
    for name in ("libasan.so", "libubsan.so"):
        asked = [compiling.find_compiler(), f"-print-file-name={name}"]
        path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            pytest.skip(f"the compiler has no {name}")
        found.append(str(Path(path).resolve()))
    return " ".join(found)


def test_the_planted_fault_has_its_place_in_the_sources() -> None:
    assert all((native.MAIN.parent / name).read_text().count(good) == 1 for name, good, _ in PLANTS.values() if name)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_forwards_under_sanitizers(plant: str, tmp_path: Path) -> None:
    libraries = preloaded()
    sources = tmp_path / "sources"
    shutil.copytree(native.MAIN.parent, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    name, good, bad = PLANTS[plant]
    if name:
        (sources / name).write_text((sources / name).read_text().replace(good, bad))
    environment = {**os.environ, "LD_PRELOAD": libraries, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, str(SCRIPT), str(sources), str(tmp_path / "build")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    report = done.stderr[-3000:]
    if plant == "nothing":
        assert done.returncode == 0, report
        assert "ran to the end" in done.stdout
    else:
        assert done.returncode != 0
        assert "heap-buffer-overflow" in report, report
