"""The formulas against published tables, against enumeration and chance, and against each other."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import theory
from headstart.base.errors import InvalidOption

ALPHAS = st.floats(0, 1)
COSTS = st.floats(0, 2)
LENGTHS = st.integers(0, 20)
ROUGH = {1: 1.0, 2: 1.05, 4: 1.1, 8: 1.4, 16: 2.3}
"""A v(n) such as machines have: nearly free, then not."""


def distributions(size: int, seed: int, count: int = 1, spread: float = 1.5) -> np.ndarray:
    logits = spread * np.random.default_rng(seed).standard_normal((count, size))
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


# -- published tables ------------------------------------------------------------------------------------------------

EXPECTED = {0.5: "1.50 1.75 1.88 1.97 2.00", 0.7: "1.70 2.19 2.53 2.94 3.20", 0.85: "1.85 2.57 3.19 4.15 5.12"}
BY_COST = {
    0.3: "1.36 1.14 .95 .71 .41",
    0.5: "1.88 1.58 1.31 .98 .56",
    0.7: "2.80 2.35 1.96 1.47 .84",
    0.8: "3.51 2.95 2.46 1.84 1.05",
    0.9: "4.46 3.75 3.12 2.34 1.34",
    0.95: "5.05 4.24 3.53 2.65 1.51",
}
BY_LENGTH = {
    0.5: "1.36 1.46 1.44 1.38 1.31 1.24 1.17 1.11 1.05 1.00 .95 .91",
    0.7: "1.55 1.83 1.95 1.98 1.96 1.91 1.85 1.78 1.70 1.63 1.57 1.50",
    0.85: "1.68 2.14 2.45 2.65 2.77 2.83 2.85 2.85 2.82 2.78 2.72 2.66",
    0.95: "1.77 2.38 2.85 3.23 3.53 3.77 3.96 4.11 4.22 4.31 4.38 4.42",
}
PRINTED = 0.005 + 1e-9  # half of the last printed digit; 1.875 was printed as 1.88


def printed(table: dict[float, str]) -> np.ndarray:
    return np.array([[float(value) for value in row.split()] for row in table.values()])


def test_published_tokens_per_round() -> None:
    ours = theory.expected_tokens(np.array(list(EXPECTED))[:, None], [1, 2, 3, 5, 8])
    np.testing.assert_allclose(ours, printed(EXPECTED), rtol=0, atol=PRINTED)


def test_published_speedups_by_draft_cost() -> None:
    ours = theory.alpha_c_table(list(BY_COST), [0.01, 0.05, 0.1, 0.2, 0.5], k=5)
    np.testing.assert_allclose(ours, printed(BY_COST), rtol=0, atol=PRINTED)


def test_published_speedups_by_draft_length() -> None:
    ours = theory.alpha_k_table(list(BY_LENGTH), np.arange(1, 13), c=0.1)
    np.testing.assert_allclose(ours, printed(BY_LENGTH), rtol=0, atol=PRINTED)


@pytest.mark.parametrize(("alpha", "best"), [(0.5, {2}), (0.7, {4}), (0.85, {7, 8}), (0.95, {12})])
def test_published_best_lengths(alpha: float, best: set[int]) -> None:
    assert theory.best_k(alpha, 0.1, most=12).k in best


def test_published_break_even() -> None:
    assert theory.break_even_alpha(5, 0.2) == pytest.approx(0.509, abs=5e-4)  # "just over .5"
    assert theory.break_even_alpha(5, 0.5) == pytest.approx(0.777, abs=5e-4)  # "nearly .8"


def test_a_perfect_draft() -> None:
    assert theory.speedup(1, 5, 0.1) == pytest.approx(4.0)
    assert theory.expected_tokens(1, 5) == 6
    assert theory.expected_tokens(0, 5) == 1
    assert theory.ceiling(1) == math.inf
    assert theory.ceiling(0.75) == 4


def test_published_acceptance_of_the_toy() -> None:
    """10 tokens, target N(0,1) and +2 on one, draft a * target + (1-a) N(0, .5); the mean of many draws, so roughly."""
    noise = np.random.default_rng(0)
    target = noise.standard_normal((2000, 10))
    target[:, 0] += 2
    other = 0.5 * noise.standard_normal(target.shape)
    ours = [
        float(theory.acceptance_at(target, a * target + (1 - a) * other, 1.0).mean())
        for a in (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1)
    ]
    np.testing.assert_allclose(ours, [0.53, 0.63, 0.72, 0.82, 0.92, 0.96, 0.98, 1.00], atol=0.02)


# -- tokens per round: twins -----------------------------------------------------------------------------------------


@given(ALPHAS, LENGTHS)
def test_expected_tokens_is_the_sum(alpha: float, k: int) -> None:
    assert theory.expected_tokens(alpha, k) == pytest.approx(math.fsum(alpha**i for i in range(k + 1)), rel=1e-12)


@pytest.mark.parametrize("alpha", [1 - 1e-9, 1 - 1e-13, math.nextafter(1, 0)])
def test_expected_tokens_keeps_its_digits_near_one(alpha: float) -> None:
    direct = math.fsum(alpha**i for i in range(1001))
    assert theory.expected_tokens(alpha, 1000) == pytest.approx(direct, rel=1e-12)


def test_expected_tokens_against_uniforms() -> None:
    uniforms = np.random.default_rng(1).random((200_000, 6)) < 0.8
    tokens = 1 + np.cumprod(uniforms, axis=1).sum(1)
    assert theory.expected_tokens(0.8, 6) == pytest.approx(tokens.mean(), abs=4 * tokens.std() / len(tokens) ** 0.5)


@given(st.lists(ALPHAS, min_size=1, max_size=6), st.integers(0, 9))
def test_by_position_is_the_sum_of_products(acceptance: list[float], k: int) -> None:
    held = [acceptance[min(i, len(acceptance) - 1)] for i in range(k)]
    direct = math.fsum(math.prod(held[:i]) for i in range(k + 1))
    assert theory.expected_tokens_by_position(acceptance, k) == pytest.approx(direct)


@given(ALPHAS, LENGTHS, COSTS)
def test_equal_positions_are_the_iid_case(alpha: float, k: int, c: float) -> None:
    assert theory.expected_tokens_by_position([alpha], k) == pytest.approx(theory.expected_tokens(alpha, k))
    ours = theory.speedup_by_position([alpha, alpha], k, c, ROUGH)
    assert ours == pytest.approx(theory.speedup(alpha, k, c, ROUGH))


def test_by_position_broadcasts() -> None:
    acceptance = np.random.default_rng(2).random((3, 1, 4))
    ks = np.array([[0, 1, 4, 7]])
    ours = theory.expected_tokens_by_position(acceptance, ks)
    assert ours.shape == (3, 4)
    for i, j in itertools.product(range(3), range(4)):
        assert ours[i, j] == theory.expected_tokens_by_position(acceptance[i, 0], int(ks[0, j]))
    assert theory.expected_tokens_by_position([0.5, 0.5]) == 1.75


# -- speedup: properties ---------------------------------------------------------------------------------------------


@given(ALPHAS, ALPHAS, LENGTHS, COSTS)
def test_more_acceptance_never_slows(one: float, two: float, k: int, c: float) -> None:
    low, high = sorted((one, two))
    for function in (theory.speedup, lambda a, k, c: theory.speedup(a, k, c, ROUGH)):
        assert function(low, k, c) <= function(high, k, c) * (1 + 1e-12)
    assert theory.expected_tokens(high, k) <= theory.ceiling(high) * (1 + 1e-12)


@given(ALPHAS, LENGTHS, COSTS, COSTS)
def test_a_dearer_draft_never_helps(alpha: float, k: int, c: float, more: float) -> None:
    assert theory.speedup(alpha, k, c + more) <= theory.speedup(alpha, k, c)


@given(st.integers(1, 20), COSTS, st.sampled_from([None, ROUGH]))
def test_break_even_gives_speedup_one(k: int, c: float, v: Any) -> None:
    alpha = theory.break_even_alpha(k, c, v)
    if math.isnan(alpha):
        assert theory.speedup(1.0, k, c, v) < 1
    else:
        assert theory.speedup(alpha, k, c, v) == pytest.approx(1.0, abs=1e-9)


@given(st.one_of(ALPHAS, st.lists(ALPHAS, min_size=1, max_size=5)), COSTS, st.sampled_from([None, ROUGH]))
def test_best_k_is_the_best(acceptance: Any, c: float, v: Any) -> None:
    best = theory.best_k(acceptance, c, v, most=12)
    listed = acceptance if isinstance(acceptance, list) else [acceptance]
    gains = [theory.speedup_by_position(listed, k, c, v) for k in range(13)]
    assert best.speedup == pytest.approx(max(gains))
    assert best.speedup == pytest.approx(gains[best.k])
    assert best.speedup >= 1.0, "drafting nothing is always allowed"


def test_not_to_speculate_is_an_answer() -> None:
    assert theory.best_k(0.3, 0.5) == (0, 1.0)


def test_arrays_equal_loops() -> None:
    alphas, ks, cs = np.array([0, 0.3, 1.0]), np.array([0, 1, 5]), np.array([0, 0.1])
    grid = (alphas[:, None, None], ks[None, :, None], cs)
    together = {
        "speedup": theory.speedup(*grid, ROUGH),
        "tokens": theory.expected_tokens(grid[0], grid[1]),
        "break-even": theory.break_even_alpha(grid[1][0], cs, ROUGH),
    }
    for (i, a), (j, k), (m, c) in itertools.product(enumerate(alphas), enumerate(ks), enumerate(cs)):
        assert together["speedup"][i, j, m] == theory.speedup(a, k, c, ROUGH)
        assert together["tokens"][i, j, 0] == theory.expected_tokens(a, k)
        one = theory.break_even_alpha(k, c, ROUGH)
        assert together["break-even"][j, m] == one or (math.isnan(one) and math.isnan(together["break-even"][j, m]))
        assert isinstance(one, float)
    assert theory.alpha_k_table(alphas, ks, 0.1, ROUGH)[1, 2] == theory.speedup(0.3, 5, 0.1, ROUGH)
    assert theory.alpha_c_table(alphas, cs, 5)[1, 1] == theory.speedup(0.3, 5, 0.1)


# -- v(n) ------------------------------------------------------------------------------------------------------------


def test_verification_that_is_not_free() -> None:
    assert theory.verify_cost(None, 9) == 1
    assert theory.verify_cost({2: 3.0, 1: 2.0}, [1, 2, 4]).tolist() == [1, 1.5, 2.5]  # its own unit; its last slope
    assert theory.verify_cost(ROUGH, 6) == pytest.approx(1.25)
    assert theory.verify_cost({1: 4.0}, 7) == 1, "one measured width: taken as free"
    assert theory.verify_cost(lambda n: 2.0 + n, [1, 4, 1]).tolist() == [1, 2, 1]
    assert theory.speedup(0.7, 3, 0.1, lambda n: n) == pytest.approx(theory.expected_tokens(0.7, 3) / 4.3)


def test_a_function_and_a_mapping_say_the_same() -> None:
    exact = {n: 1 + 0.07 * n for n in range(1, 18)}
    ks = np.arange(17)
    np.testing.assert_allclose(
        theory.speedup(0.8, ks, 0.05, exact), theory.speedup(0.8, ks, 0.05, lambda n: 1 + 0.07 * n)
    )


def test_tree_speedup_is_speedup_for_chains() -> None:
    tokens = theory.expected_tokens(0.8, 4)
    assert theory.tree_speedup(tokens, 4, 4, 0.1, ROUGH) == pytest.approx(theory.speedup(0.8, 4, 0.1, ROUGH))
    assert theory.tree_speedup(3.0, 8, 2, 0.1) == pytest.approx(3.0 / 1.2)


# -- distributions
# ------------------------------------------------------------------------------------------------------------


def test_acceptance_is_one_less_the_total_variation() -> None:
    p, q = distributions(7, 3, 50), distributions(7, 4, 50)
    np.testing.assert_allclose(theory.acceptance(p, q), 1 - 0.5 * abs(p - q).sum(-1))
    assert theory.acceptance([0.5, 0.5], [1.0, 0.0]) == 0.5
    np.testing.assert_allclose(theory.acceptance(p, p), 1)


def test_acceptance_against_the_rule_itself() -> None:
    p, q = distributions(5, 5)[0], distributions(5, 6)[0]
    noise = np.random.default_rng(0)
    drawn = noise.choice(5, size=200_000, p=q)
    accepted = noise.random(drawn.size) * q[drawn] < p[drawn]
    assert theory.acceptance(p, q) == pytest.approx(accepted.mean(), abs=0.005)


def test_coupled_acceptance_against_shared_noise() -> None:
    p, q = distributions(5, 7)[0], distributions(5, 8)[0]
    noise = np.random.default_rng(0).exponential(size=(200_000, 5))
    same = (noise / p).argmin(1) == (noise / q).argmin(1)
    assert theory.coupled_acceptance(p, q) == pytest.approx(same.mean(), abs=0.005)


def test_coupled_acceptance_lies_between_its_bounds() -> None:
    p, q = distributions(6, 9, 200), distributions(6, 10, 200)
    exact, coupled = theory.acceptance(p, q), theory.coupled_acceptance(p, q)
    assert (coupled <= exact + 1e-12).all()
    assert (coupled >= theory.coupled_floor(exact) - 1e-12).all()
    assert theory.coupled_acceptance([1.0, 0.0], [1.0, 0.0]) == 1
    assert theory.coupled_acceptance([1.0, 0.0], [0.0, 1.0]) == 0


def block_twin(p: np.ndarray, q: np.ndarray, k: int) -> float:
    """Tokens per round by enumerating every path and every way its uniform draws can fall (arXiv:2403.10444, algorithm
    2)."""
    tokens = 0.0
    for path in itertools.product(range(len(p)), repeat=k):
        weights = [1.0]
        for x in path:
            weights.append(min(weights[-1] * p[x] / q[x], 1.0))
        keep = [1.0]
        for w in weights[1:k]:
            left = np.maximum(w * p - q, 0).sum()
            keep.append(left / (left + 1 - w) if left + 1 - w > 0 else 1.0)
        keep.append(weights[k])
        chance = math.prod(q[x] for x in path)
        longest = 1.0  # the chance that no longer prefix was kept
        for length in range(k, 0, -1):
            tokens += chance * longest * keep[length] * length
            longest *= 1 - keep[length]
    return 1 + tokens


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 2, 4])
def test_block_verification_against_every_path(seed: int, k: int) -> None:
    p, q = distributions(3, seed)[0], distributions(3, seed + 50)[0]
    ours = theory.block_tokens(p, q, k)
    assert ours == pytest.approx(block_twin(p, q, k), abs=1e-9)
    chain = theory.expected_tokens(theory.acceptance(p, q), k)
    assert ours >= chain - 1e-9, "never worse than judging one token after the other"
    if k == 1:
        assert ours == pytest.approx(chain), "one token leaves nothing to gain"
    else:
        assert ours > chain + 1e-4


def test_block_verification_of_wide_distributions() -> None:
    p, q = distributions(10, 1)[0], distributions(10, 2)[0]
    assert 1 < theory.block_tokens(p, q, 5) < 6
    assert theory.block_tokens(p, p, 5) == pytest.approx(6)
    with pytest.raises(InvalidOption, match="too many paths"):
        theory.block_tokens(distributions(50, 1)[0], distributions(50, 2)[0], 6)


def test_temperature() -> None:
    noise = np.random.default_rng(3)
    target = noise.standard_normal((40, 8))
    draft = target + 0.5 * noise.standard_normal((40, 8))
    alphas = theory.acceptance_at(target, draft, [0, 0.5, 1.0, 1e6])
    assert alphas.shape == (40, 4)
    assert (alphas[:, 0] == (target.argmax(1) == draft.argmax(1))).all(), "greedy: the likeliest token or not"
    np.testing.assert_allclose(alphas[:, 3], 1, atol=1e-4)
    distribution = [np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (target, draft)]
    np.testing.assert_allclose(alphas[:, 2], theory.acceptance(*distribution))
    points = theory.point_acceptance_at(target, draft, [0, 1.0])
    assert (points[:, 0] == alphas[:, 0]).all(), "at temperature 0 every draft is a point mass"
    np.testing.assert_allclose(points[:, 1], distribution[0][np.arange(40), draft.argmax(1)])
    assert theory.point_acceptance_at(target[0], draft[0], 2.0) < 1
    assert theory.acceptance_at([0.0, -math.inf], [0.0, 0.0], 0.7) == 0.5, "a forbidden token"


# -- trees and drafting ahead ----------------------------------------------------------------------------------------


@given(ALPHAS, st.integers(0, 6))
def test_a_tree_of_only_children_is_a_chain(alpha: float, k: int) -> None:
    tree = theory.best_tree((alpha,), k, k)
    assert tree.expected == pytest.approx(theory.expected_tokens(alpha, k))
    assert theory.tree_tokens((alpha,), tree) == pytest.approx(tree.expected)


def test_the_value_of_a_tree_against_walks_down_it() -> None:
    """At each node the target's token is the b-th child with chance acceptance[b - 1], else none."""
    acceptance = np.array([0.55, 0.2, 0.1])
    tree = theory.best_tree(acceptance.tolist(), 9, 4)
    noise = np.random.default_rng(0)
    rounds, tokens = 40_000, 0
    for ranks in noise.choice(4, size=(rounds, 5), p=[*acceptance, 1 - acceptance.sum()]):
        node, taken = -1, 1
        for rank in ranks:
            below = tree.children[node + 1]
            if rank >= len(below):
                break
            node, taken = below[rank], taken + 1
        tokens += taken
    assert tree.expected == pytest.approx(tokens / rounds, abs=0.03)
    assert tree.expected > theory.expected_tokens(0.55, 4), "breadth brings something"


