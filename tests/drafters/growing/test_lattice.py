"""Drafts from the distributions of one forward: the distribution is kept exactly, the likeliest tree is the likeliest,
q is what was drawn from, and every shorter way gives what the plain one gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.lattices import X0, JudgedNoise, Weights, exact_draw, row, rows_of

from headstart.drafters.growing import tree as one_tree
from headstart.drafters.growing.grow import GrowingChain
from headstart.drafters.growing.lattice import Lattice, grow_on
from headstart.drafters.growing.tree import GrowingTree, TopK
from headstart.model.heads.shortlists import Selector
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import verify
from headstart.rule.vocabulary import PartialVocabulary
from headstart.theory.trees import Shape
from headstart.types import Draft

FORK = Shape((-1, -1, 0, 1), (1, 2, 1, 1))
"""Two children, and one grandchild of each."""
PLANS: dict[str, Any] = {
    "chain": None,
    "likeliest": TopK(3, 2),
    "drawn siblings": Shape((-1, -1, 0), (1, 2, 1)),
    "drawn fork": FORK,
}


def grown(lattice: Lattice, plan: Any, nodes: int = 4) -> Draft:
    where, part = lattice.row, lattice.vocabulary
    if plan is None:
        return grow_on(lattice, GrowingChain(where, nodes, vocabulary=part))
    return grow_on(lattice, GrowingTree(where, nodes, plan, vocabulary=part))


def distributions(p: Any, draft: Draft) -> list[Any]:
    return [p(tuple(draft.tokens[each] for each in draft.path(node))) for node in range(-1, len(draft))]


# -- exact enumeration ------------------------------------------------------------------------------------------------


def lawful(
    monkeypatch: pytest.MonkeyPatch, plan: Any, rule: Any, weights: Weights, seed: int, *,
    uncorrected: bool = False, shared: bool = False,
) -> bool:  # fmt: skip
    """Whether a round emits by the target's distribution, in exact fractions. uncorrected: rows are recorded as they
    were before the selector. shared: the nodes of a depth are drawn from one race."""
    p = RandomModel(seed, weights.vocab, zeros=0.2)
    lattice, plain = (weights.lattice(row(weights.vocab), selected=selected) for selected in (True, False))

    def round_(oracle: Oracle) -> tuple[int, ...]:
        noise = JudgedNoise(oracle)
        where = row(weights.vocab, noise=noise, rule=rule)
        monkeypatch.setattr(one_tree, "draw_children", exact_draw(oracle, shared=shared))
        lattice.row = where  # whose noise is new; its distribution is not
        draft = grown(lattice, plan, len(plan) if isinstance(plan, Shape) else 2)
        if uncorrected:
            paths = [tuple(draft.tokens[each] for each in draft.path(node)[:-1]) for node in range(len(draft))]
            draft = replace(draft, q=torch.cat([plain.distributions_after([path]) for path in paths]))
        verdict = verify(draft, distributions(p, draft), rows_of(draft), noise, len(where.tokens), rule)  # type: ignore[arg-type]
        return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)

    return completed(outcomes(round_), p, 3) == joint(p, 3, weights.vocab)


@pytest.mark.parametrize("pairs", [False, True], ids=["alone", "selector"])
@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("vocab", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_distribution_is_kept_exactly(
    vocab: int, plan: str, rule: Any, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2) if vocab == 3 else (1,):
        assert lawful(monkeypatch, PLANS[plan], rule, Weights(seed, 2, vocab, pairs=pairs), seed)


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("plan", PLANS)
def test_guesses_corrected_by_all_tokens_before_them_keep_the_distribution_exactly(
    plan: str, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = Weights(3, 2, 2, remembers=True)
    assert lawful(monkeypatch, PLANS[plan], rule, weights, 3)
    if plan == "chain" and rule == "exact":
        assert not lawful(monkeypatch, PLANS[plan], rule, weights, 3, uncorrected=True)


@pytest.mark.parametrize("plan", ["chain", "drawn siblings"])
def test_a_part_of_the_vocabulary_keeps_the_distribution_exactly(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lawful(monkeypatch, PLANS[plan], "exact", Weights(5, 2, 3, pairs=True, known=(2, 0)), 5)


@pytest.mark.parametrize("plan", ["chain", pytest.param("drawn fork", marks=pytest.mark.slow)])
def test_the_row_before_the_selector_is_found_to_be_wrong(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lawful(monkeypatch, PLANS[plan], "exact", Weights(1, 2, 3, pairs=True), 1, uncorrected=True)


def test_without_a_selector_that_row_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lawful(monkeypatch, None, "exact", Weights(1, 2, 3), 1, uncorrected=True)


def test_one_race_for_the_nodes_of_a_depth_is_found_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traversal looks at several subtrees, so equal distributions must still be drawn from independently."""
    assert not lawful(monkeypatch, FORK, "exact", Weights(1, 2, 2), 21, shared=True)
    assert lawful(monkeypatch, FORK, "exact", Weights(1, 2, 2), 21)


