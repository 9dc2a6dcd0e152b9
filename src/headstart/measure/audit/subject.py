"""What is audited, what it is held against, and what comes back: the nouns of an audit.

A subject writes texts; a reference knows, for any text, the exact distribution p of each of its tokens. Both use token
ids.
Shapes: n tokens of a completion, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import EndpointFailed
from headstart.types import Sampling, TokenLogprob

Distribution = NDArray[np.floating[Any]]
"""[V] probabilities, or several rows of them."""
Verdict = Literal["lossless", "not lossless", "undecided"]
CUT = "cut"
"""The finish_reason of a completion whose rest is not known, because its last token could be one of several."""


class Refused(EndpointFailed):
    """A server answered with an HTTP error, whose number is `status`: it does not take this request."""

    def __init__(self, message: str, *, hint: str, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Progress(Protocol):
    """Called as an audit proceeds, with the part, how much of it is done, of how much, and its state in words."""

    def __call__(self, part: str, done: int, most: int, words: str = "") -> None: ...


def no_progress(part: str, done: int, most: int, words: str = "") -> None:
    """The `Progress` of a caller who does not ask for any."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One text that a subject wrote.

    tokens: everything it emitted after the prompt, with the token that ended it (EOS, a stop id) if there was one.
    finish_reason: "stop" or "length" as the subject reports it, or `CUT`.
    """

    tokens: tuple[int, ...]
    finish_reason: str
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt, and how to sample after it."""

    prompt: tuple[int, ...]
    sampling: Sampling


class Subject(Protocol):
    """What is audited."""

    @property
    def name(self) -> str: ...

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        """One independent completion for each ask, in the same order and each with a new seed: `sampling.seed` is not
        used. Where the subject can, they are served in ragged batches, in which neighbours may disturb each other."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values for a record."""
        ...


class Reference(Protocol):
    """What a subject's tokens should follow."""

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Distribution:
        """[n + 1, V]: row i is the distribution p of the token after prompt + tokens[:i], after every processor."""
        ...

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        """The tokens that end a text."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values for a record."""
        ...


def up_to_end(tokens: tuple[int, ...], stop_ids: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to the first that ends a text, that one included."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in stop_ids), tokens)