def test_a_tree_pays_where_it_gains_more_than_its_rows_and_levels_cost() -> None:
    tree = theory.best_tree((0.6, 0.2), 3, 3)
    assert theory.tree_speedup(tree.expected, len(tree), tree.depth, 0.05, lambda n: 1 + 0.15 * (n - 1)) > 1
    assert theory.tree_speedup(tree.expected, len(tree), tree.depth, 0.05, lambda n: float(n)) < 1


def test_ssd_hit_every_time_is_a_free_draft() -> None:
    assert theory.ssd_speedup(1.0, 4.0, 1.0, 0.8, 0.0) == 4.0
    assert theory.ssd_speedup(1.0, 4.0, 1.0, 2.0, 0.0) == 2.0, "drafting longer than the target verifies is waited for"
    assert theory.ssd_speedup(0.0, 4.0, 3.0, 0.8, 0.5) == 2.0, "never a hit: ordinary speculation"


@given(st.floats(0, 1), st.floats(1, 9), st.floats(0, 3), st.floats(0, 1))
def test_ssd_keeps_its_bound(hit: float, tokens: float, draft: float, ahead: float) -> None:
    """The same drafts on a hit, on a miss and in turn."""
    gained = theory.ssd_speedup(hit, tokens, tokens, ahead, draft) / (tokens / (1 + draft))
    assert 1 - 1e-9 <= gained <= theory.ssd_bound(tokens, tokens, draft) + 1e-9