# -- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
def test_q_is_the_softmax_after_the_token_before(pairs: bool) -> None:
    weights = Weights(3, 3, 5, pairs=pairs, known=(0, 1, 3, 4))
    lattice = weights.lattice(row(5))
    assert lattice.vocabulary is not None
    for path in [(), (3,), (0, 4)]:
        before = (X0, *path)[-1]
        found = lattice.vocabulary.spread(lattice.distributions_after([path])[0].numpy(), 0)
        assert found.tolist() == pytest.approx([float(x) for x in weights.distribution(len(path), before)], abs=1e-6)
    draft = grown(lattice, None, 9)
    assert len(draft) == lattice.depth, "no deeper than the forward looked"
    assert draft.q is not None
    assert torch.equal(draft.q, torch.cat([lattice.distributions_after([draft.tokens[:i]]) for i in range(3)]))


def test_a_selector_has_its_shortlist_and_no_more() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, states = torch.randn(3, 40, generator=generator), torch.randn(3, 6, generator=generator)
    a, b, w = (torch.randn(n, 4, generator=generator) for n in (50, 40, 6))
    ids = torch.randperm(50, generator=generator)[:40].sort().values
    selector = Selector(a, b, w.T, 8)
    where = row(50, temperature=0.8, top_p=0.9)
    vocabulary = PartialVocabulary(ids, 50)
    lattice = Lattice(where, logits, vocabulary=vocabulary, shortlists=selector.shortlists(logits, states))
    for depth, token in enumerate((X0, 7, 33)):
        path = (5, token)[2 - depth :] if depth else ()
        best = logits[depth].topk(8).indices
        scores = torch.full((50,), -np.inf)
        scores[ids[best]] = logits[depth][best] + b[best] @ (a[token] * (w.T @ states[depth]))
        assert torch.allclose(vocabulary.widened(lattice.logits_after([path]))[0], scores, atol=1e-5)
        distribution = (scores / 0.8).softmax(-1)
        order = distribution.argsort(descending=True)
        kept = order[: int((distribution[order].cumsum(-1) < 0.9).sum()) + 1]
        assert ids[lattice.distributions_after([path])[0].nonzero()[:, 0]].tolist() == sorted(kept.tolist())


def test_without_a_successors_codebook_nothing_but_the_shortlist_changes() -> None:
    weights = Weights(4, 3, 6)
    logits = torch.from_numpy(weights.tokens).float().log()
    idle = Selector(torch.randn(6, 2), torch.zeros(6, 2), torch.randn(2, 1), 6)
    where = row(6)
    lattice = Lattice(where, logits, shortlists=idle.shortlists(logits, torch.ones(3, 1)))
    assert grown(lattice, None).tokens == grown(weights.lattice(where), None).tokens


# -- the likeliest tree -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_tree_has_the_likeliest_nodes(pairs: bool, seed: int) -> None:
    weights = Weights(seed, 3, 5, pairs=pairs)
    chances = {
        path: float(prod(weights.distribution(i, (X0, *path)[i])[token] for i, token in enumerate(path)))
        for depth in (1, 2, 3)
        for path in product(range(5), repeat=depth)
    }
    for nodes in (1, 2, 7, 20):
        draft = grown(weights.lattice(row(5, temperature=0.0)), TopK(5, 3), nodes)
        found = [tuple(draft.tokens[each] for each in draft.path(node)) for node in range(nodes)]
        assert len(set(found)) == nodes
        assert sum(chances[path] for path in found) == pytest.approx(sum(sorted(chances.values())[-nodes:]))
        assert draft.q is None


def test_the_tree_is_no_deeper_than_asked_and_has_no_more_nodes_than_there_are() -> None:
    weights = Weights(1, 3, 3)
    draft = grown(weights.lattice(row(3)), TopK(5, 2), 50)
    assert len(draft) == 3 + 9
    assert max(draft.depths) == 2
    assert max(grown(weights.lattice(row(3, edited=True)), TopK(5, 9), 30).depths) == 3


