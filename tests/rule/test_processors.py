"""A processor of one's own, a grammar: the exact distribution with chains and trees, rollback after rejections, the
engine."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
import torch
from support.enumeration import Oracle, completed, joint, outcomes
from support.grammar import DIGITS, DOT, END, GRAMMAR_VOCAB, Grammar, Matcher, follows
from support.masked_rounds import World
from support.tiny import random_model

from headstart.drafters import Drafter
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.rule import distribution as distribution_module
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.types import Draft, Sampling

PENALISED = Sampling(temperature=1.0, repetition_penalty=1.5, frequency_penalty=0.5, logit_bias={2: 0.5})


def begin(sampling: Sampling = PENALISED) -> SamplingState:
    return SamplingState(sampling, (0,), GRAMMAR_VOCAB, frozenset({END}), processors=[Grammar(Matcher())])


WORLD = World(begin, GRAMMAR_VOCAB)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "point masses"])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1), (2,), (2, 1), (1, 2)], ids=str)
def test_a_grammar_keeps_the_distribution_exactly_over_several_rounds(shape: tuple[int, ...], drawn: bool) -> None:
    length = len(shape) + 2

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        state, text = begin(), ()
        while len(text) < 2:
            emitted = WORLD.round(oracle, state, text, shape, "masked" if drawn else None)
            state, text = state.after(emitted), (*text, *emitted)
        return text[:length]

    found = completed(outcomes(procedure), WORLD.model, length)
    assert found == joint(WORLD.model, length, GRAMMAR_VOCAB)
    assert all(follows(text) for text in found)
    assert any(DOT in text for text in found)
    assert any(set(text) <= set(DIGITS) for text in found)


def test_a_state_is_a_value_that_can_cross_a_process_boundary() -> None:
    sampling = Sampling(
        temperature=1.0, logit_bias={1: 0.5}, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.1,
        min_tokens=3,
    )  # fmt: skip
    state = begin(sampling).after((0, 1))
    before = pickle.dumps(state)
    copy = pickle.loads(before)
    x = torch.randn(3, GRAMMAR_VOCAB, generator=torch.Generator().manual_seed(1))
    paths = [(), (1,), (1, 2)]
    here = distribution(x, [SamplingRow(state, path) for path in paths])
    assert torch.equal(here, distribution(x, [SamplingRow(copy, path) for path in paths]))
    assert len(copy.processors) == 5
    assert pickle.dumps(state) == before
    assert state.after((1, 2)).after(()) is not state
    assert state.after(()) is state


def test_a_processor_without_a_device_version_goes_through_the_host() -> None:
    rows = [SamplingRow(begin(), path) for path in [(), (0,), (0, 1, 2)]] + [SamplingRow(begin(Sampling()), (1,))]
    x = torch.randn(len(rows), GRAMMAR_VOCAB, generator=torch.Generator().manual_seed(2))
    x[1, 3] = math.nan  # which a mask must not hide
    host = torch.from_numpy(distribution_module._edit_on_host(x.numpy(), rows, None))
    torch.testing.assert_close(distribution_module._edit_on_device(x, rows), host, rtol=0, atol=0, equal_nan=True)
    assert host[1, 3].isnan()
    assert host[3].isfinite().tolist() == [True, True, True, False]


class Repeating(Drafter):
    """Guesses what often is right, and often what the grammar forbids."""

    name = "repeating"
    default_budget = 5

    def propose(self, contexts: Any) -> list[Draft]:
        return [Draft((0, 1, 2, 3, 2), (-1, -1, 1, 2, 0)) for _ in contexts]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_holds_in_the_engine_whatever_is_drafted(temperature: float) -> None:
    target = ModelRunner(adopt(random_model("llama")), max_length=64)
    sampling = Sampling(max_tokens=12, temperature=temperature, seed=3, repetition_penalty=1.3, ignore_eos=True)
    texts = []
    for drafter in (None, Repeating()):
        engine = assemble(target, drafter=drafter)
        requests = [engine.submit([5, 17, n], sampling) for n in range(4)]
        for request in requests:
            grammar = Grammar(Matcher())
            request.sampling_state = SamplingState(
                sampling, request.prompt, target.vocab_size, frozenset(), processors=[grammar]
            )
        while any(request.finish_reason is None for request in requests):
            engine.step()
        outputs = [request.finish() for request in requests]
        texts.append([output.tokens for output in outputs])
        assert all(len(text) == 12 and follows(text) for text in texts[-1])
        if drafter is not None:
            assert sum(output.stats.accepted for output in outputs) > 0
    assert texts[0] == texts[1]
