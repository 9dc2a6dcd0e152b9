"""A list of drafters: the first that has something to say drafts, within its own budget; or two drafts are one tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes

from headstart.drafters import DraftContext, Drafter
from headstart.drafters.cascade import Cascade, merge
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.engine import Engine
from headstart.loading.pacing import make_pacing
from headstart.rule.law import LawState
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse, walk
from headstart.types import Draft, Sampling, Step


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


# -- grafting ---------------------------------------------------------------------------------------------------------


def test_what_a_copying_member_would_have_said_is_passed_on() -> None:
    """Members that pacing turned off: the n-gram is overheard, a model (which taps or draws) is not asked at all."""
    copying = NgramDrafter()
    model = Counting("model", 4, {0}, 3, taps=(1,))
    cascade = Cascade([copying, Counting("dear", 5, {0}, 3), model])
    off = replace(context(0, 3), tokens=[1, 2, 3, 1, 2, 3, 1], caps={"ngram": 0, "dear": 0, "model": 3})
    (draft,) = cascade.propose([off])
    assert (draft.source, draft.tokens) == ("model", (4, 4, 4))
    (other,) = draft.passed_over
    assert other.source == "ngram"
    assert other.tokens[:4] == (2, 3, 1, 2)
    (on,) = cascade.propose([replace(off, caps={"ngram": 3, "model": 3})])
    assert on.source == "ngram"
    assert on.passed_over == ()
    model.knows.add(1)
    (silent,) = cascade.propose([replace(off, request=1, tokens=[1, 2, 3])])
    assert [(other.source, other.tokens) for other in silent.passed_over] == [("ngram", ())]


class Copying(Counting):
    """Drafts point masses that cost nothing."""

    draws = False


def test_a_copy_is_grafted_onto_what_a_later_one_drafts() -> None:
    copying, model, last = Copying("copy", 3, {0, 1}, 9), Counting("model", 4, {0, 2}, 4), Counting("last", 5, {2}, 9)
    cascade = Cascade([copying, model, last], graft=True)
    assert [part.name for part in cascade.parts] == ["copy + model + last"]
    drafts = cascade.propose([context(0, 10), context(1, 10), context(2, 10), context(3, 10)])
    assert [draft.tokens for draft in drafts] == [(4,) * 3 + (3,) * 7, (3,) * 9, (4,) * 4, ()]
    assert drafts[0].parents == (-1, 0, 1, -1, 3, 4, 5, 6, 7, 8)
    assert [draft.source for draft in drafts] == ["copy + model + last"] * 3 + [""]
    assert model.asked == [(0, 3), (1, 3), (2, 4), (3, 4)]
    assert last.asked == [(1, 3), (3, 9)]  # two thirds of the budget are the copy's


@pytest.mark.parametrize("budget", range(13))
def test_no_more_nodes_than_the_budget_and_each_has_its_share(budget: int) -> None:
    copying, model = Copying("copy", 3, {0}, 9), Counting("model", 4, {0}, 8)
    (draft,) = Cascade([copying, model], graft=True).propose([context(0, budget)])
    assert (draft.tokens.count(3), draft.tokens.count(4)) == (budget - budget // 3, budget // 3)


def test_who_costs_something_is_not_added_to_a_later_one() -> None:
    cascade = Cascade([Counting("first", 3, {0}, 4), Counting("second", 4, {0}, 4)], graft=True)
    (draft,) = cascade.propose([context(0, 8)])
    assert draft.tokens == (3,) * 4


def test_a_common_beginning_is_shared() -> None:
    q = torch.eye(5)[[1, 2, 4]]
    merged = merge(Draft((1, 2, 4), (-1, 0, -1), q), Draft((1, 3, 0, 4, 2), (-1, 0, 1, -1, -1)), 9)
    assert merged.tokens == (1, 2, 4, 3, 0, 2)
    assert merged.parents == (-1, 0, -1, 0, 3, -1)
    assert merged.q is not None
    assert merged.q.tolist() == torch.eye(5)[[1, 2, 4, 3, 0, 2]].tolist()
    assert merge(Draft((1,), (-1,)), Draft((1, 3), (-1, 0)), 9).q is None


def test_shared_nodes_are_free_unless_a_tree_is_grafted_onto_drawn_nodes() -> None:
    drawn_, point = Draft.chain((1, 2), torch.eye(5)[[1, 2]]), Draft.chain((1, 2))
    chain, tree = Draft.chain((1, 2, 3, 4)), Draft((1, 2, 3, 4), (-1, 0, 1, 0))
    assert merge(drawn_, chain, 1).tokens == merge(point, chain, 1).tokens == (1, 2, 3)
    assert merge(point, tree, 1).tokens == (1, 2, 3)
    assert merge(drawn_, tree, 2).tokens == (1, 2)
    assert merge(drawn_, tree, 3).tokens == (1, 2, 3)
    assert merge(drawn_, chain, 0).q is drawn_.q


def drawn(oracle: Oracle, q: RandomModel, shape: Sequence[int]) -> tuple[Draft, list[Any]]:
    """A tree drawn without replacement, `shape[d]` children per node of depth d; and each node's law."""
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Any] = []
    contexts: list[tuple[int, ...]] = [()]
    frontier = [-1]
    for width in shape:
        below = []
        for parent in frontier:
            law = q(contexts[parent + 1])
            for _ in range(width):
                if law.sum() == 0:
                    break
                token = oracle.draw(law)
                below.append(len(tokens))
                tokens.append(token)
                parents.append(parent)
                laws.append(law)
                contexts.append((*contexts[parent + 1], token))
                law = law.copy()
                law[token] = Fraction(0)
                law = law / law.sum() if law.sum() > 0 else law
        frontier = below
    return Draft(tuple(tokens), tuple(parents)), laws


