"""The drafter protocol. A drafter is one file in this package; nothing else needs to know it.

A drafter drafts (`propose`), learns what became of its draft (`observe`) and forgets a request (`release`). It may be
wrong, slow or raise: the rule keeps the distribution, and the engine goes on alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.rule.distributions import Distributions
from headstart.rule.row import Row
from headstart.types import Draft, Step

__all__ = [
    "KINDS",
    "BuildContext",
    "Drafter",
    "FanOut",
    "Foreseen",
    "Foresight",
    "NoDrafter",
    "Observation",
    "Row",
    "Weights",
    "may_draft",
    "module_of",
]

KINDS = {
    "prediction": "prediction",
    "ngram": "ngram",
    "suffix": "suffix",
    "early-exit": "early_exit",
    "exit": "trained_exit",
    "lookahead": "lookahead",
    "medusa": "medusa",
    "eagle": "eagle",
    "dflash": "dflash",
    "draft": "draft_model",
    "translated": "translated",
}
"""The kinds of drafters that can be asked for, and the file of each. The file defines

WEIGHTS: what the drafter reads (see `Weights`). One without weights is asked for by the name of its kind.
recognises(folder): whether a directory, by its config, holds a drafter of this kind (only where WEIGHTS is "head").
build(context): the drafter, from a `BuildContext`.
"""

Weights = Literal["none", "head", "model"]
"""What a drafter is made of: nothing, a head of the target that has files of its own, or a causal LM."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What one step made of one request."""

    step: Step
    """The event."""
    tokens: tuple[int, ...] = ()
    """The tokens whose keys and values the target's cache gained in this step."""
    start: int = 0
    """The position of the first of them. Where it is beyond all that a drafter was shown of the request, the cache
    already held the text before it, and one token more: that is read again, so that its hidden states are shown."""
    hidden: Mapping[int, Tensor] = field(default_factory=dict)
    """The hidden states [len(tokens), d] of those tokens, by layer that the drafter taps (transformers' numbering: i is
    layer i's input)."""
    row: Row | None = None
    """The request as it was before the step; None where it ended between steps."""
    distributions: Distributions | None = None
    """The target's distributions after x0 and after every node of the draft, accepted or not; None where nothing was
    judged."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What became of foreseeing one request's round."""

    draft: Draft | None = None
    """The draft that was ready for what came; None for a miss."""
    last: Draft | None = None
    """The draft that was judged in the round; None where nothing was foreseen."""
    node: int | None = None
    """Its node after which nothing was accepted, -1 for x0; None where the text went on in another way."""
    rank: int | None = None
    """The place of the bonus token among the likeliest ones after that node, from 0; None if it was not among them."""
    branches: int = 0
    """Outcomes for which drafts were being made."""


class FanOut(Protocol):
    """Says for how many outcomes drafts are to be made ahead."""

    def fan_outs(self, draft: Draft) -> Sequence[int]:
        """[N + 1]: how many bonus tokens to foresee after x0, and after each node."""
        ...


class Foresight(Protocol):
    """Drafts in the making for what a round may come to."""

    def advance(self) -> bool:
        """Run one forward; returns whether there is more to do."""
        ...

    def take(self, rows: Sequence[Row], *, partial: bool) -> Sequence[Foreseen]:
        """What was foreseen of these rows, the next of their requests. A draft found is the one that the drafter would
        make now, to the token and, where its forward is width-invariant, to the bit of its distributions. Where it has
        been drawn in part, the rest is drawn now; with `partial` it is a shorter draft instead, but never of a
        reproducible row, whose text must not depend on a clock. To be called once, and last."""
        ...

    def forget(self, request: int) -> None:
        """A request has ended."""
        ...


