"""Drafts over a part of the vocabulary: the distributions, and where noise allows the tokens, of drafts over all of
it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from headstart.drafters import Row
from headstart.drafters.growing.grow import GrowingChain, grow_chains, grow_trees
from headstart.drafters.growing.tree import GrowingTree, TopK, draw_children
from headstart.rule.distribution import SamplingRow, SamplingState, distribution, greedy
from headstart.rule.drafted import drafted_distributions, whole
from headstart.rule.noise import Noise, Purpose
from headstart.rule.vocabulary import PartialVocabulary
from headstart.theory.trees import Shape
from headstart.types import Budget, Draft, Sampling

V = 24
IDS = torch.tensor([7, 3, 20, 11, 0, 15, 22, 9, 4])
"""In no order: a column's token is what the head says it is."""
PART = PartialVocabulary(IDS, V)
SHAPE = Shape((-1, -1, 0, 0, 1, 2), (1, 2, 1, 2, 1, 1))
SAMPLINGS = {
    "plain": Sampling(temperature=0.8),
    "filters": Sampling(temperature=1.2, top_k=5, top_p=0.9),
    "edited": Sampling(temperature=0.9, repetition_penalty=1.5, logit_bias={11: 3.0, 5: 9.0}, min_tokens=9),
    "greedy": Sampling(),
    "greedy, edited": Sampling(frequency_penalty=2.0, logit_bias={20: -100.0}, min_tokens=9),
}
SAMPLED = [name for name, sampling in SAMPLINGS.items() if not sampling.greedy]


def row_of(sampling: Sampling, purpose: Purpose = Purpose.DRAFT, seed: int = 1) -> Row:
    text = (3, 20, 5, 1)
    state = SamplingState(sampling, text[:2], V, frozenset({7})).after(text[2:])
    return Row(0, text, state, Noise(seed), purpose, budget=Budget(12))


def narrow(path: Sequence[int]) -> torch.Tensor:
    """A head's logits [W] after a draft."""
    return torch.randn(len(IDS), generator=torch.Generator().manual_seed(hash(tuple(path)) % 2**31)) * 2


def wide(path: Sequence[int]) -> torch.Tensor:
    return PART.widened(narrow(path)[None])[0]


def grown(row: Row, kind: str, vocabulary: PartialVocabulary | None) -> Draft:
    logits: Callable[[Sequence[int]], torch.Tensor] = wide if vocabulary is None else narrow
    if kind == "chain":
        chain = GrowingChain(row, 4, vocabulary=vocabulary)
        grow_chains([chain], lambda live: torch.stack([logits(each.tokens) for each in live]))
        return chain.draft()
    plan = TopK(3, 3) if kind == "top-k" else SHAPE
    tree = GrowingTree(row, 12, plan, vocabulary=vocabulary)
    grow_trees([tree], lambda live: torch.stack([logits(path) for each in live for path in each.paths()]))
    return tree.draft()


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_distributions_are_those_over_the_whole_vocabulary(sampling: str) -> None:
    state, paths = row_of(SAMPLINGS[sampling]).sampling_state, [(), (4,), (20, 20), (7, 9, 11)]
    rows = [SamplingRow(state, path) for path in paths]
    part = torch.stack([narrow(path) for path in paths])
    found, wanted = distribution(part, rows, PART), distribution(PART.widened(part), rows)
    assert torch.equal(found, PART.narrowed(wanted)) or torch.allclose(found, PART.narrowed(wanted), atol=1e-7)
    assert wanted.sum() == pytest.approx(PART.narrowed(wanted).sum())
    if SAMPLINGS[sampling].greedy:
        columns = greedy(part, rows, PART)
        assert [PART.tokens[column] for column in columns] == greedy(PART.widened(part), rows)


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_the_likeliest_nodes_are_those_of_the_whole_vocabulary(sampling: str) -> None:
    row = row_of(SAMPLINGS[sampling])
    for kind in ("top-k", "chain") if row.sampling.greedy else ("top-k",):
        found, wanted = (grown(row, kind, each) for each in (PART, None))
        assert (found.tokens, found.parents) == (wanted.tokens, wanted.parents)
        assert len(found) >= 4
        assert found.q is None


