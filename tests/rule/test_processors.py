"""A processor of one's own, a grammar: the exact distribution with chains and trees, rollback after rejections, the
engine."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from support.enumeration import Oracle, completed, joint, outcomes
from support.grammar import DIGITS, DOT, END, GRAMMAR_VOCAB, Grammar, Matcher, follows
from support.tiny import random_model

from headstart.drafters import Drafter
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.rule import distribution as distribution_module
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.verify import traverse, walk
from headstart.types import Draft, Sampling

PENALISED = Sampling(temperature=1.0, repetition_penalty=1.5, frequency_penalty=0.5, logit_bias={2: 0.5})


def begin(sampling: Sampling = PENALISED) -> SamplingState:
    return SamplingState(sampling, (0,), GRAMMAR_VOCAB, frozenset({END}), processors=[Grammar(Matcher())])


@cache
def logits(seed: int, context: tuple[int, ...]) -> torch.Tensor:
    weights = np.random.default_rng([seed, len(context), *context]).normal(size=GRAMMAR_VOCAB)
    return torch.tensor(weights, dtype=torch.float32)


def exact(p: torch.Tensor) -> Any:
    """The very float32 numbers as rationals, with the sum 1."""
    weights = [Fraction(float(x)) for x in p]
    return np.array([weight / sum(weights) for weight in weights], dtype=object)


class Model:
    """Distributions after every context, each from a state that was extended to it token by token."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, context: tuple[int, ...]) -> Any:
        state = begin()
        for token in context:
            state = state.after((token,))
        return exact(distribution(logits(self.seed, context)[None], [SamplingRow(state)])[0])


def one_round(oracle: Oracle, state: SamplingState, text: tuple[int, ...], shape: Sequence[int], drawn: bool) -> Any:
    """Draft from model 2 (or guess anything), judge with model 1; all rows of one state, as the engine has it."""
    tokens: list[int] = []
    parents: list[int] = []
    distributions: list[Any] = []
    paths: list[tuple[int, ...]] = [()]
    level = [-1]
    for width in shape:
        below = []
        for parent in level:
            path = paths[parent + 1]
            q = exact(distribution(logits(2, (*text, *path))[None], [SamplingRow(state, path)])[0]) if drawn else None
            for sibling in range(width):
                if q is not None and not q.sum() > 0:
                    break
                token = (sibling + len(path)) % GRAMMAR_VOCAB if q is None else oracle.draw(q)
                below.append(len(tokens))
                tokens.append(token)
                parents.append(parent)
                paths.append((*path, token))
                distributions.append(q)
                if q is not None:
                    q = q.copy()
                    q[token] = Fraction(0)
                    q = q / q.sum() if q.sum() > 0 else q
        level = below
    draft = Draft(tuple(tokens), tuple(parents))
    rows = distribution(
        torch.stack([logits(1, (*text, *path)) for path in paths]), [SamplingRow(state, path) for path in paths]
    )
    p = [exact(row) for row in rows]
    if drawn:
        verdict = traverse(draft, p, distributions, lambda a, _: oracle.uniform(a), lambda row, _: oracle.draw(row))
    else:
        verdict = walk(draft, p, lambda row, _: oracle.draw(row))
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "point masses"])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1), (2,), (2, 1), (1, 2)], ids=str)
def test_a_grammar_keeps_the_distribution_exactly_over_several_rounds(shape: tuple[int, ...], drawn: bool) -> None:
    length = len(shape) + 2

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        state, text = begin(), ()
        while len(text) < 2:
            emitted = one_round(oracle, state, text, shape, drawn)
            state, text = state.after(emitted), (*text, *emitted)
        return text[:length]

    model: Any = Model(1)
    found = completed(outcomes(procedure), model, length)
    assert found == joint(model, length, GRAMMAR_VOCAB)
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
