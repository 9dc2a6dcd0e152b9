"""What a bench writes down: every run with its times and counts, so that each figure can be computed again.

Nothing here computes, and nothing imports torch: a result is read on a machine that has no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

PLAIN, FAST = "plain", "speculative"
"""The two arms of every bench. A sweep has arms "K=1", "K=2", ... beside PLAIN."""


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """A prompt: its name and category, its length in tokens, and a hash by which two results know it again.

    text: only where it was asked for. form: how it was sent, see `headstart.base.prompt_sets`; "" in older files.
    """

    name: str
    category: str
    tokens: int
    digest: str
    text: str | list[int] | None = None
    form: str = ""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What one drafter did in a run: how often it drafted, with how many nodes and levels, and what was accepted."""

    drafts: int
    nodes: int
    depth: int
    accepted: int

    def __add__(self, other: SourceRecord) -> SourceRecord:
        return SourceRecord(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def added(records: Iterable[tuple[str, SourceRecord]]) -> dict[str, SourceRecord]:
    """The sum of each source's records, by its name."""
    found: dict[str, SourceRecord] = {}
    for name, each in records:
        found[name] = found[name] + each if name in found else each
    return found


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One request. Times are seconds from its submission.

    arrivals, counts: when each chunk with tokens came, and how many there were. seconds: to the last token. forwards:
    target forwards that judged one of its positions. tested[i], kept[i]: how often position i+1 was judged with all
    before it accepted, and how often it was accepted then (`Stats.drafted_per_position`). parts: its share of each
    step's seconds, by part (`Seconds`). chains: whether every draft was one. on, reason: whether speculation was
    running at the end, and if not, why not. differs_at: the first token that is not the plain run's of the same prompt
    and repetition; None where all are the same, or where they need not be. text: only where it was asked for.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    prompt: int
    seconds: float
    arrivals: tuple[float, ...]
    counts: tuple[int, ...]
    forwards: int
    prefills: int
    drafted: int
    accepted: int
    tested: tuple[int, ...]
    kept: tuple[int, ...]
    parts: Mapping[str, float]
    sources: Mapping[str, SourceRecord]
    chains: bool
    finish_reason: str
    on: bool
    drafter: str
    reason: str
    differs_at: int | None = None
    text: str | None = None

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def first(self) -> float:
        """Seconds to the first token; to the end where there was none."""
        return self.arrivals[0] if self.arrivals else self.seconds

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between one chunk and the next."""
        return tuple(later - sooner for sooner, later in zip(self.arrivals, self.arrivals[1:], strict=False))

    @property
    def seconds_per_token(self) -> float | None:
        """Time per output token after the first chunk; None where there is no token after it."""
        rest = self.tokens - self.counts[0] if self.counts else 0
        return (self.arrivals[-1] - self.arrivals[0]) / rest if rest else None


@dataclass(frozen=True, slots=True)
class Trial:
    """A unit of prompts (one, or a batch) once through one arm. seconds: wall clock, from the first submission to the
    last token, everything in it. joules: of the whole machine meanwhile, None where it does not tell."""

    arm: Annotated[str, Field(alias="lane")]
    unit: int
    repetition: int
    seconds: float
    runs: tuple[RunRecord, ...]
    joules: float | None = None

    @property
    def tokens(self) -> int:
        return sum(run.tokens for run in self.runs)


Record = dict[str, Any]
"""A JSON object."""
