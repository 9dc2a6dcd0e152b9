"""The weights that come with the package stay small."""

from __future__ import annotations

from pathlib import Path

import headstart

LIMIT = 64_000_000
"""Bytes of all weights together: what a clone of the repository may be asked to carry."""


def test_all_weights_of_the_package_together_are_small() -> None:
    sizes = {file: file.stat().st_size for file in Path(headstart.__file__).parent.rglob("*.safetensors")}
    assert len(sizes) >= 5  # the pair, its two heads, and a head for a chat model
    assert sum(sizes.values()) <= LIMIT, {f"{file.parent.name}": size for file, size in sizes.items()}
