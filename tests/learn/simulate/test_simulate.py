"""Simulated figures against theory and against published ones; draft-length rules; costs; scenarios; speed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from headstart import theory
from headstart.base.errors import InvalidOption
from headstart.learn import simulate as sim
from headstart.learn.simulate.costs import ratio_of_sums


def near(estimate: sim.Estimate, expected: float, rounding: float = 0.0) -> bool:
    return abs(estimate.value - expected) <= 4 * estimate.standard_error + rounding + 1e-12


def planted(alpha: float, k: int, rule: str = "chain", *, rounds: int = 50, streams: int = 1000) -> sim.Run:
    target, draft = sim.planted_pair(alpha, seed=1)
    return sim.speculate(target, draft, k=k, rule=rule, rounds=rounds, streams=streams, seed=int(1000 * alpha) + k)


# -- theory -----------------------------------------------------------------------------------------------------------

BUSY = {1: 1.0, 3: 1.5, 6: 2.4}


@pytest.mark.parametrize("rule", ["chain", "block", "coupled"])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_simulated_speedups_are_theory_s(alpha: float, k: int, rule: str) -> None:
    """On a planted pair every rule accepts with probability alpha, independently from token to token."""
    run = planted(alpha, k, rule, rounds=20)
    assert near(run.tokens_per_round, theory.expected_tokens(alpha, k))
    for c in (0.0, 0.05, 0.5):
        for v in (None, BUSY, lambda rows: 2.0 + rows):
            assert near(run.speedup(c, v), theory.speedup(alpha, k, c, v))


def test_the_standard_error_is_that_of_the_estimate() -> None:
    """Over many seeds the estimates scatter as each one says, so that "within 4" means something."""
    target, draft = sim.dial_pair(0.6, seed=2)
    runs = [sim.speculate(target, draft, k=3, rounds=30, streams=100, seed=s).speedup() for s in range(100)]
    claimed = float(np.mean([run.standard_error for run in runs]))
    assert np.std([run.value for run in runs]) == pytest.approx(claimed, rel=0.2)
    assert math.isnan(ratio_of_sums(np.ones(1), np.ones(1)).standard_error)


def test_acceptance_by_position_is_planted_and_accounts_for_every_token() -> None:
    run = planted(0.7, 5)
    assert len(run.acceptance) == 5
    assert all(near(one, 0.7) for one in run.acceptance)
    assert run.emitted.sum() == run.accepted.sum() + run.rounds * run.streams
    assert run.offered[0] == run.rounds * run.streams
    np.testing.assert_array_equal(run.offered[1:], run.accepted[:-1])


def test_by_position_theory_reproduces_a_pair_whose_acceptance_changes() -> None:
    target, draft = sim.dial_pair(0.6, seed=7)
    run = sim.speculate(target, draft, k=4, rounds=100, streams=500, seed=3)
    acceptance = [one.value for one in run.acceptance]
    assert max(acceptance) - min(acceptance) > 0.01
    speedup = theory.speedup_by_position(acceptance, 4, 0.1, BUSY)
    assert run.speedup(0.1, BUSY).value == pytest.approx(speedup)


@pytest.mark.parametrize("seed", range(3))
def test_chain_and_block_on_one_distribution_are_theory_s(seed: int) -> None:
    """Context-free models: acceptance is sum of min(p, q), and block verification's gain has a formula of its own."""
    target, draft = sim.random_table(order=0, seed=seed), sim.random_table(order=0, seed=seed + 10)
    p, q = target.table, draft.table
    tau = {}
    for rule in ("chain", "block"):
        run = sim.speculate(target, draft, k=4, rule=rule, rounds=100, streams=2000, seed=seed)
        tau[rule] = run.tokens_per_round
    assert near(tau["chain"], theory.expected_tokens(theory.acceptance(p, q), 4))
    assert near(tau["block"], theory.block_tokens(p, q, 4))
    assert tau["block"].value > tau["chain"].value + 4 * tau["chain"].standard_error


def test_point_mass_and_coupled_accept_what_theory_says() -> None:
    target, draft = sim.random_table(order=0, seed=3), sim.random_table(order=0, seed=13)
    p, q = target.table, draft.table
    point = sim.speculate(target, draft, k=1, rule="point-mass", rounds=100, streams=1000)
    assert near(point.acceptance[0], p[q.argmax()])
    coupled = sim.speculate(target, draft, k=1, rule="coupled", rounds=100, streams=1000)
    assert near(coupled.acceptance[0], theory.coupled_acceptance(p, q))


# -- published figures ------------------------------------------------------------------------------------------------

