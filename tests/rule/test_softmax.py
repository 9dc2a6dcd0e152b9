"""The compiled softmax, and what is left of it, are those of float64 within float32's rounding; each row is alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.bounds import runs_within_bounds

from headstart.drafters.growing.tree import distributions_of_children
from headstart.rule import rest as rest_module
from headstart.rule.drafted import Known, PartialDistribution
from headstart.rule.softmax import Compiled, InTorch, Wanted, chosen, softmax
from headstart.rule.verify import _shared, left

ROUNDED = 1e-5
"""Relative: a unit in the last place of logits of a hundred is 8e-6 of what it is the logarithm of."""


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    found = softmax()
    if not isinstance(found, Compiled):
        pytest.skip("there is no C++ compiler")
    return found


def logits(size: int, rows: int = 5) -> NDArray[np.float32]:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((rows, size)).astype(np.float32) * np.array([[1], [8], [30], [0], [4]], np.float32)[:rows]
    x[1, size // 2] = -np.inf
    return x


def exact(x: NDArray[np.float32], temperatures: list[float]) -> NDArray[np.float64]:
    divisors = np.array(temperatures, np.float32)[:, None]
    y = (x / divisors).astype(np.float64)
    e = np.exp(y - y.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True), dtype=np.float64)


@pytest.mark.parametrize("size", [2, 15, 16, 17, 255, 256, 300, 8192, 50_001])
@pytest.mark.parametrize("kind", [Compiled, InTorch])
def test_it_is_the_softmax(compiled: Compiled, kind: type, size: int) -> None:
    x, temperatures = logits(size), [0.8, 1.0, 0.3, 2.0, 1.0]
    found = (compiled if kind is Compiled else InTorch()).distributions(x, temperatures)
    expected = exact(x, temperatures)
    sure = expected > 1e-36
    assert np.abs(found[sure] / expected[sure] - 1).max() < ROUNDED
    assert np.abs(found[~sure]).max(initial=0) < 1e-35
    assert np.abs(found.sum(-1, dtype=np.float64) - 1).max() < ROUNDED
    assert found[1, size // 2] == 0
    assert not np.any(found[0] == 0)


def test_divided_logits_give_the_same_bits(compiled: Compiled) -> None:
    """So that a row has them beside rows with filters, which divide first."""
    x = logits(3000)
    colder = x / np.float32(0.7)
    assert np.array_equal(compiled.distributions(x, [0.7] * 5), compiled.distributions(colder, [1.0] * 5))
    for row in range(5):
        alone = compiled.distributions(x[row : row + 1], [0.7])
        assert np.array_equal(alone[0], compiled.distributions(x, [0.7] * 5)[row])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 100, 599])
def test_a_bad_row_is_nan_and_alone(compiled: Compiled, bad: float, place: int) -> None:
    x = logits(600)
    x[2, place] = bad
    x[4] = -np.inf
    found = compiled.distributions(x, [0.5] * 5)
    assert np.isnan(found[[2, 4]]).all()
    assert not np.isnan(found[[0, 1, 3]]).any()
    rows, _, _ = compiled.likeliest(x, Wanted(3, [0.0] * 5, -math.inf, 15))
    assert list(rows) == [0, 0, 0, 1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize("size", [9, 256, 700, 8192])
@pytest.mark.parametrize("count", [1, 8, 60])
def test_the_likeliest_are_those_of_a_sort(compiled: Compiled, size: int, count: int) -> None:
    x = logits(size)  # its fourth row is of equals
    x[0] = np.round(x[0])  # and here there are many
    above = [-0.5, 0.0, -3.0, -1.0, 0.0]
    found = list(zip(*compiled.likeliest(x, Wanted(count, above, -math.inf, 5 * count)), strict=True))
    for number, row in enumerate(x):
        ids, scores = zip(*(each[1:] for each in found if each[0] == number), strict=True)
        likely = np.argsort(-row, kind="stable")[:count]
        assert list(ids) == [column for column in likely.tolist() if row[column] > -np.inf]
        expected = above[number] + np.log(exact(row[None], [1.0])[0, list(ids)])
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("most", [1, 4, 9, 40])
@pytest.mark.parametrize("least", [-math.inf, -4.0, -1.0, 0.5])
def test_of_all_rows_the_best_are_chosen(compiled: Compiled, least: float, most: int) -> None:
    """As Python chooses them of each row's likeliest; those as likely as the last stay, so that their order decides."""
    x = logits(700)
    x[2] = np.nan
    x[3, 8:] = -np.inf  # eight equals, and nothing else
    above = [-0.7, 0.0, -0.1, -0.2, -1.5]
    each = compiled.likeliest(x, Wanted(8, [0.0] * 5, -math.inf, 40))
    columns = [[column for row, column in zip(*each[:2], strict=True) if row == number] for number in range(5)]
    scores = [[score for row, score in zip(each[0], each[2], strict=True) if row == number] for number in range(5)]
    found = compiled.likeliest(x, Wanted(8, above, least, most))
    assert [list(part) for part in found] == [list(p) for p in chosen(columns, scores, Wanted(8, above, least, most))]
    assert all(score >= least for score in found[2])
    wanted = sorted((up + score for up, row in zip(above, scores, strict=True) for score in row), reverse=True)
    wanted = [score for score in wanted if score >= least]
    assert sorted(found[2], reverse=True) == [score for score in wanted if score >= wanted[:most][-1]]


