"""Several drafters in order of preference: per step and request, the first that has something to say drafts, unless it
says itself that it expects less of its draft than a later one has been bringing.

An n-gram match costs nothing and is nearly always right where text repeats itself; a draft LM guesses everywhere else.
Which one drafts depends on the committed text alone, so every round follows its own rule and the law is kept.

With `graft`, both may draft at once: what the text itself suggests is grafted onto the tree of a later drafter
(`merge`), which then need not be passed over where a match is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from headstart.drafters import DraftContext, Drafter, Observation
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.types import Draft

OVERHEARD = 8
"""Tokens that a member which is passed over is asked for."""


class Cascade(Drafter):
    """Asks its members in turn; each is given its cap, or at most its own default budget. A cap of 0 passes it over.

    graft: where a member that copies from text (one that neither draws, nor reads or taps the target) has a draft, the
    next one that speaks drafts as well, and both become one tree. Two thirds of the budget are the copy's, more where
    the other may not use its third. Off, because it has not paid: on the bundled pair drafts of 5, 8 and 12 nodes bring
    between 2% fewer and 3% more tokens per target forward than the first good draft alone (temperature 0 and 0.8), and
    the later member drafts where it would have been passed over.

    A grafted draft belongs to two sources. Pacing turns single sources up and down by what their drafts bring and cost;
    told of one name it would take the other for silent or count its time as the first one's. So a cascade that grafts
    is one source, which bears its own name on all of its drafts and is paced as a whole.
    """

    def __init__(self, members: Sequence[Drafter], *, graft: bool = False) -> None:
        if not members:
            raise ValueError("a cascade needs at least one drafter")
        self.members = tuple(members)
        self.graft = graft
        self.name = " + ".join(member.name for member in members)
        self.default_budget = max(member.default_budget for member in members)
        self.taps = tuple(sorted({layer for member in members for layer in member.taps}))
        self.draws = any(member.draws for member in members)
        self.reads = any(member.reads for member in members)

    @property
    def limit(self) -> int:
        return max(member.limit for member in self.members)

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """Asked for only where it is paced as a whole: those of its first member that drafts trees by itself."""
        return next((member.sizes for member in self.members if member.sizes), ())

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return (self,) if self.graft else self.members

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        for member in self.members:
            member.attach(target, cache)

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        return self._grafted(contexts) if self.graft else self._first(contexts)

    def _first(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        """Of each request the first draft that is good enough."""
        drafts: dict[int, Draft] = {}
        weak: dict[int, Draft] = {}  # from members that say themselves that a later one should do better
        for place, member in enumerate(self.members):
            open_ = [self._capped(context, member) for context in contexts if context.request not in drafts]
            capped = [context for context in open_ if context.budget > 0]
            for context, draft in zip(capped, member.propose(capped) if capped else (), strict=True):
                if len(draft) > 0:
                    later = max((context.worth.get(m.name, 0.0) for m in self.members[place + 1 :]), default=0.0)
                    kept = drafts if draft.expected is None or draft.expected >= later else weak
                    if context.request not in kept:
                        kept[context.request] = replace(draft, source=member.name)
        found = [drafts.get(context.request) or weak.get(context.request) or Draft() for context in contexts]
        return [self._overheard(*each) for each in zip(contexts, found, strict=True)]

    def _overheard(self, context: DraftContext, draft: Draft) -> Draft:
        """The draft, with what copying members that pacing passes over would have said: asking them costs next to
        nothing, and how right they would have been tells when to give them their turn again."""
        if not len(draft):
            return draft
        passed = []
        for member in self.members:
            if context.caps.get(member.name) == 0 and _copies(member):
                (copy,) = member.propose([replace(context, budget=OVERHEARD)])
                passed.append(replace(copy, source=member.name))
        return replace(draft, passed_over=tuple(passed)) if passed else draft

    def _grafted(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        """Of each request the first copy and the first draft after it, as one tree; or the only draft there is."""
        copies: dict[int, Draft] = {}
        drafts: dict[int, Draft] = {}
        for member in self.members:
            open_, kept = [], []
            for context in contexts:
                if context.request in drafts:
                    continue
                own = self._capped(context, member)
                copied = len(copies.get(context.request, Draft()))
                keep = min(copied, max(context.budget - context.budget // 3, context.budget - own.budget))
                room = min(own.budget, context.budget - keep)
                if room > 0:
                    open_.append(replace(own, budget=room))
                    kept.append(keep)
            for context, keep, draft in zip(open_, kept, member.propose(open_) if open_ else (), strict=True):
                copy = copies.get(context.request)
                if len(draft) == 0:
                    continue
                if copy is not None:
                    drafts[context.request] = merge(draft, copy, keep)
                elif _copies(member):
                    copies[context.request] = draft
                else:
                    drafts[context.request] = draft
        found = (drafts.get(context.request) or copies.get(context.request) for context in contexts)
        return [Draft() if draft is None else replace(draft, source=self.name, expected=None) for draft in found]

    @staticmethod
    def _capped(context: DraftContext, member: Drafter) -> DraftContext:
        cap = context.caps.get(member.name, member.default_budget)
        return replace(context, budget=min(context.budget, cap))

    def observe(self, observation: Observation) -> None:
        for member in self.members:
            member.observe(observation)

    def release(self, request: int) -> None:
        for member in self.members:
            member.release(request)


def merge(draft: Draft, points: Draft, most: int) -> Draft:
    """`draft` with the point masses `points` (q None) grafted onto it: a common beginning is shared, the rest is added,
    at most `most` nodes.

    The nodes of `draft` keep their numbers and stand before what is added beside them. So each is judged as it would be
    alone, and what a graft brings comes on top: it is offered what the drawn siblings leave of the target's law. (The
    other way round a copied sibling would be struck out of the law before the drawn ones are judged, which often bear
    the same token.)

    Exact where `draft` was drawn: a node's row of q must be its law given all that is judged before it, its elder
    siblings and their subtrees. That of a drawn node stays what it was, because whatever is grafted before it depends
    on the text and on nodes before it only: a grafted chain leaves the drawn nodes at one place, and where that is, its
    path and the siblings there say. (Where a grafted tree has room in one place could depend on what it shares in
    another, so of a tree all nodes count, shared or not.) A grafted node's law is one-hot: given the nodes before it,
    it is there with its one token, or shared and not there. No siblings are given the same token here, as rule
    "coupled" wants it.
    """
    tokens, parents = list(draft.tokens), list(draft.parents)
    places: dict[tuple[int, int], int] = {}
    for node, edge in enumerate(zip(parents, tokens, strict=True)):
        places.setdefault(edge, node)
    free = draft.q is None or points.is_chain  # whether shared nodes are
    at = {-1: -1}
    for number, (token, parent) in enumerate(zip(points.tokens, points.parents, strict=True)):
        edge = at[parent], token
        counted = len(tokens) - len(draft) if free else number
        if edge not in places:
            if counted >= most:
                break
            places[edge] = len(tokens)
            tokens.append(token)
            parents.append(edge[0])
        at[number] = places[edge]
    q = draft.q
    added = tokens[len(draft) :]
    if q is not None and added:
        hot = F.one_hot(torch.tensor(added, device=q.device), q.shape[1]).to(q.dtype)
        q = torch.cat((q, hot))
    return Draft(tuple(tokens), tuple(parents), q)


def _copies(member: Drafter) -> bool:
    """Whether its drafts are point masses that come of the text alone, so that they cost next to nothing."""
    return not (member.draws or member.reads or member.taps)