TOKENS = {
    0.5: (1.50, 1.75, 1.88, 1.97, 2.00),
    0.7: (1.70, 2.19, 2.53, 2.94, 3.20),
    0.85: (1.85, 2.57, 3.19, 4.15, 5.12),
}
BY_C = {
    0.3: (1.36, 1.14, 0.95, 0.71, 0.41), 0.5: (1.88, 1.58, 1.31, 0.98, 0.56), 0.7: (2.80, 2.35, 1.96, 1.47, 0.84),
    0.8: (3.51, 2.95, 2.46, 1.84, 1.05), 0.9: (4.46, 3.75, 3.12, 2.34, 1.34), 0.95: (5.05, 4.24, 3.53, 2.65, 1.51),
}  # fmt: skip
BY_K = {
    0.5: (1.36, 1.46, 1.44, 1.38, 1.31, 1.24, 1.17, 1.11, 1.05, 1.00, 0.95, 0.91),
    0.7: (1.55, 1.83, 1.95, 1.98, 1.96, 1.91, 1.85, 1.78, 1.70, 1.63, 1.57, 1.50),
    0.85: (1.68, 2.14, 2.45, 2.65, 2.77, 2.83, 2.85, 2.85, 2.82, 2.78, 2.72, 2.66),
    0.95: (1.77, 2.38, 2.85, 3.23, 3.53, 3.77, 3.96, 4.11, 4.22, 4.31, 4.38, 4.42),
}


@pytest.mark.parametrize("alpha", TOKENS)
def test_published_tokens_per_round(alpha: float) -> None:
    for k, published in zip((1, 2, 3, 5, 8), TOKENS[alpha], strict=True):
        assert near(planted(alpha, k).tokens_per_round, published, rounding=0.0051)


@pytest.mark.parametrize("alpha", BY_C)
def test_published_speedups_by_draft_cost(alpha: float) -> None:
    run = planted(alpha, 5)
    for c, published in zip((0.01, 0.05, 0.1, 0.2, 0.5), BY_C[alpha], strict=True):
        assert near(run.speedup(c), published, rounding=0.0051)


@pytest.mark.parametrize("alpha", BY_K)
def test_published_speedups_by_k(alpha: float) -> None:
    found = [planted(alpha, k).speedup(0.1) for k in range(1, 13)]
    assert all(near(one, published, rounding=0.0051) for one, published in zip(found, BY_K[alpha], strict=True))
    best = int(np.argmax([one.value for one in found])) + 1
    assert best in {0.5: (2,), 0.7: (4,), 0.85: (7, 8), 0.95: (12,)}[alpha]


DIAL = {0.0: 0.53, 0.2: 0.63, 0.4: 0.72, 0.6: 0.82, 0.8: 0.92, 0.9: 0.96, 0.95: 0.98, 1.0: 1.00}


def test_the_dial_gives_the_published_acceptances() -> None:
    """With N(0, .5) read as a standard deviation; read as a variance, the row is missed by more than twice as much."""
    for a, published in DIAL.items():
        assert sim.dial_acceptance(a, draws=100_000) == pytest.approx(published, abs=0.015)
        assert sim.dial_acceptance(a) == pytest.approx(published, abs=0.02)

    def as_variance(a: float) -> float:
        target, draft = sim.dial_logits(a, (100_000,), noise=0.5**0.5)
        return float(theory.acceptance(softmax(target), softmax(draft)).mean())

    assert max(abs(as_variance(a) - published) for a, published in DIAL.items()) > 0.03


def softmax(logits: Any) -> Any:
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_simulated_acceptance_of_a_dial_pair_is_its_overlap() -> None:
    """Streams start in every context equally often, so the first round's acceptance is the mean over contexts."""
    target, draft = sim.dial_pair(0.4, vocab=10, seed=5)
    overlap = theory.acceptance(target.table, draft.table)
    for token in (0, 3, 9):
        run = sim.speculate(target, draft, k=1, rounds=1, streams=40_000, prompt=(token,))
        assert near(run.acceptance[0], overlap[token])


# -- draft lengths ----------------------------------------------------------------------------------------------------


def history(drafted: list[int], accepted: list[int]) -> sim.History:
    past = sim.History(1, lambda: np.array([0.5]))
    for k, kept in zip(drafted, accepted, strict=True):
        past.note(np.array([k]), np.array([kept]))
    return past


@pytest.mark.parametrize(
    ("drafted", "accepted", "expected"),
    [
        ([], [], 5),
        ([5] * 4, [5] * 4, 5),  # not yet five rounds
        ([5] * 5, [5, 5, 5, 5, 1], 6),  # 84%
        ([5] * 5, [4] * 5, 5),  # 80%: not more than
        ([4] * 5, [2] * 5, 4),  # 50%: not less than
        ([4] * 5, [2, 2, 2, 2, 1], 3),
        ([9] + [5] * 5, [0] + [5] * 5, 6),  # what lies further back does not count
        ([10] * 5, [10] * 5, 10),
        ([2] * 5, [0] * 5, 2),
    ],
)
def test_the_simple_rule(drafted: list[int], accepted: list[int], expected: int) -> None:
    assert sim.SimpleK()(history(drafted, accepted)).tolist() == [expected]