class Drafter(Protocol):
    """What the engine asks of a drafter. Subclass it to inherit all but `name`, `default_budget` and `propose`."""

    name: str
    default_budget: int
    """Nodes per draft where nobody chooses."""
    taps: tuple[int, ...] = ()
    """Layers of the target whose inputs it wants to be shown."""
    draws: bool = True
    """Whether nodes may be drawn from a distribution (`Draft.q`). Point masses leave a seed's text alone, whatever
    their number."""
    copies: bool = False
    """Whether its drafts are copied from text: asking for one costs next to nothing and changes nothing."""

    can_foresee: bool = False
    """Whether it can draft ahead: see `foresee`."""

    @property
    def limit(self) -> int:
        """The most nodes that could pay, where guesses cost next to nothing and are always right."""
        return self.default_budget

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """(nodes, depth) of the trees it can draft, fewest nodes first and not beyond `limit`: a budget of so many
        nodes buys so many levels. Where there are several, siblings must come in order of likelihood: pacing then
        learns what breadth gains from the ranks of accepted nodes. Empty for a drafter of chains, which have any
        length up to `limit`."""
        return ()

    @property
    def parts(self) -> tuple[Drafter, ...]:
        """The drafters this one is made of, in the order in which it asks them; each can be paced by itself."""
        return (self,)

    @property
    def in_turn(self) -> Drafter:
        """The drafter that makes the same drafts while the target waits: what drafting costs is measured on it."""
        return self

    def weights(self) -> Iterable[Tensor]:
        """The tensors of its weights; some may be the target's."""
        return ()

    @property
    def weights_in_words(self) -> str:
        """What its own weights are, for people: "bfloat16", "4-bit codes". Empty where it has none."""
        return ""

    def applies(self, row: Row) -> bool:
        """Whether it could draft for this request at all, by what the request says of itself: the answer is the same
        for all rows of a request. Where it could not, `propose` is not called, and pacing does not count on it."""
        return True

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        """Take the target that it drafts for; called once, before anything else. A drafter may read the keys and
        values of a request's slot, and use what lies beyond its length as scratch between two steps."""
        return

    def propose(self, rows: Sequence[Row]) -> Sequence[Draft]:
        """One draft for each row, at most `row.budget.nodes` nodes each; `Draft()` where there is nothing to guess."""
        ...

    def foresee(self, rows: Sequence[Row], drafts: Sequence[Draft], fan_out: FanOut) -> Foresight:
        """Begin to draft for what the round may come to in which `drafts`, just proposed for `rows`, are judged. Only
        where `can_foresee`; nothing else may be asked of the drafter until the foresight has been taken or dropped."""
        raise InvalidOption(f"{self.name} cannot draft ahead", hint="draft models and early exit can")

    def observe(self, observation: Observation) -> None:
        """Learn what a step made of a request."""
        return

    def release(self, request: int) -> None:
        """Forget a request; called once when it ends, also for requests never proposed for."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a drafter is built with."""

    target: ModelRunner
    target_source: str
    """The directory or hub id of the target."""
    target_tokenizer: Any
    sample: Sequence[int]
    """A few tokens to begin a text with."""
    slots: int
    """Requests that run at once."""
    name: str = ""
    """How the user named it."""
    source: str | Path = ""
    """The directory or hub id of its weights; empty where it has none."""
    apart: bool = False
    """Whether it is to run beside the target, so that it may not touch the target's cache."""
    last: bool = True
    """Whether no other drafter stands behind it in a list."""
    budget: int | None = None
    """Nodes of a draft where nobody chooses; None is the drafter's own default."""
    tree: Any = None
    """The kind of tree that the user asked for; None is the drafter's own default."""
    residual: Any = None
    """What drawn tokens are to leave to the target (see `growing.residual`), if anything."""
    quantize: str | None = None
    """For its weights: None, "int8", or "auto" where that is faster."""
    store: Any = None
    """Past outputs (a `SuffixStore`) that it may look into, or None."""
    draft: ModelRunner | None = None
    """Where WEIGHTS is "model", the model."""
    draft_tokenizer: Any = None

    def given(self, *names: str) -> dict[str, Any]:
        """Of these options, those that the user gave."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def may_draft(drafter: Drafter, row: Row) -> bool:
    """Whether a drafter is to be asked for a request: the request does not leave it out, and it applies."""
    sources = row.drafting.sources
    return (sources is None or drafter.name in sources) and drafter.applies(row)


def module_of(kind: str) -> ModuleType:
    """The file of a kind of drafter; it defines what `KINDS` lists."""
    return import_module(f"headstart.drafters.{KINDS[kind]}")


class NoDrafter(Drafter):
    """Plain decoding: every draft is empty."""

    name = "none"
    default_budget = 0
    draws = False

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return ()

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft()] * len(rows)
