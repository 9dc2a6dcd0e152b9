"""What rows of a mixture of experts meet together, and what forwards of them cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart import theory
from headstart.base.errors import InvalidOption
from headstart.theory import Machine, Model, Routing, StepCosts
from headstart.theory.mixture import DENSE

QWEN = Routing(128, 8)


def test_the_union_is_what_draws_meet() -> None:
    """Sets of k of E, drawn independently, and counted."""
    rng = np.random.default_rng(0)
    for experts, chosen, rows in ((32, 4, 3), (128, 8, 6)):
        found = [len(np.unique([rng.choice(experts, chosen, replace=False) for _ in range(rows)])) for _ in range(1500)]
        assert np.mean(found) == pytest.approx(Routing(experts, chosen).union(rows), rel=0.01)


def test_neighbours_meet_fewer_than_strangers() -> None:
    assert QWEN.union(1) == QWEN.distinct(1) == 8
    assert QWEN.distinct(4) / QWEN.union(4) == pytest.approx(0.69, abs=0.01), (
        "the 31% that the correlation was fitted to"
    )
    assert replace(QWEN, rho=0.0).distinct(5) == pytest.approx(QWEN.union(5))
    assert QWEN.union(1e6) == pytest.approx(128), "there are no more"


@given(rows=st.floats(1, 40), experts=st.integers(8, 512), chosen=st.integers(1, 7))
def test_the_union_tells_how_many_rows_there_were(rows: float, experts: int, chosen: int) -> None:
    routing = Routing(experts, chosen, layers=10_000)
    distinct = routing.union(rows)
    if 1 - distinct / experts > 1e-6:
        assert routing.independent(distinct) == pytest.approx(rows, rel=1e-5)


def test_a_dense_model_is_one_expert_that_all_rows_choose() -> None:
    assert DENSE.dense
    assert DENSE.further == 1
    assert DENSE.union([1, 2, 50]).tolist() == [1, 1, 1]
    assert DENSE.independent(1.0) == 1.0
    costs = StepCosts(((1, 1.0), (4, 1.6), (8, 3.0)))
    assert costs.forward(6) == pytest.approx(2.3) == costs.unrelated(6)


def test_meeting_all_experts_is_no_infinity() -> None:
    assert 8 < QWEN.independent(128) < 200


@pytest.mark.parametrize("given", [(4, 8), (0, 1), (8, 0), (8, 2, 1.0), (8, 2, -0.1), (8.5, 2)])
def test_what_is_no_routing_is_refused(given: tuple[float, ...]) -> None:
    with pytest.raises(InvalidOption):
        Routing(*given)  # type: ignore[arg-type]


def test_measured_rows_that_are_strangers_price_those_of_a_text() -> None:
    """Costs that are a + b rows + c union are met between and beyond the measured numbers, where straight lines are
    far off."""

    def seconds(rows: float) -> float:
        return 0.4 + 0.03 * rows + 0.6 * (QWEN.union(rows) / 8)

    costs = StepCosts(tuple((n, seconds(n)) for n in (1, 2, 3, 4, 6, 8, 16)), routing=QWEN)
    for rows in (2, 5, 8, 12):
        assert costs.forward(rows) == pytest.approx(seconds(1 + (rows - 1) * 0.55), rel=0.005)
    assert costs.unrelated(28) == pytest.approx(seconds(28), rel=0.01), "beyond the last"
    assert costs.forward(8) < 0.75 * costs.unrelated(8)
    assert costs.forward(4, batch=4) == pytest.approx(seconds(4), rel=0.005), "requests are strangers"


def test_measured_rows_that_choose_alike_count_for_more() -> None:
    rows = ((1, 1.0), (2, 1.5), (4, 2.3), (8, 3.6))
    strangers, alike = (StepCosts(rows, routing=QWEN, alike=each) for each in (0.0, 0.45))
    assert alike.further == pytest.approx(1.0)
    assert strangers.further == pytest.approx(0.55)
    assert alike.forward(8) == pytest.approx(3.6)


# -- on paper ----------------------------------------------------------------------------------------------------------


def test_reading_is_v_where_memory_is_the_limit() -> None:
    """Active parameters and shares counted from the shapes; the figures as the formula gives them."""
    assert QWEN.reading([1, 2, 4, 8], 0.6) == pytest.approx([1, 1.31, 1.91, 2.97], abs=0.02)
    assert replace(QWEN, rho=0.0).reading([2, 4, 8], 0.6) == pytest.approx([1.56, 2.58, 4.26], abs=0.02)
    assert DENSE.reading([1, 50], 0.6).tolist() == [1, 1]


def test_a_mixture_on_a_machine_reads_more_for_more_rows() -> None:
    machine = Machine(50e9, 1e15)
    dense, mixture = Model(3e9), Model(3e9, routing=QWEN, expert_share=0.6)
    rows = np.arange(1, 9)
    plain = theory.forward_seconds(machine, dense, rows)
    assert theory.forward_seconds(machine, mixture, 1) == pytest.approx(plain[0])
    assert theory.forward_seconds(machine, mixture, rows) / plain == pytest.approx(QWEN.reading(rows, 0.6))
    assert theory.forward_seconds(machine, mixture, 1, 4) > theory.forward_seconds(machine, mixture, 4, 1), "strangers"
    assert theory.crossover_batch(machine, mixture, 3) == 0
    assert theory.crossover_batch(machine, Model(3e9, routing=QWEN), 3) > 0, "experts that weigh nothing"


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.85])
def test_a_mixture_wants_shorter_drafts(alpha: float) -> None:
    v = {n: QWEN.reading(n, 0.6) for n in range(1, 20)}
    assert theory.best_k(alpha, 0.05, v).k < theory.best_k(alpha, 0.05, {1: 1.0, 16: 1.3}).k
    assert theory.break_even_alpha(4, 0.05, v) > theory.break_even_alpha(4, 0.05)
