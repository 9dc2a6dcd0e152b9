"""What a drafter is given, what it gives, and what the rule makes of it: `Budget`, `Draft`, `Verdict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import le
from typing import TYPE_CHECKING, Literal

from headstart.types.ahead import Preparation

if TYPE_CHECKING:
    import torch

Rule = Literal["exact", "coupled"]
"""What a request's drafts are judged by. Both keep the target's distribution; with "coupled" a seed has one text."""
EngineRule = Literal["auto", "exact", "coupled"]
"""What an engine judges its requests by: with "auto" those with a seed by "coupled" and all others by "exact"."""
TreeKind = Literal["none", "mixed", "top-k", "sampled"]
"""What models and heads draft: chains ("none"); dynamic trees of the likeliest nodes ("top-k"); static trees drawn
without replacement ("sampled"); or the first for greedy requests and the second for others ("mixed"). At temperature 0
both trees do about as well; above it point masses are accepted less often than drawn nodes, and a tree of them may
gain less than a drawn chain."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What a drafter with a cache of its own read of a text in one step, before it could guess."""

    source: str
    """Its name."""
    read: int
    """Tokens of its own."""
    unread: int = 0
    """Tokens of the target that it lacks still: others would have waited for them, or it waits for the target to read
    them, so there is no draft of it in this step."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree of draft tokens. A chain, an n-gram, a Medusa or EAGLE tree are all this type.

    tokens: N token ids.
    parents: parents[i] < i is the index of node i's parent, -1 for a child of the pending token x0.
    q: [N, V] float. Row i is the distribution that node i was drawn from *given its elder siblings* (so a tree sampled
        without replacement has them zeroed and the row renormalised). None if the nodes are point masses, which
        were not drawn (n-gram, suffix, top-k trees, greedy drafts).
    vocabulary: [W] int64, where the drafter can propose a part of the vocabulary only: the token of each column of q,
        which is then [N, W]. No token may be there twice. None where column i is token i.
    source: the name of the drafter it comes from. The engine fills it in where a drafter leaves it empty.
    expected: how many of its tokens the drafter expects to be accepted; None where it has no estimate.
    passed_over: what other sources would have drafted instead, to learn from what was then accepted.
    prepared: how it came about, where drafts are made ahead.
    forced: the nodes that are no guesses: after what is above them the target's distribution has no other token. The
        engine fills it in.
    caught_up: what sources that were asked had to read of the text first, where that was more than a few tokens.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: torch.Tensor | None = None
    source: str = ""
    expected: float | None = None
    passed_over: tuple[Draft, ...] = ()
    prepared: Preparation | None = None
    vocabulary: torch.Tensor | None = None
    forced: tuple[int, ...] = ()
    caught_up: tuple[CaughtUp, ...] = ()

    @classmethod
    def chain(
        cls, tokens: Sequence[int], q: torch.Tensor | None = None, vocabulary: torch.Tensor | None = None
    ) -> Draft:
        """A draft in which each token follows the one before it."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), q if tokens else None, vocabulary=vocabulary)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if any(map(le, range(len(self.parents)), self.parents)) or min(self.parents, default=-1) < -1:
            raise ValueError(f"a parent must come before its child: {self.parents}")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """depths[i]: 1 for a child of x0, 2 for its children, and so on."""
        return depths_of(self.parents)

    @property
    def guesses(self) -> int:
        """How many of its nodes are guesses."""
        return len(self.tokens) - len(self.forced)

    @property
    def guessed_levels(self) -> int:
        """The most guesses one below the other."""
        if not self.forced:
            return max(self.depths, default=0)
        certain = set(self.forced)
        depths: list[int] = []
        for node, parent in enumerate(self.parents):
            depths.append((depths[parent] if parent >= 0 else 0) + (node not in certain))
        return max(depths, default=0)

    def guesses_in(self, path: Sequence[int]) -> int:
        """How many of these nodes are guesses."""
        return len(path) - len(set(path).intersection(self.forced)) if self.forced else len(path)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """children[i + 1]: the nodes below node i in drafting order; children[0] those below x0."""
        return children_of(self.parents)

    @property
    def is_chain(self) -> bool:
        """Whether each token follows the one before it."""
        return self.parents == tuple(range(-1, len(self) - 1))

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from x0's child down to `node`, both included; () for node -1."""
        up: list[int] = []
        while node >= 0:
            up.append(node)
            node = self.parents[node]
        return tuple(reversed(up))


NO_DRAFT = Draft()
"""The draft without nodes: a drafter that has nothing to guess, and plain decoding."""


def depths_of(parents: Sequence[int]) -> tuple[int, ...]:
    """Of a tree's nodes, given their parents (-1: x0): 1 for a child of x0, 2 for its children, and so on."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return tuple(depths)


def children_of(parents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """[i + 1]: the nodes below node i, in their order; [0]: those below x0."""
    below: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        below[parent + 1].append(node)
    return tuple(tuple(nodes) for nodes in below)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many nodes one request may draft in one step."""

    nodes: int = 0
    reason: str = ""
    """Why so many, in plain words."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """By source (a drafter's name), where a drafter has several, the most nodes: one with 0 is not used, one that is
    not named may use them all, as far as its own default goes."""
    expected_gain: Mapping[str, float] = field(default_factory=dict)
    """By source, the accepted tokens that a draft of it should add, less the tokens that plain decoding would make in
    the time it takes to draft."""
    idle: str = ""
    """In a sentence, why nothing is guessed as a rule; empty where something is. A single trial does not change it."""

    def within(self, room: int) -> Budget:
        """The same, with at most `room` nodes and never less than none."""
        nodes = max(0, min(self.nodes, room))
        return self if nodes == self.nodes else replace(self, nodes=nodes)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rule's decision on a draft.

    path: the accepted nodes, in order from the root.
    bonus: the id of the token after them: the correction of a refused guess, or one more token.
    """

    path: tuple[int, ...]
    bonus: int

    @property
    def accepted(self) -> int:
        """How many nodes were accepted."""
        return len(self.path)
