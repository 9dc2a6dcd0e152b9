"""What the steps of one choice add up to, beside the engine's own `Stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headstart.serve.names import public_name
from headstart.types import Chunk, Step

PREDICTION = "prediction"
"""The source of drafts that were taken from a request's predicted output."""


@dataclass(slots=True)
class Counts:
    """One choice's drafts, step by step. Steps are counted and let go: a draft may hold large tensors."""

    accepted: list[int] = field(default_factory=list)
    """Of each step that judged a draft, the tokens accepted."""
    drafted: list[int] = field(default_factory=list)
    """Of the same steps, the tokens drafted."""
    tokens: int = 0
    """Tokens written so far."""
    sources: Counter[str] = field(default_factory=Counter)
    """Accepted tokens by the drafter they came from."""
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    """Tokens of the prediction that were judged and refused; those behind a refused one were not judged."""

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Count the steps behind these chunks."""
        for chunk in chunks:
            self._add(chunk.step)

    def _add(self, step: Step) -> None:
        self.tokens += len(step.tokens)
        if not len(step.draft) or not step.tokens:
            return
        self.accepted.append(step.accepted)
        self.drafted.append(len(step.draft))
        self.sources[public_name(step.draft.source)] += step.accepted
        if step.draft.source == PREDICTION:
            self.predicted_accepted += step.accepted
            self.predicted_rejected += len(step.path) < max(step.draft.depths)

    @property
    def histogram(self) -> list[int]:
        """[j]: the steps that accepted exactly j tokens."""
        found = Counter(self.accepted)
        return [found[j] for j in range(max(found, default=-1) + 1)]
