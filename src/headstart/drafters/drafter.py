"""The drafter protocol: `Drafter`, with the five members that an author must know, and what it observes.

A drafter drafts (`propose`), learns what became of its draft (`observe`) and forgets a request (`release`). It may be
wrong, slow or raise: the rule keeps the distribution, and the engine goes on alone. What a drafter can do beyond that,
such as reading hidden states or drafting ahead, is a capability (`headstart.drafters.capabilities`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headstart.types import NO_DRAFT, Draft, Step

if TYPE_CHECKING:
    from torch import Tensor

    from headstart.rule.distributions import Distributions
    from headstart.rule.row import Row


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What one step made of one request."""

    step: Step
    """The event."""
    tokens: tuple[int, ...] = ()
    """The tokens whose keys and values the target's cache gained in this step."""
    start: int = 0
    """The position of the first of them. With `prefix_cache` it may be larger than the number of tokens that the
    drafter has seen of the request: the cache already held the text before it. The last token of that text is read
    again, so that its hidden states are shown."""
    hidden: Mapping[int, Tensor] = field(default_factory=dict)
    """The hidden states [len(tokens), d] of those tokens, by layer that the drafter taps (transformers' numbering: i is
    layer i's input)."""
    row: Row | None = None
    """The request as it was before the step; None where it ended between steps."""
    distributions: Distributions | None = None
    """The target's distributions after x0 and after every node of the draft, accepted or not; None where nothing was
    judged."""


class Drafter(ABC):
    """Base class of drafters: proposes the next tokens of each request in each step.

    A subclass defines `name`, `default_budget` and `propose`. It may define `observe` and `release`, which do nothing
    here.

    name: its name in statistics, traces and `Budget.max_nodes`. No two drafters of a list may share one.
    default_budget: K, the nodes of a draft if the user chooses no other number.

    Examples:
        >>> import headstart as hs
        >>> from headstart.drafters import Drafter
        >>> class Repeat(Drafter):
        ...     name = "repeat"
        ...     default_budget = 2
        ...     def propose(self, rows):
        ...         return [hs.Draft.chain(row.tokens[-1:] * row.budget.nodes) for row in rows]
        >>> engine = hs.load("bundled", Repeat(), dtype="float32")
        >>> len(engine.generate("x = 0", hs.Sampling(max_tokens=8)).tokens)
        8
    """

    name: str
    default_budget: int

    @abstractmethod
    def propose(self, rows: Sequence[Row]) -> Sequence[Draft]:
        """Guess the next tokens of each request.

        Args:
            rows: the requests that may draft in this step: their tokens, sampling and budget.

        Returns:
            A draft for each row, in order, with at most `row.budget.nodes` nodes; `Draft()` where there is no guess. If
            it raises, the requests go on without this drafter, and `Stats.speculation` says why.
        """

    def observe(self, observation: Observation) -> None:  # noqa: B027 -- a drafter need not learn
        """Learn what a step made of a request: what was accepted and, of layers that it taps, the hidden states. The
        default does nothing."""

    def release(self, request: int) -> None:  # noqa: B027 -- a drafter need not keep anything
        """Forget a request. It is called once when the request ends, also for requests never proposed for."""


class NoDrafter(Drafter):
    """Plain decoding: every draft is empty."""

    name = "none"
    default_budget = 0
    draws = False
    parts: tuple[Drafter, ...] = ()

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [NO_DRAFT] * len(rows)
