"""Models whose first load is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.base.files import cache_directory
from headstart.loading import checkpoint as checkpoints
from headstart.model import loading


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sources of which modules were made; tiny models are kept too, in a cache of their own."""
    kernels, cache, found = cache_directory("kernels"), tmp_path / "cache", list[str]()
    (cache / "headstart").mkdir(parents=True)
    (cache / "headstart" / "kernels").symlink_to(kernels, target_is_directory=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(checkpoints, "WORTH_KEEPING", 0)
    load_weights = loading.load_weights

    def counted(source: str, *given: Any, **options: Any) -> Any:
        found.append(source)
        return load_weights(source, *given, **options)

    monkeypatch.setattr(loading, "load_weights", counted)
    return found
