"""Suites that others wrote: where they lie, and what is kept of their results. See tests/conformance."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("local", "gpt-6-astra", "gpt-3.5-turbo-instruct", "claude-opus-5-5", "gpt-4o-mini", "model", "model_id")
"""What the suites call the model."""
SECONDS = 900.0
"""A suite may take so long. Those that need a model ask up to a few hundred answers of it."""
Results = Mapping[str, str]
"""By case: "" where it passed, else why it did not; "skipped" where the suite left it out."""


def named(what: str) -> Path:
    """The path in HEADSTART_CONFORMANCE_<what>; the test skips where there is none."""
    variable = f"HEADSTART_CONFORMANCE_{what}"
    if not (given := os.environ.get(variable)):
        pytest.skip(f"{variable} names no path")
    return Path(given)


def expected() -> dict[str, dict[str, Any]]:
    """What this server refuses on purpose: by suite and case, the reason; of JSON schemas, the most of each verdict."""
    return tomllib.loads((Path(__file__).parents[1] / "conformance/expected.toml").read_text())
