"""A list of drafters: the first that has something to say drafts, within its own budget; or two drafts are one tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headstart.drafters import Drafter, Row
from headstart.drafters.cascade import Cascade
from headstart.drafters.forced import as_if_come
from headstart.drafters.ngram import NgramDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling


class Counting(Drafter):
    """Drafts `token` for requests it knows; counts what it is asked."""

    def __init__(self, name: str, token: int, knows: set[int], budget: int, taps: tuple[int, ...] = ()) -> None:
        self.name, self.default_budget, self.taps = name, budget, taps
        self.token, self.knows = token, knows
        self.asked: list[tuple[int, int]] = []
        self.released: list[int] = []

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        self.asked += [(context.request, context.budget.nodes) for context in contexts]
        return [Draft.chain([self.token] * c.budget.nodes) if c.request in self.knows else Draft() for c in contexts]

    def release(self, request: int) -> None:
        self.released.append(request)


def context(request: int, budget: int) -> Row:
    return Row(request, (1,), SamplingState(Sampling(), (), 9, frozenset()), Noise(0), budget=Budget(budget))


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

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        return [replace(draft, expected=self.expected) for draft in super().propose(contexts)]


@pytest.mark.parametrize(("expected", "source"), [(1.0, "second"), (3.0, "first")])
def test_who_expects_less_than_another_brings_is_passed_over(expected: float, source: str) -> None:
    cascade = Cascade([Hopeful("first", expected), Counting("second", 4, {0}, 4)])
    (draft,) = cascade.propose([replace(context(0, 4), budget=Budget(4, expected_gain={"first": 9.0, "second": 2.0}))])
    assert draft.source == source


def test_a_weak_draft_is_better_than_none() -> None:
    cascade = Cascade([Hopeful("first", 1.0), Counting("second", 4, set(), 4)])
    (draft,) = cascade.propose([replace(context(0, 4), budget=Budget(4, expected_gain={"second": 2.0}))])
    assert draft.source == "first"


def test_nobody() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Cascade([])


def test_what_a_copying_member_would_have_drafted_is_passed_on() -> None:
    """Members that pacing turned off: the n-gram is asked all the same, a model is not."""
    copying = NgramDrafter()
    model = Counting("model", 4, {0}, 3, taps=(1,))
    cascade = Cascade([copying, Counting("dear", 5, {0}, 3), model])
    off = replace(
        context(0, 3),
        tokens=(1, 2, 3, 1, 2, 3, 1),
        budget=Budget(3, max_nodes={"ngram": 0, "dear": 0, "model": 3}),
    )
    (draft,) = cascade.propose([off])
    assert (draft.source, draft.tokens) == ("model", (4, 4, 4))
    (other,) = draft.passed_over
    assert other.source == "ngram"
    assert other.tokens[:4] == (2, 3, 1, 2)
    (on,) = cascade.propose([replace(off, budget=Budget(3, max_nodes={"ngram": 3, "model": 3}))])
    assert on.source == "ngram"
    assert on.passed_over == ()
    model.knows.add(1)
    (silent,) = cascade.propose([replace(off, request=1, tokens=(1, 2, 3))])
    assert [(other.source, other.tokens) for other in silent.passed_over] == [("ngram", ())]


class Shown(Counting):
    """A drafter whose rows may end with what is certain to come; it notes what it is shown."""

    reads_unsettled = True

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        self.shown = [context.tokens for context in contexts]
        return super().propose(contexts)


def test_behind_what_is_certain_only_those_draft_that_read_it_or_copy() -> None:
    """A head, which needs the target's states, is not asked; a copying member does not take it for text."""
    copying, head, model = NgramDrafter(), Counting("head", 5, {0}, 3), Shown("model", 4, {0}, 3)
    cascade = Cascade([copying, head, model])
    plain = replace(context(0, 3), room=9)
    run = Draft.chain([2])
    row = as_if_come(replace(plain, tokens=(1, 2, 3, 1)), run)
    assert (row.tokens, row.unsettled) == ((1, 2, 3, 1, 2), 1)
    (copied,) = cascade.propose([row])
    assert (copied.source, copied.tokens) == ("ngram", (3, 1, 2)), "what followed 1, 2 before"
    (drafted,) = cascade.propose([as_if_come(replace(plain, tokens=(1, 2, 3, 1, 4)), Draft.chain([6]))])
    assert (drafted.source, drafted.tokens) == ("model", (4, 4, 4))
    assert model.shown == [(1, 2, 3, 1, 4, 6)]
    assert head.asked == []
    (later,) = cascade.propose([replace(plain, tokens=(1, 2, 3, 1, 4, 3, 1, 4), budget=Budget(1))])
    assert (later.source, later.tokens) == ("ngram", (3,)), "the 6 has not come, and is not copied"