@pytest.mark.parametrize(("k", "alpha", "r"), [(4, 0.8, 0.7), (3, 0.5, 1.0), (1, 0.9, 0.3)])
def test_fan_out_is_the_best_share_of_the_budget(k: int, alpha: float, r: float) -> None:
    """At a large budget rounding does not matter, and no branch moved elsewhere foresees more."""
    shares = theory.fan_outs(10_000, k, alpha, r)
    assert sum(shares) == 10_000
    best = theory.round_hit_rate(shares, alpha, r)
    for i, j in itertools.permutations(range(k + 1), 2):
        moved = np.array(shares, dtype=float)
        moved[i] -= 500 if moved[i] > 600 else 0.1 * moved[i]
        moved[j] += shares[i] - moved[i]
        assert theory.round_hit_rate(moved, alpha, r) < best
    falling = [shares[i + 1] / shares[i] for i in range(k - 1)]
    np.testing.assert_allclose(falling, alpha ** (1 / (1 + r)), rtol=0.01)
    assert shares[k] / shares[0] == pytest.approx(alpha ** (k / (1 + r)) * (1 - alpha) ** (-1 / (1 + r)), rel=0.01)


def test_hit_rate() -> None:
    assert theory.hit_rate([0, 1, 4], 0.5).tolist() == [0, 0, 0.5]
    assert theory.round_hit_rate([4, 4], 0.6, 0.5) == pytest.approx(0.5)
    assert sum(theory.fan_outs(7, 3, 0.8, 1.0)) == 7


