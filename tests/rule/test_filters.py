"""Top-k and top-p on the host, which look at the largest logits only, against their twins that sort everything."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference_distribution import random_logits

from headstart.rule import filters
from headstart.types import Sampling

LIMITS = (1e-4, 0.3, 0.9, 0.999, 0.999999, 1.0, 0.5)
KS = (1, 2, 3, 40, 1000, 10**6, 0)


@pytest.mark.parametrize("vocab_size", [3, 16, 300, 2100, 9000])
def test_the_host_keeps_what_the_device_keeps(vocab_size: int) -> None:
    for seed, scale in enumerate((0.0, 0.5, 2.0, 8.0)):
        exact = random_logits(len(LIMITS), seed, vocab_size, scale)
        cut = exact.masked_fill(torch.arange(vocab_size) % 3 == 1, -math.inf)  # as a processor leaves it
        few = exact.masked_fill(torch.arange(vocab_size) > 1, -math.inf)
        for x in (exact, exact.bfloat16().float(), exact.round(), cut, few):
            by_mass = filters._top_p_on_device(x, LIMITS)
            for widths in ((), (2,), (4, 16), (128,), filters.NUCLEUS_WIDTHS):
                assert torch.equal(filters._top_p_on_host(x, LIMITS, widths), by_mass)
            ks = [min(k, vocab_size) for k in KS]
            assert torch.equal(filters._top_k_on_host(x, ks), filters._top_k_on_device(x, ks))


def test_a_tie_just_beyond_the_width_is_seen() -> None:
    kept = filters._top_p_on_host(torch.zeros(1, 4), [0.5], widths=(2, 3))
    assert kept.isfinite().tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_a_distribution_has_none_afterwards_and_its_neighbour_keeps_its_own(bad: float) -> None:
    x = random_logits(3, 5, 400, 2.0)
    x[1, 7] = bad
    if bad == -math.inf:
        x[1] = bad
    for s in (Sampling(temperature=1, top_k=5), Sampling(temperature=1, top_p=0.5)):
        p = filters.filtered(x, [s] * 3).softmax(-1)
        assert p[1].isnan().all()
        alone = filters.filtered(x[[0, 2]], [s] * 2).softmax(-1)
        assert torch.equal(p[[0, 2]], alone)
        assert (alone > 0).sum() < alone.numel()


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=200),
    st.integers(1, 200),
)
def test_the_largest_are_all_that_reach_the_last_of_them(values: list[float], count: int) -> None:
    x = np.array(values, dtype=np.float32)
    found = x[filters._largest(x, min(count, len(x)))]
    above = np.sort(x[x > -math.inf])[::-1]
    assert len(found) >= min(count, len(above))
    assert np.array_equal(found, above[: len(found)])
    assert len(found) == len(above) or above[len(found)] < found[-1]  # ties are not split
