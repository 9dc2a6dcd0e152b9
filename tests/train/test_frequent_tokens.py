"""A loss over some of the tokens: right on average, and the whole loss where all of them count."""

from __future__ import annotations

import math

import pytest
import torch
from support.tiny import VOCAB, random_model

from headstart.train.frequent_tokens import Logits, LossTokens


def test_the_frequent_tokens_always_count_and_the_others_in_turn() -> None:
    over = LossTokens.of(torch.tensor([[5, 5, 5, 7, 7, 9], [5, 7, 9, 9, 1, 1]]), 20, 4)
    assert over.common.tolist() == [1, 5, 7, 9]
    assert over.size == 5
    seen = set()
    for seed in range(200):
        tokens, weights = over.draw(torch.Generator().manual_seed(seed))
        assert tokens is not None
        assert weights is not None
        assert tokens[:4].tolist() == [1, 5, 7, 9]
        assert weights.tolist() == pytest.approx([0, 0, 0, 0, math.log(16)])
        seen.add(int(tokens[4]))
    assert seen == set(range(20)) - {1, 5, 7, 9}
    assert LossTokens.of(torch.zeros(1, 4), 20, None).draw(torch.Generator()) == (None, None)


def test_the_sum_under_the_softmax_is_right_on_average() -> None:
    logits = torch.randn(400, generator=torch.Generator().manual_seed(0)) * 2
    over = LossTokens.of(torch.arange(40)[None], 400, 40)
    whole = logits.exp().sum()
    sums = []
    for seed in range(2000):
        tokens, weights = over.draw(torch.Generator().manual_seed(seed))
        sums.append((logits[tokens] + weights).exp().sum())
    assert torch.stack(sums).mean() == pytest.approx(float(whole), rel=0.05)
    naive = logits[over.common].exp().sum()
    assert abs(naive - whole) > 0.5 * whole, "without the others it would be wrong"


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_logits_of_some_tokens_are_those_of_the_model(name: str) -> None:
    """Gemma 2 bends its logits after the output matrix."""
    model = random_model(name)
    logits = Logits(model)
    ids = torch.randint(3, VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
    tokens, weights = torch.tensor([3, 50, 96]), torch.tensor([0.0, 1.0, 2.0])
    rows = torch.tensor([0, 4, 8])
    with torch.no_grad():
        want = model(ids).logits
        torch.testing.assert_close(logits(ids, None, None, None), want)
        torch.testing.assert_close(logits(ids, rows, tokens, weights), want[:, rows][..., tokens] + weights)
