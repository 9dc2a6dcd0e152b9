"""How much a drafter reads."""

from __future__ import annotations

from typing import Any

import pytest


def rows_fed(drafter: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each forward of the drafter's own runner from now on; the list grows as it runs."""
    rows: list[int] = []
    original = drafter.runner.forward

    def counting(segments: Any, *more: Any, **options: Any) -> Any:
        rows.append(sum(len(segment) for segment in segments))
        return original(segments, *more, **options)

    monkeypatch.setattr(drafter.runner, "forward", counting)
    return rows