def one_hot(token: int) -> Any:
    return np.array([Fraction(int(i == token)) for i in range(3)], dtype=object)


def emitted(
    p: RandomModel, q: RandomModel, shape: Sequence[int], points: Draft, *, most: int = 9, elder: bool = False
) -> dict[tuple[int, ...], Fraction]:
    """Exact law of what a round emits. elder: the graft stands before the drawn nodes, nothing is shared."""

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        draft, laws = drawn(oracle, q, shape)
        if elder:
            shift = len(points)
            parents = (*points.parents, *(shift + parent if parent >= 0 else -1 for parent in draft.parents))
            draft = Draft((*points.tokens, *draft.tokens), parents)
            laws = [*(one_hot(token) for token in points.tokens), *laws]
        else:
            draft = merge(draft, points, most)
            laws = [*laws, *(one_hot(token) for token in draft.tokens[len(laws) :])]
        rows = [p(())] + [p(tuple(draft.tokens[n] for n in draft.path(node))) for node in range(len(draft))]
        verdict = traverse(draft, rows, laws, lambda a, _: oracle.coin(a), lambda law, _: oracle.draw(law))
        return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)

    return outcomes(procedure)


def accepted(law: dict[tuple[int, ...], Fraction]) -> Fraction:
    return sum((chance * (len(tokens) - 1) for tokens, chance in law.items()), Fraction(0))


POINTS = [Draft.chain((1,)), Draft.chain((2, 0, 1)), Draft((0, 1, 2), (-1, -1, 0))]


@pytest.mark.parametrize("zeros", [0.0, 0.4], ids=["full support", "zeros in p and q"])
@pytest.mark.parametrize("points", POINTS, ids=lambda draft: f"{draft.tokens}{draft.parents}")
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,), (2, 1)], ids=str)
def test_a_graft_keeps_the_law_exactly_and_only_adds_to_what_is_accepted(
    shape: Sequence[int], points: Draft, zeros: float
) -> None:
    for seed in range(2):
        p, q = RandomModel(seed, zeros=zeros), RandomModel(seed + 100, zeros=zeros)
        alone = emitted(p, q, shape, Draft())
        for most in (1, 2, 3):
            grafted = emitted(p, q, shape, points, most=most)
            depth = max(len(shape), *points.depths) + 1
            assert completed(grafted, p, depth) == joint(p, depth)
            assert accepted(grafted) >= accepted(alone)


def test_an_elder_graft_would_be_exact_too_but_accepts_less() -> None:
    gains = []
    for seed in range(6):
        p, q = RandomModel(seed), RandomModel(seed + 100)
        elder, younger = (emitted(p, q, (1,), Draft.chain((1,)), elder=order) for order in (True, False))
        assert completed(elder, p, 2) == joint(p, 2)
        gains.append(accepted(younger) - accepted(elder))
    assert min(gains) >= 0 < max(gains)


def test_grafted_point_masses_keep_the_law_exactly() -> None:
    p = RandomModel(4)
    draft = merge(Draft((0, 1), (-1, 0)), Draft((0, 2, 1), (-1, 0, 1)), 9)
    rows = [p(())] + [p(tuple(draft.tokens[n] for n in draft.path(node))) for node in range(len(draft))]

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        verdict = walk(draft, rows, lambda law, _: oracle.draw(law))
        return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)

    assert completed(outcomes(procedure), p, 4) == joint(p, 4)


def test_a_list_that_grafts_is_paced_as_one(tiny: Callable[..., str], load: Callable[..., Engine]) -> None:
    model = load("llama", tiny("llama", noise=0.02), draft_quantize=None)
    assert model.drafting.drafter is not None
    cascade = Cascade([NgramDrafter(), model.drafting.drafter], graft=True)
    for pacing in ("fixed", "adaptive"):
        engine = Engine(model.target, drafter=cascade, max_batch_size=2)
        engine.pacing = make_pacing(pacing, model.target, engine.cache, cascade, None, {})
        steps: list[Step] = []
        engine.subscribe(steps.append)
        prompts, sampling = [[5, 6] * 4, [9, 3, 9]], Sampling(max_tokens=40, ignore_eos=True)
        texts = [out.tokens for out in engine.generate(prompts, sampling)]
        assert texts == [out.tokens for out in engine.plain().generate(prompts, sampling)]
        assert {step.draft.source for step in steps if len(step.draft)} <= {cascade.name}
        assert {name for step in steps for name in step.budget.caps} <= {cascade.name}
        assert pacing == "adaptive" or any(not step.draft.is_chain for step in steps)
