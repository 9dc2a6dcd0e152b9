"""Compiled draws give the tokens of NumPy's, and hand over what they cannot tell."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.bounds import runs_within_bounds

from headstart.base import compiling
from headstart.rule import noise, race
from headstart.rule.noise import Noise, Purpose

MASK = (1 << 64) - 1


@pytest.fixture(scope="module")
def first() -> race.First:
    found = race.compiled()
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def distributions(rng: np.random.Generator, size: int) -> dict[str, NDArray[np.float32]]:
    peaked = np.exp(8 * rng.standard_normal(size))
    few = np.where(rng.random(size) < 0.01, peaked, 0)
    few[rng.integers(size)] = 1
    made = {
        "even": np.ones(size) / size,
        "smooth": np.exp(rng.standard_normal(size)),
        "peaked": peaked / peaked.sum(),
        "few": few,
        "ties": rng.integers(1, 3, size) / size,
        "small": np.exp(rng.standard_normal(size)) * 1e-36,
        "smallest": rng.integers(0, 3, size) * 1e-45,
        "great": np.exp(rng.standard_normal(size)) * 1e34,
        "mixed": np.exp(40 * rng.standard_normal(size)).clip(1e-44, 1e37),
    }
    return {name: distribution.astype(np.float32) for name, distribution in made.items()}


@pytest.mark.parametrize("size", [512, 513, 1000, 4099, 60_000])
def test_draws_are_those_of_numpy(first: race.First, size: int) -> None:
    """One at a time, and several without replacement."""
    rng = np.random.default_rng(size)
    for position in range(20 if size > 10_000 else 100):
        for name, distribution in distributions(rng, size).items():
            drawn = Noise(5).first(distribution, position, Purpose.DRAFT, 3, 4)
            assert drawn == in_numpy(distribution, position, 4), name
            assert Noise(5).draw(distribution, position, Purpose.DRAFT, lane=3) == drawn[0], name


@pytest.mark.parametrize("size", [100, 513, 4099])
def test_columns_of_a_part_of_the_vocabulary_have_the_noise_of_their_tokens(first: race.First, size: int) -> None:
    """As if the whole vocabulary ran, of which the other tokens have no weight; in whatever order the columns are."""
    rng = np.random.default_rng(size)
    tokens = rng.permutation(9000)[:size]
    decided = 0
    for position in range(30):
        for name, distribution in distributions(rng, size).items():
            whole = np.zeros(9000, dtype=np.float32)
            whole[tokens] = distribution
            found = Noise(5).first(distribution, position, Purpose.TOKEN, 0, 4, tokens)
            assert tokens[found].tolist() == Noise(5).first(whole, position, Purpose.TOKEN, 0, 4), name
            decided += first(distribution, position, 4, tokens) is not None
    assert decided > 100, "a draw that always fell back would pass the above"


def in_numpy(weights: NDArray[np.float32], position: int, count: int) -> list[int]:
    rest = weights.copy()
    drawn: list[int] = []
    while len(drawn) < min(count, np.count_nonzero(weights)):
        drawn.append(Noise(5)._draw(rest, position, Purpose.DRAFT, 3))
        rest[drawn[-1]] = 0
    return drawn


def test_there_are_no_more_tokens_than_have_a_weight(first: race.First) -> None:
    weights = np.zeros(2000, dtype=np.float32)
    weights[[3, 700, 1999]] = 0.5, 0.3, 0.2
    assert sorted(first(weights, 11, 8) or ()) == [3, 700, 1999]
    assert len(first(weights, 11, 2) or ()) == 2
    assert Noise(5).first(np.zeros(600, dtype=np.float32), 0, Purpose.DRAFT, 3, 2) == []
    assert Noise(5).first(np.full(600, np.nan, dtype=np.float32), 0, Purpose.DRAFT, 3, 2) == []


def test_it_decides_the_usual_distributions_and_hands_over_the_others(first: race.First) -> None:
    """A draw that always fell back on NumPy would pass every other test."""
    rng = np.random.default_rng(1)
    decided = {name: first(distribution, 7, 3) is not None for name, distribution in distributions(rng, 5000).items()}
    handed_over = {"small", "smallest", "great", "mixed"}
    assert {name for name, done in decided.items() if not done} <= handed_over
    assert not decided["smallest"]
    assert not decided["great"]
    assert first(np.zeros(600, dtype=np.float32), 7, 1) is None
    assert first(np.full(600, np.nan, dtype=np.float32), 7, 1) is None


def unmixed(bits: int) -> int:
    """The number that `mixed` turns into these 53 bits."""
    z = bits << 11
    z ^= (z >> 31) ^ (z >> 62)
    z = z * pow(noise._MIX2, -1, 1 << 64) & MASK
    z ^= (z >> 27) ^ (z >> 54)
    z = z * pow(noise._MIX1, -1, 1 << 64) & MASK
    return z ^ (z >> 30) ^ (z >> 60)


@pytest.mark.parametrize("bits", [2**53 - 1, 2**53 - 2, 2**53 - 9, 0])
@pytest.mark.parametrize("place", [0, 255, 256, 699])
def test_numbers_next_to_one_and_to_zero(first: race.First, bits: int, place: int) -> None:
    """There the bound of a token is many times, or a small part of, what the other tokens have."""
    key = (unmixed(bits) - (place + 1) * noise._GOLDEN) & MASK
    counters = (np.arange(700, dtype=np.uint64) + np.uint64(1)) * np.uint64(noise._GOLDEN)
    exponentials = noise._exponentials(noise._mix_array(counters + np.uint64(key)) >> np.uint64(11))
    assert (noise._mix((key + (place + 1) * noise._GOLDEN) & MASK) >> 11) == bits
    decided = 0
    for share in np.geomspace(1e-22, 1e3, 200):
        distribution = np.ones(700, dtype=np.float32)
        distribution[place] = share
        found = first(distribution, key, 1)
        with np.errstate(divide="ignore"):  # the last number rounds to u = 1: that token wins whatever its weight
            winner = int((distribution / exponentials).argmax())
        assert found is None or found == [winner]
        decided += found is not None
    assert decided == 0 if bits == 2**53 - 1 else decided > 190


def test_without_a_compiler_numpy_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> str:
        raise compiling.Unavailable("there is no C++ compiler on this machine")

    distribution = np.ones(5000, dtype=np.float32)
    expected = Noise(1).draw(distribution, 0, Purpose.TOKEN)
    race.compiled.cache_clear()
    try:
        monkeypatch.setattr(compiling, "find_compiler", none)
        monkeypatch.setattr(compiling, "PREBUILT", tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert race.compiled() is None
        assert Noise(1).draw(distribution, 0, Purpose.TOKEN) == expected
    finally:
        monkeypatch.undo()
        race.compiled.cache_clear()


def test_a_loose_guard_would_be_found(first: race.First, tmp_path: Path) -> None:
    """With bounds that are too low, some winner is left out: these tests can fail."""
    source = race._SOURCE.read_text(encoding="utf-8")
    wrong = source.replace(
        "weights[i + j], lanes[j]);\n            found",
        "weights[i + j], lanes[j]) * 0.5f;\n            found",
    )
    assert wrong != source
    (tmp_path / "race.cpp").write_text(wrong, encoding="utf-8")
    loose = race.bound_to(ctypes.CDLL(str(compiling.library(tmp_path / "race.cpp").path)))
    assert differences(loose)
    assert not differences(first)


def differences(find: race.First) -> int:
    found = 0
    for key in range(1000):
        distribution = np.ones(700, dtype=np.float32)
        counters = (np.arange(700, dtype=np.uint64) + np.uint64(1)) * np.uint64(noise._GOLDEN)
        exponentials = noise._exponentials(noise._mix_array(counters + np.uint64(key)) >> np.uint64(11))
        found += find(distribution, key, 1) != [int((distribution / exponentials).argmax())]
    return found


def test_it_reads_and_writes_within_its_bounds(first: race.First, tmp_path: Path) -> None:
    main = """
    #include "race.cpp"
    #include <vector>
    int main() {
        for (int64_t size = 1; size < 1200; size += size < 600 ? 1 : 37) {
            std::vector<float> distribution(size, 1.0f);
            std::vector<int64_t> drawn(4), tokens(size, 7);
            for (uint64_t key = 0; key < 5; ++key) {
                headstart_draw(distribution.data(), nullptr, size, key, drawn.data(), 4);
                headstart_draw(distribution.data(), tokens.data(), size, key, drawn.data(), 4);
            }
        }
    }"""
    runs_within_bounds(main, race._SOURCE.parent, tmp_path)
