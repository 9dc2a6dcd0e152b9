"""The page's formulas are those of `headstart.theory`, on grids of their arguments."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from support.twins import Twin

from headstart import theory
from headstart.theory import trees
from headstart.theory.distributions import softmax

ALPHAS = (0.0, 0.1, 0.5, 0.7, 0.85, 0.999999, 1.0)
KS = (0, 1, 2, 5, 8, 16)
COSTS = (0.0, 0.01, 0.1, 0.5, 1.0)
CURVE = {1: 1.0, 4: 1.1, 8: 1.5, 16: 2.5}
CLOSE = {"rel": 1e-12, "abs": 1e-13, "nan_ok": True}


def test_tokens_a_round(js: Twin) -> None:
    grid = list(itertools.product(ALPHAS, KS))
    assert js("(grid) => grid.map(([a, k]) => hs.theory.expectedTokens(a, k))", grid) == pytest.approx(
        [theory.expected_tokens(a, k) for a, k in grid], **CLOSE
    )
    found = js("(alphas) => alphas.map((a) => hs.theory.ceiling(a))", ALPHAS)
    assert found == pytest.approx([theory.ceiling(a) for a in ALPHAS], **CLOSE)
    rows = [[0.9, 0.5, 0.2], [0.8], [1.0, 0.0, 0.7, 0.9]]
    found = js("(rows) => rows.flatMap((r) => [0, 1, 3, 7].map((k) => hs.theory.expectedTokensByPosition(r, k)))", rows)
    wanted = [theory.expected_tokens_by_position(row, k) for row in rows for k in (0, 1, 3, 7)]
    assert found == pytest.approx(wanted, **CLOSE)


def test_a_number_out_of_range_is_refused(js: Twin) -> None:
    refused = """(calls) => calls.map(([a, k]) => {
      try { hs.theory.expectedTokens(a, k); return ""; } catch (error) { return error.message; }
    })"""
    found = js(refused, [[1.1, 3], [0.5, -1], [0.5, 2.5], [0.5, 2]])
    assert [bool(each) for each in found] == [True, True, True, False]


@pytest.mark.parametrize("v", [None, CURVE, {1: 2.0}], ids=["free", "curve", "one point"])
def test_speed(js: Twin, v: dict[int, float] | None) -> None:
    curve = None if v is None else {str(n): cost for n, cost in v.items()}
    grid = list(itertools.product(ALPHAS, KS, COSTS))
    found = js("([grid, v]) => grid.map(([a, k, c]) => hs.theory.speedup(a, k, c, v))", [grid, curve])
    assert found == pytest.approx([theory.speedup(a, k, c, v) for a, k, c in grid], **CLOSE)
    pairs = list(itertools.product(KS, COSTS))
    found = js("([pairs, v]) => pairs.map(([k, c]) => hs.theory.breakEvenAlpha(k, c, v))", [pairs, curve])
    assert found == pytest.approx([theory.break_even_alpha(k, c, v) for k, c in pairs], **CLOSE)
    pairs = list(itertools.product([*ALPHAS, [0.9, 0.5, 0.2]], COSTS))
    found = js("([pairs, v]) => pairs.map(([a, c]) => hs.theory.bestK(a, c, v))", [pairs, curve])
    for (alpha, c), best in zip(pairs, found, strict=True):
        wanted = theory.best_k(alpha, c, v)
        assert best["k"] == wanted.k
        assert best["speedup"] == pytest.approx(wanted.speedup, **CLOSE)


@pytest.mark.parametrize("v", [None, CURVE], ids=["free", "curve"])
def test_stacks(js: Twin, v: dict[int, float] | None) -> None:
    curve = None if v is None else {str(n): cost for n, cost in v.items()}
    costs: list[Any] = [0.0, 0.05, 0.5, [0.0, 0.3, 0.4, 0.9]]
    grid = list(itertools.product((0, 1, 5, 12), (0.0, 0.7, 1.0), costs, (2, 16)))
    found = js("([grid, v]) => grid.map(([k, a, c, most]) => hs.theory.draftSteps(k, a, c, v, most))", [grid, curve])
    for (k, alpha, c, most), steps in zip(grid, found, strict=True):
        assert steps == pytest.approx(list(theory.draft_steps(k, alpha, c, v, most=most)), **CLOSE)
    steps = list(theory.draft_steps(9, 0.7, 0.05, v))
    found = js("([steps, v]) => [0, 3, 9].map((k) => hs.theory.stackedSpeedup(0.95, k, 0.4, steps, v))", [steps, curve])
    assert found == pytest.approx([theory.stacked_speedup(0.95, k, 0.4, steps, v) for k in (0, 3, 9)], **CLOSE)


def test_tables(js: Twin) -> None:
    found = js("() => hs.theory.alphaKTable([0.5, 0.7], [1, 2, 3], 0.1)")
    assert np.array(found) == pytest.approx(theory.alpha_k_table([0.5, 0.7], [1, 2, 3], 0.1), **CLOSE)
    found = js("() => hs.theory.alphaCTable([0.5, 0.7], [0.1, 0.2], 5)")
    assert np.array(found) == pytest.approx(theory.alpha_c_table([0.5, 0.7], [0.1, 0.2], 5), **CLOSE)


def _distributions(count: int, vocab: int, zeros: float) -> Any:
    rng = np.random.default_rng([count, vocab])
    weights = rng.random((count, vocab)) * (rng.random((count, vocab)) >= zeros)
    weights[:, 0] += 0.1
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_what_two_distributions_share(js: Twin, zeros: float) -> None:
    p, q = _distributions(12, 6, zeros), _distributions(13, 6, zeros)[:12]
    pairs = [[list(a), list(b)] for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    found = js("(pairs) => pairs.map(([p, q]) => hs.distributions.overlap(p, q))", pairs)
    assert found == pytest.approx(theory.acceptance(p, q), **CLOSE)
    found = js("(pairs) => pairs.map(([p, q]) => hs.distributions.totalVariation(p, q))", pairs)
    assert found == pytest.approx(abs(p - q).sum(1) / 2, **CLOSE)
    found = js("(pairs) => pairs.map(([p, q]) => hs.distributions.coupledAcceptance(p, q))", pairs)
    assert found == pytest.approx(theory.coupled_acceptance(p, q), **CLOSE)


def test_softmax_at_a_temperature(js: Twin) -> None:
    rng = np.random.default_rng(3)
    p = rng.normal(0, 2, (5, 8))
    found = js("(rows) => rows.map((row) => hs.distributions.softmax(row, 0.7))", p.tolist())
    assert np.array(found) == pytest.approx(softmax(p, 0.7), **CLOSE)


@pytest.mark.parametrize(("experts", "chosen", "rho"), [(128, 8, 0.45), (32, 4, 0.0), (8, 8, 0.3)])
def test_mixture(js: Twin, experts: int, chosen: int, rho: float) -> None:
    routing, rows = theory.Routing(experts, chosen, rho), [1, 2, 5, 17]
    as_js = [{"experts": experts, "chosen": chosen, "rho": rho}, rows]
    found = js("([routing, rows]) => rows.map((n) => hs.theory.distinct(routing, n))", as_js)
    assert found == pytest.approx(routing.distinct(rows), **CLOSE)
    found = js("([routing, rows]) => rows.map((n) => hs.theory.reading(routing, n, 0.6))", as_js)
    assert found == pytest.approx(routing.reading(rows, 0.6), **CLOSE)


def test_machine(js: Twin) -> None:
    machine, model = theory.Machine(3.35e12, 4e14, 1e-4), theory.Model(70e9, 2.0, 327_680.0)
    draft = theory.Model(1e9)
    as_js = {
        "machine": {"bandwidth": 3.35e12, "flops": 4e14, "overhead": 1e-4},
        "model": {"parameters": 70e9, "bytesPerWeight": 2.0, "kvBytesPerToken": 327_680.0},
        "draft": {"parameters": 1e9},
    }
    grid = list(itertools.product((1, 5, 33), (1, 16, 256), (0, 4096)))
    call = "({machine, model, grid}) => grid.map(([n, b, l]) => hs.theory.forwardSeconds(machine, model, n, b, l))"
    found = js(call, {**as_js, "grid": grid})
    assert found == pytest.approx([theory.forward_seconds(machine, model, *each) for each in grid], **CLOSE)
    call = """({machine, model, draft, batches}) => batches.map((b) => [
      hs.theory.batchSpeedup(machine, model, 0.7, 4, b, { draft, context: 1000 }),
      hs.theory.batchSpeedup(machine, model, 0.7, 4, b, { draft: 0.1 }),
    ])"""
    found = js(call, {**as_js, "batches": [1, 8, 64, 512]})
    wanted = [
        [
            theory.batch_speedup(machine, model, 0.7, 4, b, draft=draft, context=1000),
            theory.batch_speedup(machine, model, 0.7, 4, b, draft=0.1),
        ]
        for b in (1, 8, 64, 512)
    ]
    assert np.array(found) == pytest.approx(np.array(wanted), **CLOSE)
    call = "({machine, model, draft}) => hs.theory.payingBatch(machine, model, 0.7, 4, { draft })"
    assert js(call, as_js) == theory.paying_batch(machine, model, 0.7, 4, draft=draft)


ACCEPTANCES = ([0.6, 0.2, 0.1], [0.8], [0.5, 0.5], [0.3, 0.1, 0.4, 0.05])


@pytest.mark.parametrize("acceptance", ACCEPTANCES, ids=str)
def test_the_best_tree(js: Twin, acceptance: list[float]) -> None:
    cases = [(n, d) for n in (0, 1, 5, 8, 17) for d in (0, 1, 3, 6)]
    found = js("([a, cases]) => cases.map(([n, d]) => hs.sequoia.bestTree(a, n, d))", [acceptance, cases])
    for (nodes, depth), shape in zip(cases, found, strict=True):
        wanted = trees.best_tree(acceptance, nodes, depth)
        assert (shape["parents"], shape["ranks"]) == (list(wanted.parents), list(wanted.ranks))
        assert shape["depths"] == list(wanted.depths)
        assert shape["expected"] == pytest.approx(wanted.expected, **CLOSE)
        value = js("([a, shape]) => hs.sequoia.treeTokens(a, shape)", [acceptance, shape])
        assert value == pytest.approx(trees.tree_tokens(acceptance, wanted), **CLOSE)


def test_chances_of_lengths_add_up(js: Twin) -> None:
    found = js("() => hs.theory.acceptedLengths(0.7, 5)")
    assert math.fsum(found) == pytest.approx(1)
    assert math.fsum(i * x for i, x in enumerate(found)) + 1 == pytest.approx(theory.expected_tokens(0.7, 5))
