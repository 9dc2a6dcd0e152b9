"""The estimate of acceptance equals a direct computation."""

from __future__ import annotations

import pytest
import torch
from support.training_models import tiny_llama

from headstart.base.errors import TrainingFailed
from headstart.train.acceptance import (
    acceptance_rates,
    accepted_in_passes,
    chain_rates,
    measure,
)
from headstart.train.windows import Windows


def test_measure_equals_direct_computation() -> None:
    target, draft = tiny_llama(seed=1), tiny_llama(hidden=32, layers=1, seed=2)
    ids = torch.randint(257, (3, 20), generator=torch.Generator().manual_seed(0))
    found = measure(target, draft, Windows.plain(ids))
    with torch.no_grad():
        p_logits, q_logits = target(ids).logits[:, 1:], draft(ids).logits[:, 1:]
    for temperature in (0.7, 1.0):
        total = 0.0
        for p, q in zip(p_logits.flatten(0, 1), q_logits.flatten(0, 1), strict=True):
            total += sum(map(min, (p / temperature).softmax(-1).tolist(), (q / temperature).softmax(-1).tolist()))
        assert found.rate[f"{temperature:g}"] == pytest.approx(total / 57, rel=1e-4)
    agree = (p_logits.argmax(-1) == q_logits.argmax(-1)).float().mean().item()
    assert found.rate["0"] == pytest.approx(agree)
    kl = torch.nn.functional.kl_div(
        q_logits.log_softmax(-1), p_logits.log_softmax(-1), log_target=True, reduction="none"
    )
    assert found.kl == pytest.approx(kl.sum(-1).mean().item(), rel=1e-4)


def test_only_answers_are_measured() -> None:
    target, draft = tiny_llama(seed=1), tiny_llama(hidden=32, layers=1, seed=2)
    ids = torch.randint(257, (2, 20), generator=torch.Generator().manual_seed(0))
    answers = torch.zeros_like(ids, dtype=torch.bool)
    answers[0, 5:9] = answers[1, 17:] = True
    found = measure(target, draft, Windows(ids, answers))
    with torch.no_grad():
        p, q = (model(ids).logits.argmax(-1) for model in (target, draft))
        nats = torch.nn.functional.cross_entropy(target(ids).logits[:, :-1].mT, ids[:, 1:], reduction="none")
    same = (p == q).float()
    rows = torch.cat([same[0, 4:8], same[1, 16:]])  # row 19 guesses what would come next
    assert found.rate["0"] == pytest.approx(rows.mean().item())
    assert found.target_nats == pytest.approx(torch.cat([nats[0, 4:8], nats[1, 16:]]).mean().item(), rel=1e-4)
    assert found.tokens == 7


def test_prompts_without_an_answer_are_refused() -> None:
    model = tiny_llama()
    ids = torch.randint(257, (2, 16))
    with pytest.raises(TrainingFailed, match="no answer"):
        measure(model, model, Windows(ids, torch.zeros_like(ids, dtype=torch.bool)))


def test_a_model_accepts_itself() -> None:
    model = tiny_llama()
    found = measure(model, model, Windows.plain(torch.randint(257, (2, 16))))
    assert found.rate["1"] == pytest.approx(1.0, abs=1e-5)
    assert found.length["0"] == pytest.approx(4.0)
    assert found.target_nats == found.draft_nats


def test_accepted_length_counts_runs_from_every_position() -> None:
    rates = torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0]])
    # runs of at most 2 beginning at positions 0..3: 2, 1, 0, 2
    assert sum(accepted_in_passes([chain_rates(rates[0], 2)])) == pytest.approx(5 / 4)
    constant = torch.full((1, 50), 0.8)
    assert sum(accepted_in_passes([chain_rates(constant[0], 4)])) == pytest.approx(0.8 + 0.8**2 + 0.8**3 + 0.8**4)


def test_temperature_zero_is_agreement_of_the_likeliest() -> None:
    p, q = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[0.0, 9.0], [0.0, 1.0]])
    assert acceptance_rates(p, q, 0.0).tolist() == [1.0, 0.0]


def test_depths_of_passes_with_rates_of_their_own() -> None:
    first, second = torch.tensor([1.0, 0.0, 0.5, 1.0]), torch.tensor([0.5, 1.0, 1.0])
    # the last row of the first pass has no second guess, and does not count
    assert accepted_in_passes([[first, second]]) == pytest.approx((0.5, 1 / 3))
    assert accepted_in_passes([[first, second], [first, second]]) == pytest.approx((0.5, 1 / 3))
    rates = torch.tensor([[0.5, 0.25, 1.0]])
    assert accepted_in_passes([chain_rates(rates[0], 2)]) == pytest.approx((0.375, 0.1875))
