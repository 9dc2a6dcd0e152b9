"""Noise is a pure function of its arguments, well distributed, and never shared between purposes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from headstart.rule.noise import Noise, Purpose


def test_splitmix64_reference_values() -> None:
    """The published generator: seed 1234567 gives these first outputs (Vigna's splitmix64.c)."""
    from headstart.rule.noise import _GOLDEN, _MASK, _mix

    outputs = [_mix((1234567 + i * _GOLDEN) & _MASK) for i in range(1, 4)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_scalar_and_array_agree() -> None:
    noise = Noise(42)
    many = noise.exponentials(7, Purpose.ACCEPT, 3, 10)
    one = [-np.log(noise.uniform(7, Purpose.ACCEPT, 3, index)) for index in range(10)]
    np.testing.assert_array_equal(many, one)


def test_a_subset_is_the_same_noise_picked() -> None:
    noise = Noise(2**62 + 5)
    tokens = np.array([3, 99, 500])
    whole = noise.exponentials(1, Purpose.TOKEN, 0, 1000)
    np.testing.assert_array_equal(noise.exponentials(1, Purpose.TOKEN, 0, 1000, tokens), whole[tokens])


def test_every_argument_matters() -> None:
    draws = {
        Noise(seed).uniform(position, purpose, lane, index)
        for seed in (0, 1, 2**63 - 1)
        for position in (0, 1, 5000)
        for purpose in Purpose
        for lane in (0, 1, 2)
        for index in (0, 1)
    }
    assert len(draws) == 3 * 3 * len(Purpose) * 3 * 2


@pytest.mark.parametrize("by", ["seed", "position", "lane", "index"])
def test_uniform_along_every_argument(by: str) -> None:
    n = 4000
    draws = {
        "seed": [Noise(i).uniform(0, Purpose.ACCEPT) for i in range(n)],
        "position": [Noise(1).uniform(i, Purpose.ACCEPT) for i in range(n)],
        "lane": [Noise(1).uniform(0, Purpose.ACCEPT, i) for i in range(n)],
        "index": [Noise(1).uniform(0, Purpose.ACCEPT, 0, i) for i in range(n)],
    }[by]
    assert kstest(draws, "uniform").pvalue > 1e-4
    # neighbours are independent: the sign of successive differences from 1/2
    signs = np.array(draws) > 0.5
    assert abs(np.mean(signs[1:] == signs[:-1]) - 0.5) < 0.04


def test_draw_follows_the_distribution_and_skips_zeros() -> None:
    distribution = np.array([0.5, 0.0, 0.3, 0.2], dtype=np.float32)
    counts = np.bincount([Noise(seed).draw(distribution, 0, Purpose.TOKEN) for seed in range(5000)], minlength=4)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]], distribution[[0, 2, 3]].astype(float) * 5000).pvalue > 1e-4


def test_draw_reads_only_the_support() -> None:
    """Removing a token that does not win changes nothing: the noise belongs to the token, not to its rank."""
    distribution = np.array([0.1, 0.2, 0.3, 0.4])
    for seed in range(100):
        won = Noise(seed).draw(distribution, 0, Purpose.TOKEN)
        other = (won + 1) % 4
        less = distribution.copy()
        less[other] = 0
        assert Noise(seed).draw(less, 0, Purpose.TOKEN) == won


@pytest.mark.parametrize("size", [2, 7, 300, 5000])
@pytest.mark.parametrize("peaked", [0.0, 1.0, 8.0])
def test_the_winner_is_that_of_the_whole_race(size: int, peaked: float) -> None:
    """Most logarithms are left out; the token is the one that all of them would give."""
    rng = np.random.default_rng(size)
    for position in range(200):
        distribution = np.exp(peaked * rng.standard_normal(size)).astype(np.float32)
        distribution[rng.random(size) < (0.0, 0.5, 0.99)[position % 3]] = 0
        distribution[rng.integers(size)] = 0.5
        race = distribution / Noise(3).exponentials(position, Purpose.TOKEN, 0, size)
        assert Noise(3).draw(distribution, position, Purpose.TOKEN) == int(race.argmax())
