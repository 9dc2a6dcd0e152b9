"""What is audited, what it is held against, and what comes back: the nouns of an audit.

A subject writes texts; a reference knows, for any text, the exact law p of each of its tokens. Both speak token ids.
Shapes: n tokens of a completion, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headstart.types import Sampling, TokenLogprob

Law = NDArray[np.floating[Any]]
"""[V] probabilities, or several rows of them."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One text that a subject wrote.

    tokens: all it emitted after the prompt, the token that ended it (EOS, a stop id) included where there was one.
    finish_reason: "stop" or "length", as the subject has it.
    """

    tokens: tuple[int, ...]
    finish_reason: str
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt and how to sample after it: one cell of an audit."""

    prompt: tuple[int, ...]
    sampling: Sampling


class Subject(Protocol):
    """What is audited."""

    @property
    def name(self) -> str: ...

    def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
        """`count` independent completions of one prompt. `sampling.seed` is not used: every one has a new seed."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is, for a record: JSON values."""
        ...


@runtime_checkable
class BatchSubject(Subject, Protocol):
    """A subject that can serve different requests in one ragged batch, where neighbours may disturb each other."""

    def sample_batch(self, asks: Sequence[Ask]) -> list[Completion]:
        """One independent completion for each, in the same order."""
        ...


class Reference(Protocol):
    """What a subject's tokens should follow."""

    def laws(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Law:
        """[n + 1, V]: row i is the law p of the token after prompt + tokens[:i], after every processor."""
        ...

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        """The tokens that end a text."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is, for a record: JSON values."""
        ...


def sample_all(subject: Subject, asks: Sequence[Ask]) -> list[Completion]:
    """One completion for each ask, in their order: in one ragged batch where the subject can, else ask by ask."""
    if isinstance(subject, BatchSubject):
        return subject.sample_batch(asks)
    places: dict[int, list[int]] = {}
    for place, ask in enumerate(asks):
        places.setdefault(asks.index(ask), []).append(place)
    found: dict[int, Completion] = {}
    for first, where in places.items():
        drawn = subject.sample(asks[first].prompt, asks[first].sampling, len(where))
        found |= zip(where, drawn, strict=True)
    return [found[place] for place in range(len(asks))]
