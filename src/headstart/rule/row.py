"""`Row`: one request's part in one step, as pacing, drafter and forward see it. A value: it holds no live state."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from numpy.typing import NDArray

from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Budget, Drafting, Rule, Sampling


@dataclass(frozen=True, slots=True)
class Row:
    """One request in one step.

    Its tokens are a copy, so that a row can be kept, compared, or sent to another thread or process.
    """

    request: int
    """The request's number, by which drafter and pacing keep what they know of it."""
    tokens: tuple[int, ...]
    """All committed tokens; the last one is x0, the pending token."""
    prompt_tokens: int = field(default=0, kw_only=True)
    """How many of them are the prompt's."""
    unsettled: int = field(default=0, kw_only=True)
    """How many of the last tokens have not come yet: a grammar leaves no other, or a stack's model wrote them."""
    sampling_state: SamplingState
    """The request's sampling processors, for drafters that draw from a distribution of their own."""
    noise: Noise
    """The request's noise."""
    purpose: Purpose = Purpose.DRAFT
    """Whose noise a draft is drawn with; under rule "coupled" it is the target's own."""
    reproducible: bool = False
    """A seed promises this request's text, and the text depends on its drafts: they may depend on nothing but the
    request itself and what was known when the engine was loaded, so neither on clocks nor on other requests."""
    slot: int = 0
    """Where the target's cache holds the request (see `Drafter.attach`)."""
    feed: tuple[int, ...] = ()
    """The committed tokens that the step's forward reads: those that are not in the cache, up to x0 or a part."""
    judged: bool = True
    """Whether the forward reaches x0, so that tokens come of it. False for a chunk of a long prompt."""
    drafting: Drafting = field(default_factory=Drafting)
    """What the request says about its drafts; the same in every row of the request."""
    reading: int | None = None
    """Tokens that a drafter may read in this step, of all rows' texts together, to catch up with them: other requests
    wait meanwhile. A text of which it lacks a few tokens does not count, and one of which it lacks more than it may
    read has no draft of it in this step. None where it may read all that it lacks."""
    room: int = 0
    """The most draft tokens that could be of use; 0 where the request may not draft."""
    left: int | None = None
    """The most tokens that the text may still get; None is `room` + 1. Pacing spreads the reading of a text over all
    drafts that may follow, however little one step may draft."""
    budget: Budget = field(default_factory=Budget)
    """How much may be drafted. Pacing decides it, so it is empty in the rows that pacing is given."""

    @property
    def rule(self) -> Rule:
        """What its drafts are judged by."""
        return "coupled" if self.purpose is Purpose.TOKEN else "exact"

    @property
    def sampling(self) -> Sampling:
        return self.sampling_state.sampling

    def with_budget(self, budget: Budget) -> Row:
        """The same row with this budget: `dataclasses.replace` in half the time, for every row of every step."""
        row = object.__new__(Row)
        for name in _FIELDS:
            object.__setattr__(row, name, getattr(self, name))
        object.__setattr__(row, "budget", budget)
        return row

    def draw(self, q: NDArray[Any], depth: int, vocabulary: PartialVocabulary | None = None) -> int:
        """Draw the draft token `depth` places after the first (0-based) from the distribution q [V].

        vocabulary: that of q's columns, where it is a part of the target's. A draft's own noise belongs to columns; the
        target's, which rule "coupled" draws with, to tokens."""
        start = len(self.tokens)
        if self.purpose is Purpose.DRAFT:
            column = self.noise.draw(q, start + depth, Purpose.DRAFT, start)
            return column if vocabulary is None else vocabulary.tokens[column]
        if vocabulary is not None:
            drawn = self.noise.first(q, start + depth, self.purpose, 0, 1, vocabulary.numbers)
            if drawn:
                return vocabulary.tokens[drawn[0]]
            q = vocabulary.spread(q, 0)  # of NaN
        return self.noise.draw(q, start + depth, self.purpose)


_FIELDS = tuple(each.name for each in fields(Row) if each.name != "budget")
