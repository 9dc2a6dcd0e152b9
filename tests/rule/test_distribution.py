"""The distribution: each processor against transformers' own, at draft positions, in ragged batches, and on bad
logits."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference_distribution import (
    GREEDY,
    OUTPUT,
    SAMPLED,
    V,
    random_logits,
    state_of,
    transformers_logits,
)
from transformers.generation import logits_process as hf

from headstart.base.errors import InvalidOption
from headstart.rule import distribution as distribution_module
from headstart.rule.distribution import SamplingRow, SamplingState, distribution, process, token_logprobs
from headstart.types import Sampling


@pytest.mark.parametrize("name", SAMPLED)
def test_the_processors_are_those_of_transformers(name: str) -> None:
    x, s = random_logits(16, seed=1), SAMPLED[name]
    expected = transformers_logits(x, s)
    found = process(x, [SamplingRow(state_of(s))] * len(x))
    torch.testing.assert_close(found, expected)
    assert torch.equal(found.isneginf(), expected.isneginf())
    p = distribution(x, [SamplingRow(state_of(s))] * len(x))
    torch.testing.assert_close(p, expected.softmax(-1))
    torch.testing.assert_close(p.sum(-1), torch.ones(len(x)))


@pytest.mark.parametrize("name", GREEDY)
def test_temperature_0_is_the_one_hot_distribution_of_transformers_greedy(name: str) -> None:
    x, s = random_logits(16, seed=2), GREEDY[name]
    p = distribution(x, [SamplingRow(state_of(s))] * len(x))
    edits = Sampling(
        logit_bias=s.logit_bias,
        repetition_penalty=s.repetition_penalty,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        min_tokens=s.min_tokens,
    )
    expected = transformers_logits(x, edits).argmax(-1)
    assert torch.equal(p, torch.nn.functional.one_hot(expected, V).float())


def test_the_one_hot_shortcut_equals_the_softmax_of_the_processed_logits() -> None:
    x = random_logits(16, seed=3).bfloat16().float()  # with ties
    for s in GREEDY.values():
        rows = [SamplingRow(state_of(s))] * len(x)
        assert torch.equal(distribution(x, rows), process(x, rows).softmax(-1))


@pytest.mark.parametrize("name", SAMPLED)
def test_wherever_a_draft_begins_its_last_position_has_the_same_distribution(name: str) -> None:
    text = (*OUTPUT, 0, 30, 30, 7)
    x = random_logits(1, seed=8)
    distributions = [
        process(x, [SamplingRow(state_of(SAMPLED[name], text[:i]), text[i:])]) for i in range(len(text) + 1)
    ]
    assert all(torch.equal(found, distributions[-1]) for found in distributions)


token = st.integers(0, V - 1)
tokens = st.lists(token, max_size=6)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.4]),
    top_k=st.sampled_from([0, 1, 7, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.5]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 1.1]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    logit_bias=st.dictionaries(token, st.floats(-5, 5, width=32), max_size=3),
    min_tokens=st.integers(0, 12),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(sampling=samplings, output=tokens, drafted=tokens, seed=st.integers(0, 1000))
def test_a_draft_position_has_the_distribution_it_would_have_after_those_tokens(
    sampling: Sampling, output: list[int], drafted: list[int], seed: int
) -> None:
    x = random_logits(1, seed)
    before = SamplingRow(state_of(sampling, output), tuple(drafted))
    after = SamplingRow(state_of(sampling, [*output, *drafted]))
    assert torch.equal(distribution(x, [before]), distribution(x, [after]))
    assert torch.equal(process(x, [before]), process(x, [after]))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(samplings, tokens, tokens), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_a_row_has_the_same_bits_in_any_batch(rows: list[tuple[Sampling, list[int], list[int]]], seed: int) -> None:
    x = random_logits(len(rows), seed)
    batch = [SamplingRow(state_of(sampling, output), tuple(drafted)) for sampling, output, drafted in rows]
    together = distribution(x, batch)
    for r, row in enumerate(batch):
        assert torch.equal(together[r : r + 1], distribution(x[r : r + 1], [row]))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(samplings, tokens, tokens), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_the_edits_on_the_host_are_those_on_a_device(
    rows: list[tuple[Sampling, list[int], list[int]]], seed: int
) -> None:
    """The NumPy path of a CPU and its twin in tensor operations, bit for bit, bad logits included."""
    x = random_logits(len(rows), seed)
    x[0, seed % V] = (math.nan, math.inf, -math.inf)[seed % 3]
    sampling_rows = [SamplingRow(state_of(sampling, output), tuple(drafted)) for sampling, output, drafted in rows]
    before = x.clone()
    host = distribution_module._edit_on_host(x.numpy(), sampling_rows, None)
    device = distribution_module._edit_on_device(x, sampling_rows)
    torch.testing.assert_close(torch.from_numpy(host), device, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_row_is_nan_and_alone(bad: float) -> None:
    everything = [*SAMPLED.values(), *GREEDY.values()]
    rows = [SamplingRow(state_of(s), (1, 2)) for s in everything for _ in range(2)]
    x = random_logits(len(rows), seed=4)
    good = distribution(x, rows)
    spoilt = x.clone()
    spoilt[::2, 41] = bad  # a stop id, which min_tokens masks: the NaN must survive that
    p = distribution(spoilt, rows)
    assert p[::2].isnan().all()
    assert torch.equal(p[1::2], good[1::2])
    greedy = [row for row in rows if row.state.sampling.greedy]
    assert distribution(torch.full((len(greedy), V), bad), greedy).isnan().all()


def test_a_row_with_nothing_left_is_nan() -> None:
    rows = [
        SamplingRow(state_of(Sampling())),
        SamplingRow(state_of(Sampling(temperature=1, top_k=3, top_p=0.5, min_p=0.1))),
    ]
    x = torch.full((2, V), -math.inf)
    assert distribution(x, rows).isnan().all()
    assert distribution(x[:1], rows[:1]).isnan().all()


def test_the_logits_and_the_state_are_left_as_they_were() -> None:
    for s in (*SAMPLED.values(), *GREEDY.values()):
        x = random_logits(3, seed=5)
        kept, state = x.clone(), state_of(s)
        before = pickle.dumps(state)
        distribution(x, [SamplingRow(state, (1, 2)), SamplingRow(state), SamplingRow(state, (3,))])
        assert torch.equal(x, kept)
        assert pickle.dumps(state) == before


def test_low_precision_logits_are_read_in_float32() -> None:
    x = random_logits(4, seed=6).bfloat16()
    for s in (*SAMPLED.values(), *GREEDY.values()):
        rows = [SamplingRow(state_of(s))] * 4
        p = distribution(x, rows)
        assert p.dtype == torch.float32
        assert torch.equal(p, distribution(x.float(), rows))


def test_no_rows() -> None:
    assert distribution(torch.empty(0, V), []).shape == (0, V)


@pytest.mark.parametrize("vocab_size", [8, 97, 6144, 33000])
def test_greedy_takes_the_first_of_tied_maxima(vocab_size: int) -> None:
    x = torch.zeros(2, vocab_size)
    x[1, [5, 7, vocab_size - 1]] = 1
    for other in ((), (SamplingRow(SamplingState(Sampling(temperature=1), (), vocab_size, frozenset())),)):
        rows = [SamplingRow(SamplingState(Sampling(), (), vocab_size, frozenset())), *other]
        for r, first in ((0, 0), (1, 5)):
            p = distribution(x[[r] * len(rows)], rows)[0]
            assert int(p.argmax()) == int(x[r].argmax()) == first
            assert p.sum() == p.max() == 1


def test_top_k_keeps_what_ties_with_the_last() -> None:
    x = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    state = SamplingState(Sampling(temperature=1, top_k=2), (), 6, frozenset())
    assert process(x, [SamplingRow(state)]).isfinite().tolist() == [[False, True, True, True, True, False]]
    torch.testing.assert_close(process(x, [SamplingRow(state)]), hf.TopKLogitsWarper(2)(None, x))


@pytest.mark.parametrize(("top_p", "kept"), [(0.2, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.6, 3), (0.99, 4), (1.0, 4)])
def test_top_p_cuts_ties_to_the_number_transformers_keeps(top_p: float, kept: int) -> None:
    x = torch.zeros(1, 4)
    state = SamplingState(Sampling(temperature=1, top_p=top_p), (), 4, frozenset())
    assert process(x, [SamplingRow(state)]).isfinite().tolist() == [[i < kept for i in range(4)]]
    assert int(hf.TopPLogitsWarper(top_p)(None, x).isfinite().sum()) == kept


@pytest.mark.parametrize("temperature", [1e-4, 1e-12, 1e-38, 1e-300])
def test_very_low_temperatures_stay_finite(temperature: float) -> None:
    x = torch.tensor([[-400.0, 300.0, 299.0, 300.0]])
    rows = [SamplingRow(SamplingState(Sampling(temperature=t), (), 4, frozenset())) for t in (temperature, 0.0, 1.0)]
    p = distribution(x.expand(3, -1), rows)
    assert p[0].tolist() == [0, 0.5, 0, 0.5]
    assert p[1].tolist() == [0, 1, 0, 0]
    torch.testing.assert_close(p[2], x[0].softmax(-1))


def test_tokens_beyond_the_logits_are_ignored_or_refused() -> None:
    sampling = Sampling(repetition_penalty=1.5, min_tokens=1)
    state = SamplingState(sampling, (1, 99), 4, frozenset({2, 99}))
    assert process(torch.ones(1, 4), [SamplingRow(state)]).argmax() == 0
    with pytest.raises(InvalidOption, match="logit_bias names token 4"):
        SamplingState(Sampling(logit_bias={4: 1.0}), (), 4, frozenset())


def test_logprobs_before_and_after_the_processors() -> None:
    x = random_logits(3, seed=7)
    state = state_of(Sampling(temperature=0.5, top_k=2, logit_bias={9: 30.0}))
    p = distribution(x, [SamplingRow(state)] * 3)
    emitted = [9, 9, 9]
    raw = token_logprobs(x.bfloat16(), p, emitted, top=4, mode="raw")
    logs = x.bfloat16().float().log_softmax(-1)
    for row, entry in enumerate(raw):
        assert entry.token == 9
        assert entry.logprob == logs[row, 9].item()
        assert list(entry.top.values()) == logs[row].topk(4).values.tolist()
        assert [logs[row, t].item() for t in entry.top] == list(entry.top.values())
    for row, entry in enumerate(token_logprobs(x, p, emitted, top=4, mode="processed")):
        assert entry.logprob == pytest.approx(p[row, 9].log().item())
        assert len(entry.top) == 2  # top_k left two; the others have probability 0
        assert next(iter(entry.top)) == 9
    assert token_logprobs(x, p, emitted, top=0, mode="raw")[0].top == {}
    assert len(token_logprobs(x, p, emitted, top=10 * V, mode="raw")[0].top) == V
    assert token_logprobs(x[:0], p[:0], [], top=1, mode="raw") == []
