"""The guide's examples run as they stand."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "simulate-your-model.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(code: str, cache: Path) -> str:
    environment = os.environ | {"DEV": "PYTHON", "XDG_CACHE_HOME": str(cache)}  # tinygrad without a compiler
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_toy_pair(tmp_path: Path) -> None:
    lines = run(BLOCKS[0], tmp_path).splitlines()
    tokens, speedups = float(lines[0].split()[0]), [float(line.split()[1]) for line in lines[2:5]]
    assert 3 < tokens < 5
    assert speedups == sorted(speedups, reverse=True)


@pytest.mark.skipif(importlib.util.find_spec("tinygrad") is None, reason="tinygrad is not installed")
def test_networks_of_another_framework(tmp_path: Path) -> None:
    found = re.search(r"round ([\d.]+) .*about \((\d+), (\d+)\) contexts", run(BLOCKS[1], tmp_path))
    assert found
    assert 1.5 < float(found[1]) < 5
    assert int(found[2]) <= 64
    assert int(found[3]) <= 64


def test_the_scenarios(tmp_path: Path) -> None:
    assert "the draft is too expensive: 0.9" in run(BLOCKS[2], tmp_path)
