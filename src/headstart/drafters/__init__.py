"""The drafter protocol. A drafter is one file in this package; nothing else needs to know it.

A drafter guesses (`propose`), is told what became of it (`observe`) and forgets (`release`). It may be wrong, slow
or raise: the rule keeps the law, and the engine goes on alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.rule.law import LawState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Draft, Step


@dataclass(frozen=True, slots=True)
class DraftContext:
    """One request as a drafter sees it.

    tokens: all committed tokens, the pending x0 last; read only. budget: how many nodes the draft may have.
    law: the processors of the request, for drafters that sample from a law of their own. purpose: whose noise a
    draft is drawn with; under rule "coupled" it is the target's own. caps and worth: what `budget` is to single
    sources, and what their drafts should bring, for a drafter made of several (see `Budget`). salt: only requests of
    the same salt may share what they teach.
    alone: a seed promises this request's text, which depends on its drafts: they may depend on no other request.
    slot: where the target's cache holds the request (see `Drafter.attach`).
    """

    request: int
    tokens: Sequence[int]
    budget: int
    law: LawState
    noise: Noise
    purpose: Purpose
    caps: Mapping[str, int] = field(default_factory=dict)
    salt: str = ""
    slot: int = 0
    worth: Mapping[str, float] = field(default_factory=dict)
    alone: bool = False

    def draw(self, q: NDArray[Any], depth: int) -> int:
        """Draw the draft token `depth` places after the first (0-based) from q [V]."""
        start = len(self.tokens)
        lane = start if self.purpose is Purpose.DRAFT else 0
        return self.noise.draw(q, start + depth, self.purpose, lane)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one step made of a request: the event, the tokens whose keys and values the target now holds, and the
    hidden states [len(tokens), d] of the layers the drafter taps (transformers' numbering: i is layer i's input).
    said: where the drafter `reads`, the likeliest token after x0 and after every node of the draft, accepted or not."""

    step: Step
    tokens: tuple[int, ...]
    hidden: Mapping[int, Tensor]
    said: tuple[int, ...] = ()


class Drafter(Protocol):
    """What the engine asks of a drafter. Subclass it to inherit all but `name`, `default_budget` and `propose`.

    default_budget: nodes per draft where nobody chooses. draws: whether nodes may be drawn from a law (`Draft.q`);
    point masses leave a seed's text alone, whatever their number. reads: whether it wants `Observation.said`.
    """

    name: str
    default_budget: int
    taps: tuple[int, ...] = ()
    draws: bool = True
    reads: bool = False

    @property
    def limit(self) -> int:
        """The most nodes worth asking for, where guesses cost next to nothing and are always right."""
        return self.default_budget

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """(nodes, depth) of the trees it can draft, fewest nodes first and not beyond `limit`: a budget of so many
        nodes buys so many levels. Where there are several, siblings must stand in order of likelihood: pacing then
        learns what breadth brings from the ranks of accepted nodes. Empty for a drafter of chains, which have any
        length up to `limit`."""
        return ()

    @property
    def parts(self) -> tuple[Drafter, ...]:
        """The drafters this one is made of, in the order in which it asks them; each can be paced by itself."""
        return (self,)

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        """Told once, before anything else, whom it drafts for. A drafter may read the keys and values of a request's
        slot, and use what lies beyond its length as scratch between two steps."""
        return

    def propose(self, contexts: Sequence[DraftContext]) -> Sequence[Draft]:
        """One draft for each context, at most `budget` nodes each; `Draft()` where there is nothing to guess."""
        ...

    def observe(self, observation: Observation) -> None:
        """Learn what a step made of a request."""
        return

    def release(self, request: int) -> None:
        """Forget a request; called once when it ends, also for requests never proposed for."""
        return