# -- twins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_short_way_gives_what_the_plain_one_gives(plan: str, pairs: bool, temperature: float) -> None:
    """Where processors edit the distribution, every row is computed by itself over the whole vocabulary."""
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(3, 30, generator=generator)
        vocabulary = PartialVocabulary(torch.randperm(48, generator=generator)[:30].sort().values, 48)
        codes = [torch.randn(n, 4, generator=generator) for n in (48, 30, 4)]
        shortlists = Selector(*codes, top=9).shortlists(logits, torch.randn(3, 4, generator=generator))
        drafts = []
        for edited in (False, True):
            where = row(48, edited=edited, temperature=temperature, top_p=0.95, noise=Noise(seed))
            lattice = Lattice(where, logits, vocabulary=vocabulary, shortlists=shortlists if pairs else None)
            drafts.append(grown(lattice, TopK(9, 3) if plan == "likeliest" else PLANS[plan]))
        short, plain = drafts
        nodes = [
            {tuple(draft.tokens[each] for each in draft.path(node)) for node in range(len(draft))} for draft in drafts
        ]
        assert nodes[0] == nodes[1]
        if plan != "likeliest":
            assert (short.tokens, short.parents) == (plain.tokens, plain.parents)
        assert (short.q is None) == (plain.q is None) == (temperature == 0 or plan == "likeliest")
        if short.q is not None and plain.q is not None:
            assert torch.allclose(short.q, plain.q, atol=1e-6)


def test_a_chain_ends_where_every_candidate_is_forbidden() -> None:
    weights = Weights(2, 3, 6, pairs=True)
    where = row(6)
    lattice = weights.lattice(where, top=2)
    second = set(lattice.distributions_after([(0,)])[0].nonzero()[:, 0].tolist())
    state = type(where.sampling_state)(where.sampling, (X0,), 6, frozenset(), processors=(Forbidden(second),))  # type: ignore[arg-type]
    forbidding = replace(where, sampling_state=state)
    assert len(grown(weights.lattice(forbidding, top=2), None)) < 2
    assert len(grown(weights.lattice(forbidding, top=2), FORK)) < len(FORK)
    assert len(grown(weights.lattice(where, top=2), None)) == 3


class Forbidden:
    """Forbids some tokens."""

    def __init__(self, tokens: set[int]) -> None:
        self._tokens = sorted(tokens)

    def after(self, tokens: Any) -> Forbidden:
        return self

    def edit(self, logits: Any) -> None:
        logits[self._tokens] = -np.inf


# -- chi-square -------------------------------------------------------------------------------------------------------


def p_value(counts: Counter[Any], distribution: dict[Any, float]) -> float:
    total = sum(counts.values())
    keys = sorted(distribution)
    return float(chisquare([counts[key] for key in keys], [distribution[key] * total for key in keys]).pvalue)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("plan", ["chain", "drawn fork"])
@pytest.mark.parametrize(
    ("temperature", "rule"),
    [(0.6, "exact"), *(pytest.param(t, rule, marks=SLOW) for t in (0.6, 1.0, 1.5) for rule in ("exact", "coupled"))],
)
def test_emitted_tokens_follow_the_target(temperature: float, rule: Any, plan: str) -> None:
    """With the real noise and a selector; the second token shows what a wrong row of the first would leave behind."""
    vocab, samples = 4, 400
    weights = Weights(6, 2, vocab, pairs=True)
    p = {
        context: np.array([float(x) for x in RandomModel(9, vocab)(context)])
        for depth in range(3)
        for context in product(range(vocab), repeat=depth)
    }
    both = {pair: p[()][pair[0]] * p[pair[:1]][pair[1]] for pair in product(range(vocab), repeat=2)}
    lattice = weights.lattice(row(vocab, rule=rule, temperature=temperature))
    compute = cache(lambda paths: lattice.__class__.distributions_after(lattice, paths))
    lattice.distributions_after = lambda paths: compute(tuple(paths))  # type: ignore[method-assign]
    counts: Counter[Any] = Counter()
    for seed in range(samples):
        lattice.row = row(vocab, noise=Noise(seed), rule=rule, temperature=temperature)
        draft = grown(lattice, PLANS[plan])
        q = None if draft.q is None else draft.q.numpy()
        verdict = verify(draft, distributions(p.__getitem__, draft), q, lattice.row.noise, 1, rule)
        emitted = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)[:2]
        if len(emitted) < 2:
            emitted = (*emitted, lattice.row.noise.draw(p[emitted], 2, Purpose.TOKEN))
        counts[emitted] += 1
    assert p_value(counts, both) > 1e-3
    assert p_value(counts, {pair: 1 / len(both) for pair in both}) < 1e-6, "the sample would not show an error"
