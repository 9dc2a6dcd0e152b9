"""Several drafters in order of preference: per step and request, the first that has something to say drafts, unless it
says itself that it expects less of its draft than a later one has been bringing.

An n-gram match costs nothing and is nearly always right where text repeats itself; a draft LM guesses everywhere else.
Which one drafts depends on the committed text alone, so every round follows its own rule and the law is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.drafters import DraftContext, Drafter, Observation
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.types import Draft


class Cascade(Drafter):
    """Asks its members in turn; each is given its cap, or at most its own default budget. A cap of 0 passes it over."""

    def __init__(self, members: Sequence[Drafter]) -> None:
        if not members:
            raise ValueError("a cascade needs at least one drafter")
        self.members = tuple(members)
        self.name = " + ".join(member.name for member in members)
        self.default_budget = max(member.default_budget for member in members)
        self.taps = tuple(sorted({layer for member in members for layer in member.taps}))
        self.draws = any(member.draws for member in members)
        self.reads = any(member.reads for member in members)

    @property
    def limit(self) -> int:
        return max(member.limit for member in self.members)

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return self.members

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        for member in self.members:
            member.attach(target, cache)

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
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
        return [drafts.get(context.request) or weak.get(context.request) or Draft() for context in contexts]

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
