"""The dynamic programme against every small tree there is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.rows import a_row

from headstart.drafters.growing.policy import MOST, TreePolicy
from headstart.drafters.growing.ranks import PRIOR, Ranks, outcomes
from headstart.drafters.growing.tree import TopK
from headstart.theory.trees import Shape, Table, best_tree, likeliest_gains, tree_tokens
from headstart.types import Draft

ACCEPTANCE = {
    "falling": (0.6, 0.2, 0.1, 0.05),
    "even": (0.25, 0.25, 0.25, 0.25),
    "a better second child": (0.3, 0.5, 0.1),
    "sure": (1.0,),
    "hopeless": (0.0, 0.0),
}
Forest = tuple[Any, ...]
"""A tree below a node: one such tuple for each child."""


@cache
def forests(nodes: int, depth: int) -> tuple[Forest, ...]:
    """Every ordered forest of so many nodes and at most `depth` levels."""
    if nodes == 0:
        return ((),)
    if depth == 0:
        return ()
    return tuple(
        ((first), *rest)
        for size in range(1, nodes + 1)
        for first in forests(size - 1, depth - 1)
        for rest in forests(nodes - size, depth)
    )


def expected(forest: Forest, acceptance: tuple[float, ...]) -> float:
    """Accepted tokens."""
    chances = (*acceptance, *[0.0] * len(forest))
    return sum(chances[rank] * (1 + expected(below, acceptance)) for rank, below in enumerate(forest))


def trees(nodes: int, depth: int) -> Iterator[Forest]:
    for count in range(nodes + 1):
        yield from forests(count, depth)


def test_all_trees_are_tried() -> None:
    assert [len(forests(n, n)) for n in range(7)] == [1, 1, 2, 5, 14, 42, 132]  # Catalan
    assert len(forests(4, 1)) == 1


@pytest.mark.parametrize("acceptance", ACCEPTANCE.values(), ids=ACCEPTANCE)
def test_the_best_tree_is_the_best_of_all(acceptance: tuple[float, ...]) -> None:
    table = Table(acceptance, 6, 6)
    for nodes in range(7):
        for depth in range(7):
            most = 1 + max(expected(forest, acceptance) for forest in trees(nodes, depth))
            shape = table.shape(nodes, depth)
            assert table.expected(nodes, depth) == pytest.approx(most)
            assert shape.expected == pytest.approx(most)
            assert tree_tokens(acceptance, shape) == pytest.approx(most)
            assert len(shape) <= nodes
            assert shape.depth <= depth
            assert best_tree(acceptance, nodes, depth).expected == pytest.approx(most)


@pytest.mark.parametrize("acceptance", ACCEPTANCE.values(), ids=ACCEPTANCE)
def test_a_shape_is_in_drafting_order(acceptance: tuple[float, ...]) -> None:
    shape = best_tree(acceptance, 20, 5)
    draft = Draft(tuple(range(len(shape))), shape.parents)
    assert shape.children == draft.children
    assert shape.depths == draft.depths == tuple(sorted(draft.depths))
    for family in shape.children:
        assert [shape.ranks[node] for node in family] == list(range(1, len(family) + 1))


def test_where_ranks_fall_the_likeliest_nodes_are_the_best_tree() -> None:
    distributions = np.array([ACCEPTANCE["falling"], (0.9, 0.05, 0.02, 0.01), (0.3, 0.2, 0.2, 0.2)])
    gains = likeliest_gains(distributions, 24, 5)
    for distribution, mine in zip(distributions.tolist(), gains, strict=True):
        table = Table(distribution, 24, 5)
        for depth in range(1, 6):
            for nodes in range(1, 25):
                assert mine[depth - 1, nodes - 1] == pytest.approx(table.expected(nodes, depth) - 1)


def test_a_big_table_is_right_where_the_answer_is_known() -> None:
    """64 nodes, 12 levels: far beyond what can be tried one by one."""
    table = Table((0.9,), 64, 12)
    assert table.expected(64, 12) == pytest.approx(sum(0.9**k for k in range(13)))
    even = Table((0.125,) * 8, 64, 2)
    assert even.expected(64, 2) == pytest.approx(1 + 1 + 56 * 0.125**2)  # 8 children, and 56 of theirs


@pytest.mark.parametrize("bad", [(), (1.2,), (-0.1,), (float("nan"),)])
def test_what_is_no_acceptance(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="acceptance"):
        Table(bad, 3, 3)


# -- acceptance by rank -----------------------------------------------------------------------------------------------


TREE = Draft((1, 2, 3, 4, 5, 6), (-1, -1, -1, 1, 1, 4))


@pytest.mark.parametrize(
    ("path", "tested"),
    [((), [(0, 3)]), ((0,), [(1, 3)]), ((1,), [(2, 3), (0, 2)]), ((1, 4, 5), [(2, 3), (2, 2), (1, 1)])],
    ids=str,
)
def test_what_a_round_tests(path: tuple[int, ...], tested: list[tuple[int, int]]) -> None:
    assert list(outcomes(TREE, path)) == tested


def test_ranks_are_learnt_from_any_shape() -> None:
    """Rank 2 is tested only where there is a second child, and where the first was passed over."""
    ranks = Ranks()
    assert ranks.hazards == pytest.approx(PRIOR)
    pair, single = Draft((1, 2), (-1, -1)), Draft((1,), (-1,))
    for round_ in range(4000):
        if round_ % 2:
            ranks.learn(single, (0,) if round_ % 10 < 6 else ())
        else:
            ranks.learn(pair, ((0,), (1,), (), (0,), (0,))[round_ // 2 % 5])
    assert ranks.hazards[0] == pytest.approx(0.6, abs=0.02)
    assert ranks.hazards[1] == pytest.approx(0.5, abs=0.02)
    assert ranks.hazards[2:] == pytest.approx(PRIOR[2:])
    assert sum(ranks.acceptance) <= 1
    assert ranks.acceptance[1] == pytest.approx(0.4 * 0.5, abs=0.02)


def test_what_a_budget_buys() -> None:
    ways = TreePolicy("top-k", 32, MOST, width=8, depth=None)
    nodes = [n for n, _ in ways.sizes]
    assert nodes == sorted(set(nodes))
    assert [ways.levels(n) for n, _ in ways.sizes] == [d for _, d in ways.sizes]
    assert (ways.levels(0), ways.levels(7), ways.levels(63), ways.levels(1000)) == (0, 6, 6, 7)
    fixed = TreePolicy("sampled", 32, MOST, width=8, depth=5)
    assert [fixed.levels(n) for n in (0, 1, 4, 5, 6, 64)] == [0, 1, 4, 5, 5, 5]
    assert all(depth == min(n, 5) for n, depth in fixed.sizes)


def test_a_small_tree_expands_half_of_its_nodes() -> None:
    ways = TreePolicy("top-k", 32, MOST, width=8, depth=None)
    row = a_row(0, 2, 90)
    assert [ways.plan(row, n) for n in (1, 4, 8)] == [TopK(2, 1), TopK(2, 4), TopK(4, 3)]
    assert ways.plan(row, 24) == TopK(8, 6)


def test_shape_is_a_value() -> None:
    assert Shape().depth == 0
    assert Shape().children == ((),)