# -- machines --------------------------------------------------------------------------------------------------------

MACHINE = theory.Machine(bandwidth=100e9, flops=10e12)
TARGET = theory.Model(1e9, kv_bytes_per_token=100e3)
DRAFT = theory.Model(50e6)


def test_a_forward_is_as_slow_as_the_slower_of_reading_and_computing() -> None:
    assert theory.forward_seconds(MACHINE, TARGET) == pytest.approx(0.02)  # 2 GB at 100 GB/s
    assert theory.forward_seconds(MACHINE, TARGET, rows=10, batch=20) == pytest.approx(0.04)  # 400 GFLOP at 10 TFLOP/s
    assert theory.forward_seconds(MACHINE, TARGET, batch=2, context=1000) == pytest.approx(0.022)
    late = theory.Machine(100e9, 10e12, overhead=0.001)
    assert theory.forward_seconds(late, TARGET) == pytest.approx(0.021)
    assert theory.forward_seconds(MACHINE, TARGET, [1, 200]).shape == (2,)


@pytest.mark.parametrize("context", [0, 500, 1000])
def test_the_crossover_is_where_rows_begin_to_cost(context: int) -> None:
    batch = theory.crossover_batch(MACHINE, TARGET, 5, context)
    for size, free in ((math.floor(batch), True), (math.ceil(batch + 1e-9), False)):
        one = theory.forward_seconds(MACHINE, TARGET, 1, size, context)
        assert (theory.forward_seconds(MACHINE, TARGET, 6, size, context) == one) is free
    assert theory.crossover_batch(MACHINE, TARGET, 0, 10_000) == math.inf, "reading caches hides everything"


