"""The distributions of a step's rows: computed as the rule comes to them, the same bits as all at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.reference_distribution import random_logits

from headstart.base.errors import NonFiniteLogits
from headstart.rule.distribution import SamplingState, distribution, greedy
from headstart.rule.distributions import distributions, sampling_rows
from headstart.rule.drafted import PartialDistribution, drafted_distributions
from headstart.rule.verify import traverse, walk
from headstart.types import Draft, Sampling

V = 50
SAMPLINGS = [Sampling(temperature=0.8), Sampling(temperature=0.7, top_p=0.9), Sampling(temperature=1, top_k=5)]


def state(sampling: Sampling) -> SamplingState:
    return SamplingState(sampling, (1, 2), V, frozenset())


def test_distributions_asked_for_one_by_one_are_those_of_all_at_once() -> None:
    draft = Draft((3, 4, 5, 6), (-1, 0, 0, 1))
    rows = [sampling_rows(state(s), draft) for s in (*SAMPLINGS, Sampling())]
    logits = random_logits(5 * len(rows), 1, V, 2.0)
    for found, each, part in zip(distributions(rows, logits), rows, logits.split(5), strict=True):
        dense = distribution(part, each)
        assert torch.equal(found.dense, dense)
        for i in (3, 0, 4, 2, 1, 3):
            assert np.array_equal(found[i], dense[i].numpy())
        assert len(found) == 5


def test_what_is_computed_together_leaves_out_who_fails() -> None:
    logits = random_logits(3, 1, V, 2.0)
    logits[0] = math.nan
    rows = [sampling_rows(state(each), Draft((), ())) for each in SAMPLINGS]
    wrong, good, other = distributions(rows, logits)
    assert torch.equal(torch.from_numpy(good[0])[None], distribution(logits[1:2], rows[1]))
    assert torch.equal(torch.from_numpy(other[0])[None], distribution(logits[2:], rows[2]))
    with pytest.raises(NonFiniteLogits):
        wrong[0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_rule_computes_the_distributions_it_comes_to_and_no_others(sampling: Sampling) -> None:
    draft = Draft.chain([3, 4, 5])
    logits = random_logits(4, 2, V, 2.0)
    logits[3] = math.nan
    (found,) = distributions([sampling_rows(state(sampling), draft)], logits)
    asked: list[int] = []

    def draw(p: np.ndarray, depth: int) -> int:
        asked.append(depth)
        return 3 if depth == 0 else 9  # the first guess holds, the second does not

    assert walk(draft, found, draw).path == (0,)
    assert asked == [0, 1]
    assert set(found._found) == {0, 1}
    with pytest.raises(NonFiniteLogits):  # had the rule come to it
        found[3]
    assert found[2].sum() == pytest.approx(1)


def test_edited_greedy_rows_are_edited_as_they_are_asked_for() -> None:
    edited = Sampling(logit_bias={7: 4.0}, frequency_penalty=1.5)
    draft = Draft((3, 4, 5, 6), (-1, 0, 0, 1))
    rows = [sampling_rows(state(each), draft) for each in (edited, Sampling(), edited)]
    logits = random_logits(15, 1, V, 2.0)
    logits[4] = math.nan
    found = distributions(rows, logits)
    for each, of, part in zip(found, rows, logits.split(5), strict=True):
        assert each.tokens is not None
        assert list(each.tokens) == greedy(part, of)
        assert each.argmax == tuple(greedy(part, of))
    assert found[0].tokens is not None
    assert found[0].tokens[4] == -1
    with pytest.raises(IndexError):
        found[0].tokens[5]
    (fresh,) = distributions(rows[:1], logits[:5])
    assert walk(draft, fresh.tokens, lambda token, _: 3 if token >= 0 else 0).path == (0,)  # type: ignore[arg-type]
    assert set(fresh.tokens._found) == {0, 1}  # type: ignore[union-attr]


def test_the_distribution_after_a_leaf_that_is_rejected_is_never_computed() -> None:
    logits = random_logits(4, 2, V, 2.0)
    logits[0, 3] = 20  # the first guess may well be accepted, whatever became of those below it
    logits[2:] = math.nan  # after those two
    tree = Draft((3, 4, 5), (-1, 0, 0))
    (found,) = distributions([sampling_rows(state(SAMPLINGS[0]), tree)], logits)
    q = np.full((3, V), 1 / V, dtype=np.float32)

    def never(chance: float, node: int) -> bool:
        return node == 0

    verdict = traverse(tree, found, q, never, lambda distribution, _: int(distribution.argmax()))
    assert verdict.path == (0,)
    assert set(found._found) == {0, 1}


def test_rows_know_the_draft_where_a_processor_asks() -> None:
    tree = Draft((3, 4, 5), (-1, 0, 0))
    asking = SamplingState(Sampling(temperature=0.8, presence_penalty=0.5), (1, 2), V, frozenset())
    assert [row.drafted for row in sampling_rows(asking, tree)] == [(), (3,), (3, 4), (3, 5)]
    rows = sampling_rows(state(SAMPLINGS[0]), tree)
    assert len(rows) == 4
    assert all(row is rows[0] for row in rows)


def test_what_is_known_of_a_part_of_the_vocabulary_is_made_once() -> None:
    """The drafts of a drafter name the same tensor, and the place of a token is asked for at every node."""
    tokens = torch.tensor([7, 2, 40])
    drafts = [Draft.chain((2, 7), torch.tensor([[0.25, 0.5, 0.25], [1, 0, 0]]), tokens) for _ in range(2)]
    (first, _), (other, last) = map(drafted_distributions, drafts)
    assert isinstance(first, PartialDistribution)
    assert isinstance(other, PartialDistribution)
    assert first.known is other.known
    assert [first[token] for token in (7, 2, 40, 3)] == [0.25, 0.5, 0.25, 0]
    assert last[7] == 1
