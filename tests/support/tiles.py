"""The level `amx` on a processor that has AVX-512 BF16 and no tiles: their instructions are functions of `tiles.h`.

    python -m pytest -p support.tiles tests/model/native/test_grouped.py

runs these tests with the kernels of that level.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from headstart.base import levels

INSTRUCTIONS = Path(__file__).with_suffix(".h")


def _emulated(level: levels.Level) -> levels.Level:
    """The level as this processor can have it."""
    needs = tuple(each for each in level.needs if not each.startswith("amx"))
    flags = tuple(each for each in level.flags if not each.startswith("-mamx"))
    # a library is kept by its flags, which therefore say what the instructions are
    edition = hashlib.sha256(INSTRUCTIONS.read_bytes()).hexdigest()[:16]
    return replace(level, needs=needs, flags=(*flags, "-include", str(INSTRUCTIONS), f"-DTILES_EDITION=0x{edition}"))


AMX = _emulated(next(level for level in levels.LEVELS if level.name == "amx"))


def pytest_configure() -> None:
    levels.LEVELS = tuple(AMX if level.name == "amx" else level for level in levels.LEVELS)
    levels.force("amx")
