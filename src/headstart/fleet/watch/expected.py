"""What acceptance should be: as an export's manifest has measured it, or as another watch has learnt it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.drift import Baseline

_HINT = "give the folder of 'headstart export', its manifest.json, or none: then watch learns what is normal"


@dataclass(frozen=True, slots=True)
class Expectation:
    """Of one export. The figures were measured on its prompts, which may be other text than the traffic."""

    folder: Path
    tokens_per_forward: float | None = None
    low: float | None = None
    """The lower end of its interval."""
    high: float | None = None
    positions: tuple[Mapping[str, Any], ...] = ()
    depth: int | None = None
    draft_cost: float | None = None
    """What drafting a token costs, in plain steps."""
    target: str = ""
    drafter: Mapping[str, Any] = field(default_factory=dict)

    @property
    def baseline(self) -> Baseline:
        """For the detector: drafts of the export's fixed length."""
        known = [each for each in self.positions if None not in (each.get("low"), each.get("high"))]
        return Baseline.of(known, depth=self.depth)


def read_expectation(path: Path) -> Expectation:
    """From an export's folder or its manifest.json.

    Raises:
        InvalidFile: there is none, or it is no manifest of this version.
    """
    file = path / "manifest.json" if path.is_dir() else path
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{file} cannot be read as a manifest: {error}", hint=_HINT) from error
    if not isinstance(manifest, dict) or manifest.get("headstart_export") != 1:
        raise InvalidFile(f"{file} is no manifest of an export of version 1", hint=_HINT)
    expected = manifest.get("expected") or {}
    figure = expected.get("tokens_per_forward") or {}
    try:
        return Expectation(
            folder=file.parent,
            tokens_per_forward=figure.get("value"),
            low=figure.get("low"),
            high=figure.get("high"),
            positions=tuple(expected.get("by_position") or ()),
            depth=manifest.get("depth"),
            draft_cost=(manifest.get("costs") or {}).get("c"),
            target=str(manifest["target"]["name"]),
            drafter=dict(manifest["drafter"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(f"{file} lacks a part of a manifest: {error}", hint=_HINT) from error
