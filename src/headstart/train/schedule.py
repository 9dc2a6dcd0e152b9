"""How far a run has come, the learning rate there, and what its time went into.

The rate has a short warm-up, a plateau, and a straight line down to zero. The phases of a run (writing texts, reading
states, training, measuring) are counted over all processes that it was stopped into.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.base.files import replacing


@dataclass(frozen=True)
class Budget:
    """A run ends after so many optimiser steps or so many minutes of training, whichever is given."""

    steps: int | None = None
    minutes: float | None = None

    def progress(self, steps: int, seconds: float) -> float:
        """Share of the budget that is spent, from 0 to 1."""
        spent = steps / self.steps if self.steps is not None else seconds / (60 * (self.minutes or 1e-9))
        return min(1.0, spent)


def rate(progress: float, steps: int, *, warmup: int = 50, plateau: float = 0.4) -> float:
    """Factor on the learning rate. The decay is tied to the budget, so that it reaches zero exactly at the end."""
    return min(1.0, (steps + 1) / warmup, (1 - progress) / (1 - plateau))


class Clock:
    """Seconds of training, counted on from those of the runs before a resume."""

    def __init__(self, before: float = 0.0) -> None:
        self._origin = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._origin


Work = Literal["writing", "reading", "training", "measuring"]


@dataclass(slots=True)
class Phase:
    """One kind of work, over all runs that one run was stopped into."""

    seconds: float = 0.0
    tokens: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class Phases:
    """The phases of a run; time is counted for the innermost that is open.

    file: where they are kept between runs.
    """

    file: Path
    found: dict[str, Phase] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path) -> Phases:
        """Those of a run that was stopped, or none yet."""
        stored = json.loads(file.read_text()) if file.exists() else {}
        return cls(file, {name: Phase(**values) for name, values in stored.items()})

    def __post_init__(self) -> None:
        self._open: list[Work] = []
        self._since = time.monotonic()

    def __getitem__(self, work: Work) -> Phase:
        """What has been counted of it."""
        self._charge()
        return self.found.setdefault(work, Phase())

    @contextmanager
    def doing(self, work: Work) -> Iterator[Phase]:
        """Count time for this work until the block ends, however it ends; the block counts the tokens."""
        self._charge()
        self._open.append(work)
        try:
            yield self.found.setdefault(work, Phase())
        finally:
            self._charge()
            self._open.pop()
            self.save()

    def save(self) -> None:
        """Write what is counted, where a run that is resumed finds it."""
        self._charge()
        if self.file.parent.is_dir():  # claimed by this run
            with replacing(self.file) as partial:
                partial.write_text(json.dumps({name: asdict(phase) for name, phase in self.found.items()}) + "\n")

    def record(self) -> dict[str, dict[str, Any]]:
        """For the provenance: seconds, tokens and tokens per second of each."""
        return {
            name: {
                "seconds": round(phase.seconds, 1),
                "tokens": phase.tokens,
                "tokens_per_second": round(phase.rate, 1),
            }
            for name, phase in self.found.items()
        }

    def _charge(self) -> None:
        now = time.monotonic()
        if self._open:
            self.found.setdefault(self._open[-1], Phase()).seconds += now - self._since
        self._since = now


def in_words(phases: Mapping[Any, Phase]) -> str:
    """One line for people."""
    return ", ".join(
        f"{name} {phase.tokens:,} tokens in {phase.seconds:.0f} s ({phase.rate:.0f}/s)"
        for name, phase in phases.items()
        if phase.tokens
    )