def test_adaptive_rules_settle_where_they_should() -> None:
    def mean_k(alpha: float, k: Any) -> float:
        target, draft = sim.planted_pair(alpha)
        return sim.speculate(target, draft, k=k, rounds=200, streams=50).mean_k

    assert mean_k(0.98, sim.SimpleK()) > 8
    assert mean_k(0.2, sim.SimpleK()) < 2.5
    for alpha in (0.05, 0.5, 0.7, 0.85):
        assert mean_k(alpha, sim.OracleK(0.1)) == theory.best_k(alpha, 0.1).k


def test_confidence_stops_the_draft_and_the_unused_step_is_paid_for() -> None:
    sure, unsure = np.array([0.9, 0.1, 0.0]), np.array([0.4, 0.3, 0.3])

    def draft(context: tuple[int, ...]) -> Any:
        return sure if len(context) % 3 else unsure

    run = sim.speculate(draft, draft, k=sim.ConfidentK(0.5, most=8), rounds=1, streams=10, prompt=(0,))
    assert run.lengths[2].sum() == 10  # drafts after 1 and 2 tokens, stops at 3
    assert (run.draft_steps == 3).all()
    assert run.speedup(0.1).value == pytest.approx(3 / (1 + 0.3))


def test_any_callable_chooses_and_nonsense_is_refused() -> None:
    target, draft = sim.dial_pair(0.5)
    run = sim.speculate(target, draft, k=lambda past: [0, 3], rounds=10, streams=2)
    assert run.lengths[0].sum() == 10
    assert run.lengths[3].sum() == 10
    assert run.emitted[0] == 10  # K = 0 is plain decoding
    for wrong in (lambda past: 2.5, lambda past: -1, lambda past: [1, 2, 3], lambda past: 65):
        with pytest.raises(InvalidOption, match="draft-length rule"):
            sim.speculate(target, draft, k=wrong, rounds=1, streams=2)


def test_changing_text_is_where_following_pays() -> None:
    result = sim.run_scenario("text that changes")
    fixed = [result.alternatives[f"K={k}"].value for k in (2, 4, 8)]
    assert result.speedup.value > max(fixed)
    assert result.alternatives["oracle"].value > result.speedup.value


# -- scenarios, costs, seeds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in sim.scenarios() if name != "text that changes"])
def test_scenarios_agree_with_theory(name: str) -> None:
    result = sim.run_scenario(name, rounds=100)
    assert result.agrees
    assert result.pays is (True if result.predicted > 1.01 else False if result.predicted < 0.99 else None)
    assert result.rounds == 100 * 500
    assert json.loads(json.dumps(result.record()))["name"] == name
    assert result.verdict.startswith(f"{result.speedup.value:.2f} times")


def test_scenarios_tell_the_stories_they_are_named_for() -> None:
    pays = {name: sim.run_scenario(name, rounds=50).pays for name in sim.scenarios()}
    for name in (
        "the draft is too expensive",
        "the draft is too different",
        "the target is already fast",
        "a large batch",
    ):
        assert pays[name] is False
    assert pays["a good draft"]
    context = [sim.run_scenario(n).speedup.value for n in sim.scenarios() if "context" in n]
    assert len(context) == 3
    assert context == sorted(context, reverse=True)


def test_an_unknown_scenario_names_the_others() -> None:
    with pytest.raises(InvalidOption, match="a good draft"):
        sim.run_scenario("nothing of the kind")


def test_costs_from_seconds_are_relative_to_a_plain_step() -> None:
    costs = theory.StepCosts(((1, 0.020), (6, 0.030)), drafts={"draft": theory.DraftCost(token=0.002)})
    assert costs.c() == pytest.approx(0.1)
    run = planted(1.0, 5)
    assert run.speedup(costs.c(), costs.v).value == pytest.approx(6 / (1.5 + 0.5))
    with pytest.raises(InvalidOption, match="1 row"):
        run.speedup(0.1, {6: 0.030})


@pytest.mark.parametrize("rule", sim.RULES)
def test_the_same_seed_gives_the_same_numbers(rule: str) -> None:
    def run(seed: int) -> tuple[Any, ...]:
        target, draft = sim.dial_pair(0.5, seed=1)
        done = sim.speculate(target, draft, k=sim.SimpleK(start=3), rule=rule, tokens=20, streams=20, seed=seed)
        return done.tokens.tolist(), done.lengths.tolist(), done.emitted.tolist()

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_a_million_rounds(rule: str) -> None:
    """Counted, not timed: how long it takes depends on who else is at work. `pytest --durations` shows it."""
    run = sim.speculate(*sim.dial_pair(0.8), k=5, rule=rule, rounds=100, streams=10_000)
    assert run.lengths.sum() == 1_000_000
    assert 1_000_000 < run.emitted.sum() <= 6_000_000


def test_it_needs_no_torch() -> None:
    code = "import sys, headstart.learn.simulate; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
