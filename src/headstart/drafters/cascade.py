"""Several drafters in order of preference: per step and request, the first that has a draft drafts, unless it expects
less of its draft than a later one has been bringing.

An n-gram match costs nothing and is nearly always right where text repeats itself; a draft LM guesses everywhere else.
Which one drafts depends on the committed text alone, so every round follows its own rule and the distribution is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headstart.drafters import Drafter, Observation, Row, capabilities, may_draft
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.types import Budget, CaughtUp, Draft

PASSED_OVER = 8
"""Tokens that a member drafts which pacing passes over, only to learn how right it would have been."""


class Cascade(Drafter):
    """Asks its members in turn; each may draft what the budget allows it, or at most its own default budget."""

    def __init__(self, members: Sequence[Drafter]) -> None:
        if not members:
            raise ValueError("a cascade needs at least one drafter")
        self.members = tuple(members)
        self.name = " + ".join(member.name for member in members)
        self.default_budget = max(member.default_budget for member in members)
        self.taps = tuple(sorted({layer for member in members for layer in capabilities.taps(member)}))
        self.draws = any(capabilities.draws(member) for member in members)
        self._copying = tuple(member for member in members if capabilities.copies(member))

    @property
    def limit(self) -> int:
        return max(capabilities.limit(member) for member in self.members)

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return self.members

    def applies(self, row: Row) -> bool:
        return any(may_draft(member, row) for member in self.members)

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        for member in self.members:
            capabilities.attach(member, target, cache)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        """Of each request the first draft that is good enough, else the first of all."""
        good: dict[int, Draft] = {}
        weak: dict[int, Draft] = {}  # from members that expect a later one to do better
        caught_up: dict[int, tuple[CaughtUp, ...]] = {}
        read = 0  # of what may be read, by earlier members
        for place, member in enumerate(self.members):
            limited = [_limited(row, member, read) for row in rows if row.request not in good]
            asked = [row for row in limited if row.budget.nodes > 0 and may_draft(member, row)]
            for row, draft in self._of(member, asked):
                if draft.caught_up:
                    own = tuple([replace(each, source=member.name) for each in draft.caught_up])
                    caught_up[row.request] = caught_up.get(row.request, ()) + own
                    if row.reading is not None:
                        read += sum(each.read for each in own)
                if len(draft) > 0:
                    gains = row.budget.expected_gain
                    later = max((gains.get(each.name, 0.0) for each in self.members[place + 1 :]), default=0.0)
                    kept = good if draft.expected is None or draft.expected >= later else weak
                    kept.setdefault(row.request, replace(draft, source=member.name))
        found = [good.get(row.request) or weak.get(row.request) or Draft() for row in rows]
        drafts = [self._with_passed_over(*each) for each in zip(rows, found, strict=True)]
        if not caught_up:
            return drafts
        return [
            replace(draft, caught_up=caught_up.get(row.request, ())) for row, draft in zip(rows, drafts, strict=True)
        ]

    def _of(self, member: Drafter, rows: Sequence[Row]) -> Iterator[tuple[Row, Draft]]:
        """What a member drafts for those of these rows that it can be asked for. Where a row ends with tokens that have
        not come, that is a member that reads them, or one that copies and does not take them for text."""
        asked = [row for row in rows if not row.unsettled or capabilities.reads_unsettled(member)]
        yield from zip(asked, member.propose(asked) if asked else (), strict=True)
        if member in self._copying:
            for row in rows:
                if row.unsettled and not capabilities.reads_unsettled(member):
                    yield row, _beyond(member, row, (), row.budget.nodes)

    def beyond(self, row: Row, tokens: Sequence[int], most: int) -> Draft:
        """The first guess of a copying member that may draft at all."""
        for member in self._copying:
            nodes = min(most, _limited(row, member).budget.nodes)
            if nodes > 0 and may_draft(member, row) and len(found := _beyond(member, row, tokens, nodes)):
                return replace(found, source=member.name)
        return Draft()

    def _with_passed_over(self, row: Row, draft: Draft) -> Draft:
        """The draft, with what copying members that pacing passes over would have drafted: their acceptance shows when
        they should draft again."""
        if not len(draft) or row.unsettled:
            return draft
        passed = []
        for member in self._copying:
            if row.budget.max_nodes.get(member.name) == 0 and may_draft(member, row):
                (copy,) = member.propose([row.with_budget(Budget(PASSED_OVER))])
                passed.append(replace(copy, source=member.name))
        return replace(draft, passed_over=tuple(passed)) if passed else draft

    def observe(self, observation: Observation) -> None:
        for member in self.members:
            member.observe(observation)

    def release(self, request: int) -> None:
        for member in self.members:
            member.release(request)


def _beyond(member: Drafter, row: Row, tokens: Sequence[int], most: int) -> Draft:
    """What a copying member guesses after the row's text and these tokens; those that have not come are no text."""
    if row.unsettled:
        tokens = (*row.tokens[-row.unsettled :], *tokens)
        row = replace(row, tokens=row.tokens[: -row.unsettled], unsettled=0)
    return capabilities.beyond(member, row, tokens, most)


def _limited(row: Row, member: Drafter, read: int = 0) -> Row:
    """The row with the budget that this member has of it, and what others that have read so many tokens leave it."""
    if read and row.reading is not None:
        row = replace(row, reading=max(0, row.reading - read))
    return row.with_budget(row.budget.within(row.budget.max_nodes.get(member.name, member.default_budget)))