def test_batch_speedup_is_speedup_with_this_v() -> None:
    def v(rows: int) -> float:
        return float(theory.forward_seconds(MACHINE, TARGET, rows, 30, 100))

    c = theory.forward_seconds(MACHINE, DRAFT, 1, 30, 100) / theory.forward_seconds(MACHINE, TARGET, 1, 30, 100)
    ours = theory.batch_speedup(MACHINE, TARGET, 0.8, [1, 4], 30, draft=DRAFT, context=100)
    np.testing.assert_allclose(ours, theory.speedup(0.8, [1, 4], c, v))
    fixed = theory.batch_speedup(MACHINE, TARGET, 0.8, 4, 30, draft=0.1, context=100)
    assert fixed == pytest.approx(theory.speedup(0.8, 4, 0.1, v))


@pytest.mark.parametrize("draft", [DRAFT, 0.1])
def test_the_batch_where_it_stops_paying(draft: Any) -> None:
    last = theory.paying_batch(MACHINE, TARGET, 0.8, 5, draft=draft, context=100)
    assert last > theory.crossover_batch(MACHINE, TARGET, 5, 100)
    assert theory.batch_speedup(MACHINE, TARGET, 0.8, 5, last, draft=draft, context=100) > 1
    assert theory.batch_speedup(MACHINE, TARGET, 0.8, 5, last + 1, draft=draft, context=100) <= 1
    assert theory.paying_batch(MACHINE, TARGET, 0.1, 5, draft=0.9) == 0
    assert theory.paying_batch(MACHINE, TARGET, 0.8, 5, draft=draft, most=3) == 3