def test_more_than_compiled_code_finds_are_torchs(compiled: Compiled) -> None:
    x, wanted = logits(300), Wanted(100, [0.0, -1.0], -math.inf, 150)
    assert compiled.likeliest(x[:2], wanted) == InTorch().likeliest(x[:2], wanted)


@pytest.mark.parametrize("size", [2, 17, 256, 300, 8192, 50_001])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "a part"])
def test_what_is_left_is_that_of_float64(compiled: Compiled, size: int, part: bool) -> None:
    """The differences are NumPy's to the bit, and their sum is nearer to the true one than float32 can say."""
    rng = np.random.default_rng(size)
    p = softmax().distributions(logits(size)[:1], [1.0])[0]
    tokens = rng.permutation(size)[: size // 2 + 1] if part else None  # in an order of its own
    q = rng.random(size if tokens is None else len(tokens)).astype(np.float32)
    q = q / q.sum()
    q[0] = 0
    for weight in (1, np.float32(0.3), 0.7):
        found = rest_module.left(p, weight, q, tokens)
        assert found is not None
        covered = q if tokens is None else PartialDistribution(Known(tokens), q).over(size)
        differences = np.maximum(np.float32(weight) * p - covered, 0)
        total = differences.sum(dtype=np.float64)
        assert found[1] == pytest.approx(total, rel=1e-12)
        np.testing.assert_array_equal(found[0], differences * np.float32(1 / found[1]))
        rest, sum_ = left(p, weight, q if tokens is None else PartialDistribution(Known(tokens), q))
        assert np.array_equal(rest, found[0])
        assert sum_ == found[1]
        np.testing.assert_allclose(rest, _shared(differences)[0], rtol=1e-5)


def test_what_is_left_of_next_to_nothing_is_shared_too(compiled: Compiled) -> None:
    """The reciprocal of such a sum is infinite in float32."""
    q = np.array([1.0, 8e-40, 3e-40, 0.0], np.float32)
    found = compiled.siblings([q, None], [0, 1])
    assert found is not None
    np.testing.assert_allclose(found[1], q * [0, 1, 1, 0] / (q[1] + q[2]), rtol=1e-6)
    p = np.array([0.6, 0.4, 1e-40, 0.0], np.float32)
    left_of_p = rest_module.left(p, 1.0, np.array([0.6, 0.4, 0.0, 0.0], np.float32), None)
    assert left_of_p is not None
    assert left_of_p[0].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("size", [2, 17, 300, 8192])
def test_siblings_are_drawn_without_their_elders(compiled: Compiled, size: int) -> None:
    """Two families, of which the second is a child alone."""
    q, other = softmax().distributions(logits(size)[:3:2], [1.0, 1.0])
    columns = np.argsort(-q)[: min(4, size - 1)].tolist()
    found = compiled.siblings([q, *[None] * (len(columns) - 1), other], [*columns, 1])
    assert found is not None
    rest = q.astype(np.float64)
    for row, column in zip(found[:-1], columns, strict=True):
        np.testing.assert_allclose(row, rest / rest.sum(), rtol=1e-5, atol=1e-12)
        rest[column] = 0
    assert np.array_equal(found[0], q)
    assert np.array_equal(found[-1], other)
    assert compiled.siblings([q.astype(np.float64)], [0]) is None
    in_numpy = distributions_of_children(q, columns)
    np.testing.assert_allclose(found[:-1], in_numpy, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_and_the_least_are_numpys(compiled: Compiled, kind: type) -> None:
    for size in (1, 17, 300, 8192):
        q: NDArray[Any] = np.random.default_rng(size).random((3, size)).astype(kind)
        least, sums = compiled.sums(q)
        assert least == q.min()
        np.testing.assert_allclose(sums, q.sum(1, dtype=np.float64), rtol=1e-12)
        q[1, size // 2] = np.nan
        assert math.isnan(compiled.sums(q)[0])
        assert math.isnan(compiled.sums(q)[1][1])
        q[1, size // 2] = -1
        assert compiled.sums(q)[0] == -1


def test_where_nothing_is_left_the_sum_is_none(compiled: Compiled) -> None:
    """So that the rule can tell: not a rest of rounding."""
    p = softmax().distributions(logits(3000)[:1], [1.0])[0]
    backwards = np.arange(3000)[::-1].copy()
    for q, tokens in ((p, None), (p[::-1].copy(), backwards)):
        found = rest_module.left(p, 1, q, tokens)
        assert found is not None
        assert found[1] == 0
        assert not found[0].any()


def test_what_compiled_code_does_not_take_is_numpys(compiled: Compiled) -> None:
    p = np.full(8, 0.125, np.float32)
    q, tokens = np.array([0.5, 0.5], np.float32), np.array([7, 2])
    assert rest_module.left(p, 1, q.astype(np.float64), tokens) is None
    assert rest_module.left(p[::2], 1, q, tokens // 2) is None
    assert rest_module.left(p, 1, q, tokens.astype(np.int32)) is None
    assert rest_module.left(p, 1, q, None) is None
    for outside in (8, -1):
        assert rest_module.left(p, 1, q, np.array([7, outside])) is None
    rest, total = left(p, 1, PartialDistribution(Known(tokens), q.astype(np.float64)))
    assert total == 0.75
    np.testing.assert_allclose(rest, [1 / 6, 1 / 6, 0, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 0], rtol=1e-6)


def test_it_reads_and_writes_within_its_bounds(compiled: Compiled, tmp_path: Path) -> None:
    main = """
    #include "softmax.cpp"
    #include <vector>
    int main() {
        for (int64_t size = 1; size < 1200; size += size < 600 ? 1 : 37) {
            std::vector<float> x(2 * size, 1.0f), p(2 * size), temperatures(2, 0.5f);
            std::vector<double> above(2, -1.0), scores(12);
            std::vector<int64_t> found(12);
            x[size] = -3;
            headstart_softmax(x.data(), 2, size, temperatures.data(), p.data());
            for (const int64_t most : {1, 4, 6}) {
                const int64_t count = headstart_likeliest(
                    x.data(), 2, size, 3, above.data(), -INFINITY, most, found.data(), scores.data());
                if (size < 3 ? count != -1 : count < most) return 1;
            }
            std::vector<float> q(size, 0.1f), part(1, 0.1f), rest(size);
            std::vector<int64_t> last(1, size - 1), outside(1, size);
            double sums[2];
            if (headstart_sums(x.data(), 2, size, sums) != -3) return 5;
            const float *families[2] = {q.data(), nullptr};
            headstart_siblings(families, last.data(), 2, size, p.data());
            if (headstart_left(p.data(), size, 1, q.data(), nullptr, size, rest.data()) < 0) return 2;
            if (headstart_left(p.data(), size, 1, part.data(), last.data(), 1, rest.data()) < 0) return 3;
            if (headstart_left(p.data(), size, 1, part.data(), outside.data(), 1, rest.data()) != -1) return 4;
        }
    }"""
    runs_within_bounds(main, rest_module.SOURCE.parent, tmp_path)