@pytest.mark.parametrize("kind", ["chain", "drawn"])
@pytest.mark.parametrize("sampling", SAMPLED)
def test_under_rule_coupled_the_tokens_are_those_of_the_whole_vocabulary(sampling: str, kind: str) -> None:
    """The target will meet a token with that token's noise, so a draft must have drawn with it."""
    for seed in range(40):
        row = row_of(SAMPLINGS[sampling], Purpose.TOKEN, seed)
        found, wanted = (grown(row, kind, each) for each in (PART, None))
        assert (found.tokens, found.parents) == (wanted.tokens, wanted.parents)


@pytest.mark.parametrize("kind", ["chain", "drawn"])
@pytest.mark.parametrize("sampling", SAMPLED)
def test_q_is_the_distribution_that_a_node_was_drawn_from(sampling: str, kind: str) -> None:
    for seed in range(10):
        row = row_of(SAMPLINGS[sampling], seed=seed)
        draft = grown(row, kind, PART)
        assert draft.vocabulary is PART.ids
        for node, q in enumerate(drafted_distributions(draft)):
            path = tuple(draft.tokens[each] for each in draft.path(node))
            wanted = distribution(wide(path[:-1])[None], [SamplingRow(row.sampling_state, path[:-1])])[0].numpy().copy()
            wanted[[draft.tokens[each] for each in draft.children[draft.parents[node] + 1] if each < node]] = 0
            np.testing.assert_allclose(whole(q, V), wanted / wanted.sum(), atol=1e-6)
            assert q[draft.tokens[node]] == whole(q, V)[draft.tokens[node]] > 0


def test_children_are_drawn_by_columns() -> None:
    """Draws of a draft's own noise: each column as often as its distribution says."""
    q = np.array([0.4, 0.1, 0.0, 0.2, 0.3, 0, 0, 0, 0], dtype=np.float32)
    counts = np.zeros(len(q))
    for seed in range(4000):
        first, second = draw_children(row_of(SAMPLINGS["plain"], seed=seed), q, 1, 0, 2, PART)
        assert first != second
        counts[first] += 1
    np.testing.assert_allclose(counts / 4000, q, atol=0.03)


def test_a_vocabulary_of_which_everything_is_forbidden_drafts_nothing() -> None:
    """Each of its tokens is at -inf; the others, which a processor allows, are none of its columns."""
    row = row_of(Sampling(temperature=1.0))
    state = SamplingState(row.sampling, (3, 20), V, frozenset(), processors=[_Only(5)])
    row = Row(0, row.tokens, state, row.noise, budget=Budget(4))
    for kind in ("chain", "drawn", "top-k"):
        assert len(grown(row, kind, PART)) == 0


class _Only:
    """Allows one token."""

    def __init__(self, token: int) -> None:
        self._token = token

    def after(self, _: Sequence[int]) -> Any:
        return self

    def edit(self, x: Any) -> None:
        kept = x[self._token] if np.isfinite(x[self._token]) else 0.0
        x[:] = -math.inf
        x[self._token] = kept


def test_a_device_edits_as_the_host_does() -> None:
    """The way of a GPU, taken by hand on the host."""
    from headstart.rule import distribution as module

    rows = [SamplingRow(row_of(SAMPLINGS["edited"]).sampling_state, path) for path in ((), (7, 9))]
    part = torch.stack([narrow(()), narrow((7, 9))])
    host = torch.from_numpy(module._edit_on_host(part.numpy(), rows, PART))
    device = PART.narrowed(module._edit_on_device(PART.widened(part), rows))
    assert torch.equal(host, device)