# -- bad input, and no torch -----------------------------------------------------------------------------------------

HALF = [0.5, 0.5]
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "alpha above 1": (lambda: theory.speedup(1.2, 3, 0.1), "alpha=1.2"),
    "alpha below 0 in an array": (lambda: theory.expected_tokens([0.5, -0.1], 3), "alpha=-0.1"),
    "alpha nan": (lambda: theory.ceiling(math.nan), "alpha=nan"),
    "alpha text": (lambda: theory.speedup("high", 3, 0.1), "alpha='high'"),  # type: ignore[arg-type]
    "alpha ragged": (lambda: theory.ceiling([[0.1], [0.1, 0.2]]), "alpha"),  # type: ignore[list-item]
    "alpha true": (lambda: theory.ceiling(True), "alpha=True"),
    "k below 0": (lambda: theory.expected_tokens(0.5, -1), "k=-1"),
    "k a fraction": (lambda: theory.speedup(0.5, 2.5, 0.1), "k=2.5"),
    "c below 0": (lambda: theory.break_even_alpha(3, -0.1), "c=-0.1"),
    "c infinite": (lambda: theory.speedup(0.5, 3, math.inf), "c=inf"),
    "several c for one best K": (lambda: theory.best_k(0.5, [0.1, 0.2]), "c has shape"),
    "acceptance of two requests": (lambda: theory.best_k([HALF, HALF], 0.1), "acceptance has shape"),
    "no positions": (lambda: theory.expected_tokens_by_position([], 3), "no positions"),
    "v without 1": (lambda: theory.speedup(0.5, 3, 0.1, {2: 1.0}), "no cost for 1 row"),
    "v of no rows": (lambda: theory.speedup(0.5, 3, 0.1, {0: 1.0, 1: 1.0}), "rows of v=0"),
    "v of 0": (lambda: theory.speedup(0.5, 3, 0.1, {1: 1.0, 4: 0.0}), "v=0"),
    "v that falls below 0": (lambda: theory.speedup(0.5, 9, 0.1, {1: 1.0, 2: 0.8}), "is not a cost"),
    "v that returns nothing": (lambda: theory.speedup(0.5, 3, 0.1, lambda n: -n), "is not a cost"),
    "p no distribution": (lambda: theory.acceptance([0.5, 0.6], HALF), "p is no distribution"),
    "q negative": (lambda: theory.acceptance(HALF, [1.5, -0.5]), "q=-0.5"),
    "two vocabularies": (lambda: theory.acceptance(HALF, [0.5, 0.25, 0.25]), "q has 3"),
    "two vocabularies, coupled": (lambda: theory.coupled_acceptance(HALF, [0.5, 0.25, 0.25]), "q has 3"),
    "several distributions for a block": (lambda: theory.block_tokens([HALF], [HALF], 2), "shapes"),
    "temperature below 0": (lambda: theory.acceptance_at(HALF, HALF, -1), "temperatures=-1"),
    "logits nan": (lambda: theory.acceptance_at([math.nan, 0.0], HALF, 1), "p_logits"),
    "logits text": (lambda: theory.acceptance_at("abc", HALF, 1), "p_logits"),  # type: ignore[arg-type]
    "hit above 1": (lambda: theory.ssd_speedup(1.1, 2, 2, 0, 0), "hit=1.1"),
    "fan-outs no list": (lambda: theory.round_hit_rate(3.0, 0.5, 1), "fan_outs"),
    "acceptance by rank above 1": (lambda: theory.best_tree((1.5,), 3, 3), "acceptance by rank"),
    "a tree of no size": (lambda: theory.best_tree((0.5,), -1, 3), "no tree has"),
    "bandwidth 0": (lambda: theory.Machine(0, 1e12), "bandwidth=0"),
    "parameters text": (lambda: theory.Model("1B"), "parameters='1B'"),  # type: ignore[arg-type]
    "batch 0": (lambda: theory.forward_seconds(MACHINE, TARGET, 1, 0), "batch=0"),
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_values_out_of_range_are_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        call()
    assert says in caught.value.message
    assert caught.value.hint


