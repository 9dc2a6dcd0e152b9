"""The draft LM: what it proposes is its own distribution, and its cache follows the committed text at the least
cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.counting import rows_fed
from support.tiny import VOCAB, random_model

from headstart.drafters import Row
from headstart.drafters.draft_model import DraftModel
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Budget, Sampling


@pytest.fixture
def drafter() -> DraftModel:
    runner = ModelRunner(adopt(random_model("llama")), max_length=64)
    return DraftModel(runner, name="tiny", vocab_size=VOCAB, slots=3, chunk=8)


def context(tokens: Sequence[int], budget: int = 3, request: int = 0, **sampling: Any) -> Row:
    distribution = SamplingState(Sampling(**sampling), tokens, VOCAB, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(7), budget=Budget(budget))


def plain_distribution(tokens: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        return (random_model("llama")(torch.tensor([list(tokens)])).logits[0, -1] / temperature).softmax(-1)


@pytest.mark.parametrize("prompt", [[5], list(range(3, 30))], ids=["short", "read in chunks"])
def test_q_is_the_distribution_each_token_was_drawn_from(drafter: DraftModel, prompt: list[int]) -> None:
    (draft,) = drafter.propose([context(prompt, temperature=0.7)])
    assert draft.q is not None
    assert draft.q.shape == (3, VOCAB)
    for i in range(3):
        want = plain_distribution([*prompt, *draft.tokens[:i]], 0.7)
        torch.testing.assert_close(draft.q[i], want, atol=1e-5, rtol=1e-4)
    noise = Noise(7)
    drawn = [noise.draw(draft.q[i].numpy(), len(prompt) + i, Purpose.DRAFT, len(prompt)) for i in range(3)]
    assert list(draft.tokens) == drawn


def test_a_greedy_draft_is_the_argmax_chain_and_a_point_mass(drafter: DraftModel) -> None:
    (draft,) = drafter.propose([context([5, 6])])
    assert draft.q is None
    text = [5, 6]
    for token in draft.tokens:
        assert token == int(plain_distribution(text).argmax())
        text.append(token)


def test_penalties_act_inside_the_draft(drafter: DraftModel) -> None:
    """A repetition penalty this strong forbids a second use, also of the draft's own tokens."""
    (draft,) = drafter.propose([context([5, 6], budget=6, frequency_penalty=100.0)])
    assert len(set(draft.tokens)) == 6


def test_catching_up_costs_two_tokens_after_full_acceptance_and_one_after_a_rejection(
    drafter: DraftModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_fed(drafter, monkeypatch)
    prompt = [5, 6, 7]
    (first,) = drafter.propose([context(prompt)])
    assert rows == [3, 1, 1]
    accepted = [*prompt, *first.tokens, 9]
    rows.clear()
    (second,) = drafter.propose([context(accepted)])
    assert rows == [2, 1, 1]
    rejected = [*accepted, second.tokens[0], (second.tokens[1] + 1) % VOCAB]
    rows.clear()
    (third,) = drafter.propose([context(rejected)])
    assert rows == [1, 1, 1]
    fresh = DraftModel(drafter.runner, name="fresh", vocab_size=VOCAB, slots=1)
    assert third.tokens == fresh.propose([context(rejected)])[0].tokens


def test_a_batch_of_different_budgets_equals_each_alone(drafter: DraftModel) -> None:
    contexts = [
        context([5, 6], 1, 0, temperature=1.0),
        context([9] * 12, 4, 1),
        context([3], 2, 2, temperature=0.5, top_p=0.9),
    ]
    together = drafter.propose(contexts)
    for each, draft in zip(contexts, together, strict=True):
        alone = DraftModel(drafter.runner, name="alone", vocab_size=VOCAB, slots=1).propose([each])[0]
        assert alone.tokens == draft.tokens
        assert len(draft) == each.budget.nodes


def test_at_the_end_of_its_context_it_proposes_less_and_then_nothing(drafter: DraftModel) -> None:
    lengths = [len(drafter.propose([context([5] * n, 3)])[0]) for n in (61, 62, 63, 64, 90)]
    assert lengths == [3, 2, 1, 0, 0]


def test_slots_are_given_back(drafter: DraftModel) -> None:
    for request in range(10):
        drafter.propose([context([5, 6], request=request)])
        drafter.release(request)
        drafter.release(request)
    drafter.cache.check()
    assert drafter.cache.free_slots == 3
