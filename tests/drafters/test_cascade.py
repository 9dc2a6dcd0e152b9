"""A list of drafters: the first that has something to say drafts, within its own budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headstart.drafters import DraftContext, Drafter
from headstart.drafters.cascade import Cascade
from headstart.law import LawState
from headstart.noise import Noise, Purpose
from headstart.types import Draft, Sampling


class Counting(Drafter):
    """Drafts `token` for requests it knows; counts what it is asked."""

    def __init__(self, name: str, token: int, knows: set[int], budget: int, taps: tuple[int, ...] = ()) -> None:
        self.name, self.default_budget, self.taps = name, budget, taps
        self.token, self.knows = token, knows
        self.asked: list[tuple[int, int]] = []
        self.released: list[int] = []

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        self.asked += [(context.request, context.budget) for context in contexts]
        return [Draft.chain([self.token] * c.budget) if c.request in self.knows else Draft() for c in contexts]

    def release(self, request: int) -> None:
        self.released.append(request)


def context(request: int, budget: int) -> DraftContext:
    return DraftContext(request, [1], budget, LawState(Sampling(), (), 9, frozenset()), Noise(0), Purpose.DRAFT)


def test_preference_budgets_and_what_is_passed_on() -> None:
    first = Counting("first", 3, {0}, 4, taps=(2, 5))
    second = Counting("second", 4, {0, 1}, 6, taps=(5, 7))
    cascade = Cascade([first, second])
    assert (cascade.name, cascade.default_budget, cascade.taps) == ("first + second", 6, (2, 5, 7))
    drafts = cascade.propose([context(0, 6), context(1, 5), context(2, 6)])
    assert [draft.tokens for draft in drafts] == [(3,) * 4, (4,) * 5, ()]
    assert first.asked == [(0, 4), (1, 4), (2, 4)]
    assert second.asked == [(1, 5), (2, 6)]  # the request that has a draft costs the second nothing
    cascade.release(1)
    assert first.released == second.released == [1]


class Hopeful(Counting):
    """Says how much it expects."""

    def __init__(self, name: str, expected: float) -> None:
        super().__init__(name, 3, {0}, 4)
        self.expected = expected

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        return [replace(draft, expected=self.expected) for draft in super().propose(contexts)]


@pytest.mark.parametrize(("expected", "source"), [(1.0, "second"), (3.0, "first")])
def test_who_expects_less_than_another_brings_is_passed_over(expected: float, source: str) -> None:
    cascade = Cascade([Hopeful("first", expected), Counting("second", 4, {0}, 4)])
    (draft,) = cascade.propose([replace(context(0, 4), worth={"first": 9.0, "second": 2.0})])
    assert draft.source == source


def test_a_weak_draft_is_better_than_none() -> None:
    cascade = Cascade([Hopeful("first", 1.0), Counting("second", 4, set(), 4)])
    (draft,) = cascade.propose([replace(context(0, 4), worth={"second": 2.0})])
    assert draft.source == "first"


def test_nobody() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Cascade([])
