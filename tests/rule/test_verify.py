"""The claim: whatever is drafted, what is emitted follows the target's distribution. Proved by exact enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.rotation import rotated

from headstart.rule.drafted import Known, PartialDistribution
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse, verify, walk
from headstart.types import Draft, Verdict

Model = Callable[[tuple[int, ...]], Any]
Shape = Sequence[int]  # children per node, by depth: (1, 1, 1) is a chain of 3, (2, 2) a binary tree


def without(distribution: Any, token: int) -> Any:
    """The distribution of the next sibling: `token` struck out, the rest renormalised."""
    rest = distribution.copy()
    rest[token] = 0 * rest[token]
    return rest / rest.sum() if rest.sum() > 0 else rest


def same(distribution: Any, _: int) -> Any:
    return distribution


def draw_tree(
    oracle: Oracle, q: Model, shape: Shape, next_distribution: Callable[[Any, int], Any]
) -> tuple[Draft, list[Any], list[tuple[int, ...]]]:
    """Draw a tree level by level from the draft model; returns it, each node's distribution and each row's context."""
    tokens: list[int] = []
    parents: list[int] = []
    distributions: list[Any] = []
    contexts: list[tuple[int, ...]] = [()]
    frontier = [-1]
    for width in shape:
        below = []
        for parent in frontier:
            distribution = q(contexts[parent + 1])
            for _ in range(width):
                if distribution.sum() == 0:
                    break
                token = oracle.draw(distribution)
                below.append(len(tokens))
                tokens.append(token)
                parents.append(parent)
                distributions.append(distribution)
                contexts.append((*contexts[parent + 1], token))
                distribution = next_distribution(distribution, token)
        frontier = below
    return Draft(tuple(tokens), tuple(parents)), distributions, contexts


def emitted(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


def distribution_of(
    p: Model, q: Model, shape: Shape, next_distribution: Callable[[Any, int], Any]
) -> dict[tuple[int, ...], Fraction]:
    """Exact distribution of what one round of sampled drafting and `traverse` emits."""

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        draft, distributions, contexts = draw_tree(oracle, q, shape, next_distribution)
        rows = [p(context) for context in contexts]
        return emitted(
            draft,
            traverse(
                draft,
                rows,
                distributions,
                lambda a, _: oracle.uniform(a),
                lambda distribution, _: oracle.draw(distribution),
            ),
        )

    return outcomes(procedure)


@pytest.mark.parametrize("zeros", [0.0, 0.4], ids=["full support", "zeros in p and q"])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_chain_keeps_the_distribution_exactly(k: int, seed: int, zeros: float) -> None:
    p, q = RandomModel(seed, zeros=zeros), RandomModel(seed + 100, zeros=zeros)
    assert completed(distribution_of(p, q, (1,) * k, same), p, k + 1) == joint(p, k + 1)


@pytest.mark.parametrize("next_distribution", [without, same], ids=["without replacement", "with replacement"])
@pytest.mark.parametrize("shape", [(2,), (3,), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_tree_keeps_the_distribution_exactly(shape: Shape, next_distribution: Any, seed: int) -> None:
    p, q = RandomModel(seed, zeros=0.2), RandomModel(seed + 100, zeros=0.2)
    depth = len(shape) + 1
    assert completed(distribution_of(p, q, shape, next_distribution), p, depth) == joint(p, depth)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_distributions_over_a_part_of_the_vocabulary_give_what_the_whole_ones_give(shape: Shape, seed: int) -> None:
    p, q = RandomModel(seed), RandomModel(seed + 100, zeros=0.4)

    def partial(context: tuple[int, ...]) -> Any:
        distribution = q(context)
        known = np.flatnonzero(distribution)[::-1]  # the order of its tokens is the drafter's own
        return PartialDistribution(Known(known), distribution[known])

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        draft, distributions, contexts = draw_tree(oracle, q, shape, without)
        rows = [p(context) for context in contexts]
        for node, distribution in enumerate(distributions):
            known = partial(contexts[draft.parents[node] + 1]).known.tokens
            distributions[node] = PartialDistribution(Known(known), distribution[known])
            assert distributions[node][draft.tokens[node]] == distribution[draft.tokens[node]]
            assert np.array_equal(distributions[node].over(len(distribution)), distribution)
        return emitted(
            draft,
            traverse(
                draft,
                rows,
                distributions,
                lambda a, _: oracle.uniform(a),
                lambda distribution, _: oracle.draw(distribution),
            ),
        )

    found = outcomes(procedure)
    assert found == distribution_of(p, q, shape, without)
    assert completed(found, p, len(shape) + 1) == joint(p, len(shape) + 1)


def test_binary_tree_of_depth_two_keeps_the_distribution_exactly() -> None:
    # sparse draft distributions keep the number of drawn trees small; every branch of the rule is still taken
    p, q = RandomModel(1), RandomModel(7, zeros=0.3)
    assert completed(distribution_of(p, q, (2, 2), without), p, 3) == joint(p, 3)


@pytest.mark.parametrize("seed", range(3))
def test_binary_tree_of_full_support_keeps_the_distribution_exactly(seed: int) -> None:
    p, q = RandomModel(seed), RandomModel(seed + 50)
    assert completed(distribution_of(p, q, (2, 2), without), p, 3) == joint(p, 3)


def one_hot(token: int) -> Any:
    distribution = np.array([Fraction(0)] * 3, dtype=object)
    distribution[token] = Fraction(1)
    return distribution


POINT_DRAFTS = [
    Draft(),
    Draft.chain((0,)),
    Draft.chain((2, 1)),
    Draft.chain((1, 1, 0)),
    Draft((0, 1), (-1, -1)),
    Draft((0, 1, 2, 0), (-1, -1, 0, 1)),
    Draft((2, 0, 1, 2, 0, 1), (-1, -1, 0, 0, 1, 1)),
]


@pytest.mark.parametrize("draft", POINT_DRAFTS, ids=lambda d: f"{d.tokens}{d.parents}")
@pytest.mark.parametrize("seed", range(3))
def test_point_mass_drafts_keep_the_distribution_exactly(draft: Draft, seed: int) -> None:
    """`walk`, and `traverse` fed one-hot distributions: the same distribution, and the same number of accepted
    tokens."""
    p = RandomModel(seed, zeros=0.2)
    rows = [p(())] + [p(tuple(draft.tokens[n] for n in draft.path(node))) for node in range(len(draft))]
    depth = max(draft.depths, default=0) + 1
    hot = [one_hot(token) for token in draft.tokens]

    walked = outcomes(lambda o: emitted(draft, walk(draft, rows, lambda distribution, _: o.draw(distribution))))
    traversed = outcomes(
        lambda o: emitted(
            draft, traverse(draft, rows, hot, lambda a, _: o.uniform(a), lambda distribution, _: o.draw(distribution))
        )
    )
    assert completed(walked, p, depth) == joint(p, depth)
    assert completed(traversed, p, depth) == joint(p, depth)
    assert walked == traversed


def test_a_tree_may_mix_drawn_nodes_and_point_masses() -> None:
    """A hybrid: the second child is a point mass grafted beside one that was drawn."""
    p, q = RandomModel(3), RandomModel(9)

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        first = oracle.draw(q(()))
        draft = Draft((first, 2), (-1, -1))
        rows = [p(()), p((first,)), p((2,))]
        distributions = [q(()), one_hot(2)]
        return emitted(
            draft,
            traverse(
                draft,
                rows,
                distributions,
                lambda a, _: oracle.uniform(a),
                lambda distribution, _: oracle.draw(distribution),
            ),
        )

    assert completed(outcomes(procedure), p, 2) == joint(p, 2)


def accepted(distribution: dict[tuple[int, ...], Fraction]) -> Fraction:
    return sum((chance * (len(tokens) - 1) for tokens, chance in distribution.items()), Fraction(0))


def token_by_token(p: Model, q: Model, k: int) -> Fraction:
    """Expected accepted length of the rule of Leviathan et al.: each token judged alone, in order."""

    def grow(context: tuple[int, ...]) -> Fraction:
        if len(context) == k:
            return Fraction(0)
        rates = [min(p(context)[t], q(context)[t]) for t in range(3)]
        return sum((rate * (1 + grow((*context, t))) for t, rate in enumerate(rates) if rate > 0), Fraction(0))

    return grow(())


@pytest.mark.parametrize("seed", range(4))
def test_chain_accepts_at_least_what_token_by_token_accepts(seed: int) -> None:
    p, q = RandomModel(seed), RandomModel(seed + 100)
    block, single = accepted(distribution_of(p, q, (1, 1, 1), same)), token_by_token(p, q, 3)
    assert block >= single
    assert accepted(distribution_of(p, q, (1,), same)) == token_by_token(p, q, 1)  # one token: both are optimal


def test_identical_distributions_accept_everything() -> None:
    p = RandomModel(5)
    assert accepted(distribution_of(p, p, (1, 1, 1), same)) == 3


distributions = st.lists(st.floats(1e-6, 1), min_size=4, max_size=4).map(lambda w: np.array(w) / sum(w))


@settings(max_examples=25, deadline=None)
@given(p=st.lists(distributions, min_size=4, max_size=4), q=st.lists(distributions, min_size=3, max_size=3))
def test_float_chain_matches_the_distribution_on_random_p_and_q(p: list[Any], q: list[Any]) -> None:
    """Floating point, position-dependent distributions: enumerated outcomes match p to rounding."""

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        tokens = [oracle.draw(distribution) for distribution in q]
        draft = Draft.chain(tokens)
        return emitted(
            draft, traverse(draft, p, q, lambda a, _: oracle.uniform(min(a, 1)), lambda w, _: oracle.draw(w))
        )

    first = np.zeros(4)
    for tokens, chance in outcomes(procedure).items():
        first[tokens[0]] += float(chance)
    np.testing.assert_allclose(first, p[0], atol=1e-9)


def test_impossible_tokens_are_never_emitted() -> None:
    p = np.array([[0.5, 0.5, 0.0, 0.0]] * 4)
    q = np.array([[0.0, 0.1, 0.5, 0.4]] * 3)
    for seed in range(200):
        noise = Noise(seed)
        tokens = [noise.draw(distribution, i, Purpose.DRAFT) for i, distribution in enumerate(q)]
        verdict = verify(Draft.chain(tokens), p, q, noise, 0, "exact")
        assert set(emitted(Draft.chain(tokens), verdict)) <= {0, 1}


# -- several rounds, with the engine's own noise ----------------------------------------------------------------------


def generate(p: Model, q: Model, seed: int, *, k: int, rule: str, length: int, lanes: bool = True) -> tuple[int, ...]:
    """Rounds of drafting and `verify` until `length` tokens; lanes=False is the planted bug: noise used twice."""
    noise = Noise(seed)
    tokens: tuple[int, ...] = ()
    while len(tokens) < length:
        start = len(tokens)
        lane = start if lanes else 0
        purpose = Purpose.TOKEN if rule == "coupled" else Purpose.DRAFT
        drafted: list[int] = []
        distributions = []
        for depth in range(k):
            distribution = q((*tokens, *drafted)).astype(float)
            distributions.append(distribution)
            drafted.append(noise.draw(distribution, start + depth, purpose, 0 if rule == "coupled" else lane))
        draft = Draft.chain(drafted)
        rows = [p((*tokens, *drafted[:i])).astype(float) for i in range(k + 1)]
        if lanes:
            verdict = verify(draft, rows, distributions or None, noise, start, rule)  # type: ignore[arg-type]
        else:
            verdict = traverse(
                draft,
                rows,
                distributions,
                lambda a, node, at=start: noise.uniform(at + node, Purpose.ACCEPT) < a,
                lambda distribution, depth, at=start: noise.draw(distribution, at + depth, Purpose.TOKEN),
            )
        tokens += emitted(draft, verdict)
    return tokens[:length]


def p_value(p: Model, samples: list[tuple[int, ...]], length: int) -> float:
    distribution = joint(p, length)  # type: ignore[arg-type]
    counts = Counter(samples)
    assert set(counts) <= set(distribution), "an impossible text was emitted"
    expected = [float(distribution[key]) * len(samples) for key in distribution]
    return float(chisquare([counts[key] for key in distribution], expected).pvalue)


@pytest.mark.parametrize(("rule", "k"), rotated([("exact", "coupled")], [(3,), (1,)]))
def test_rounds_follow_the_joint_distribution(k: int, rule: str) -> None:
    p, q = RandomModel(16), RandomModel(17)
    samples = [generate(p, q, seed, k=k, rule=rule, length=4) for seed in range(4000)]
    assert p_value(p, samples, 4) > 1e-4


def test_noise_shared_between_rounds_would_bias_the_distribution() -> None:
    """Why ACCEPT and DRAFT noise carry the round's start: without it the same test finds the bias."""
    p, q = RandomModel(16), RandomModel(17)
    samples = [generate(p, q, seed, k=3, rule="exact", length=4, lanes=False) for seed in range(4000)]
    assert p_value(p, samples, 4) < 1e-6


def test_coupled_gives_one_text_whatever_the_drafter() -> None:
    p = RandomModel(21)
    for seed in range(50):
        texts = {
            generate(p, RandomModel(q), seed, k=k, rule="coupled", length=8) for q in (1, 2, 21) for k in (0, 1, 2, 5)
        }
        assert len(texts) == 1