@settings(max_examples=30)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.integers(0, 5))
def test_scalars_give_floats(weights: list[float], k: int) -> None:
    distribution = np.array(weights) / sum(weights)
    for result in (
        theory.expected_tokens(0.5, k), theory.ceiling(0.5), theory.speedup(0.5, k, 0.1),
        theory.acceptance(distribution, distribution[::-1]), theory.coupled_acceptance(distribution, distribution),
        theory.hit_rate(2, 1.0), theory.expected_tokens_by_position(distribution), theory.verify_cost(None, 1),
        theory.crossover_batch(MACHINE, TARGET, k),
    ):  # fmt: skip
        assert type(result) is float


def test_theory_needs_no_torch() -> None:
    script = (
        "import sys, headstart.theory as t; t.best_k(.7, .1); "
        "sys.exit(str(sorted({'torch', 'transformers', 'scipy'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == "[]"


# -- the documentation -----------------------------------------------------------------------------------------------


def test_the_tables_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "theory.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()]
    by_length, by_cost = ([row for row in lines if len(row) == width and row[0][0] == "0"] for width in (11, 6))
    for alpha, *gains, best in by_length:
        expected = theory.speedup(float(alpha), [1, 2, 3, 4, 5, 6, 8, 10, 12], 0.1)
        np.testing.assert_allclose(expected, [float(gain) for gain in gains], rtol=0, atol=PRINTED)
        assert theory.best_k(float(alpha), 0.1).k == int(best)
    for alpha, *gains in by_cost:
        expected = theory.speedup(float(alpha), 5, [0.01, 0.05, 0.1, 0.2, 0.5])
        np.testing.assert_allclose(expected, [float(gain) for gain in gains], rtol=0, atol=PRINTED)
    assert (len(by_length), len(by_cost)) == (5, 6)


def test_the_example_machine_of_the_documentation() -> None:
    machine, target, draft = theory.Machine(3350e9, 800e12), theory.Model(70e9), theory.Model(1e9)
    assert math.floor(theory.crossover_batch(machine, target, 5)) == 39
    assert theory.paying_batch(machine, target, 0.7, 5, draft=draft) == 114
