"""What the formulas say in words: verdicts, maps, batches and temperatures."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from headstart import theory
from headstart.base.errors import InvalidOption
from headstart.learn.what_if.answers import answer, maps, temperatures
from headstart.learn.what_if.question import Deployment, batches, record, what_if
from headstart.theory import Machine, Model, StepCosts

in_plain_steps = StepCosts.in_plain_steps
MACHINE = Machine(bandwidth=3350e9, flops=800e12)
TARGET, DRAFT = Model(70e9, kv_bytes_per_token=320e3), Model(1e9)


# -- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "k", "c", "kind", "says"),
    [
        (0.7, None, 0.1, "good", "K = 4 gives 1.98x"),
        (0.7, 4, 0.1, "good", "K = 4 gives 1.98x"),
        (0.7, 5, 0.1, "good", "K = 5 hardly less"),
        (0.7, 10, 0.1, "good", "against 1.63x"),
        (0.5, 12, 0.1, "bad", "a draft this long costs more than it saves; K = 2 gives 1.46x"),
        (0.48, None, 0.5, "bad", "alpha 0.48 is not above 0.50, the least that any K needs"),
        (0.9, None, 1.2, "bad", "not even a perfect draft"),
        (0.52, None, 0.5, "unsure", "K = 1 gives 1.01x; measure"),
        (1.0, None, 0.01, "good", "the longest draft looked at (--most 16)"),
    ],
)
def test_verdicts(alpha: float, k: int | None, c: float, kind: str, says: str) -> None:
    found = answer([alpha], k, in_plain_steps(c))
    assert found.kind == kind
    assert says in found.reason


def test_the_figures_of_an_answer() -> None:
    v = {1: 1.0, 8: 1.4}
    found = answer([0.8], 3, in_plain_steps(0.1, v), most=6)
    assert found.tokens == pytest.approx(theory.expected_tokens(0.8, 3))
    assert found.speedup == pytest.approx(theory.speedup(0.8, 3, 0.1, v))
    assert found.best == theory.best_k([0.8], 0.1, v, most=6)
    assert theory.speedup(found.break_even, 3, 0.1, v) == pytest.approx(1)
    assert found.least_break_even == min(theory.break_even_alpha(k, 0.1, v) for k in range(1, 7))
    assert found.ceiling == pytest.approx(5)
    assert len(found.speedup_by_k) == 7
    assert found.name == "alpha 0.8"


def test_without_k_the_answer_is_about_the_best() -> None:
    assert answer([0.7], None, in_plain_steps()).k == 4
    assert answer([0.2], None, in_plain_steps(0.5)).k == 1, "the best is 0, and that would be no draft to speak of"
    assert len(answer([0.7], 30, in_plain_steps()).speedup_by_k) == 31, "K may exceed `most`"


def test_by_position() -> None:
    found = answer([0.9, 0.6, 0.5], 3, in_plain_steps())
    assert found.alpha is None
    assert found.tokens == pytest.approx(1 + 0.9 + 0.54 + 0.27)
    assert found.ceiling == pytest.approx(1 + 0.9 + 0.54 + 0.54 * 0.5 / 0.5)
    assert answer([0.5, 1.0], 3, in_plain_steps()).ceiling == math.inf
    assert answer([0.0, 1.0], 3, in_plain_steps()).ceiling == 1
    assert "no K from 1 to 16 pays" in answer([0.2, 0.1], None, in_plain_steps(0.5)).reason


def test_maps_hold_what_was_asked() -> None:
    first = answer([0.77], 20, in_plain_steps(0.07))
    found = maps(first, [0.77], in_plain_steps(0.07))
    assert found.here == (0.77, 20, 0.07)
    row, column, cost = found.alphas.index(0.77), found.lengths.index(20), found.draft_costs.index(0.07)
    assert found.by_length[row, column] == pytest.approx(first.speedup)
    assert found.by_cost[row, cost] == pytest.approx(first.speedup)
    assert list(found.alphas) == sorted(found.alphas)
    assert maps(answer([0.9, 0.8], 2, in_plain_steps()), [], in_plain_steps()).here is None


# -- machines and temperatures ---------------------------------------------------------------------------------------


def test_batches() -> None:
    deployment = Deployment(MACHINE, TARGET, DRAFT, context=1000)
    found = batches(deployment, 0.8, 5, [1, 64, 512], 16)
    for row in found.rows:
        expected = theory.batch_speedup(MACHINE, TARGET, 0.8, 5, row.batch, draft=DRAFT, context=1000)
        assert row.speedup == pytest.approx(expected)
        seconds = theory.forward_seconds(MACHINE, TARGET, 1, row.batch, 1000)
        assert row.plain == pytest.approx(row.batch / seconds)
        assert row.speculative == pytest.approx(row.plain * row.speedup)
    assert [row.batch for row in found.rows] == [1, 64, 512]
    assert found.rows[0].speedup > 1 > found.rows[2].speedup
    assert found.rows[2].best.k == 0
    sizes = [row.batch for row in found.curve]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] >= 512
    assert all((row.speedup > 1) == (row.batch <= found.pays_up_to) for row in found.curve)


def test_temperature() -> None:
    found = temperatures(0.8, [0, 0.5, 1, 1.5], in_plain_steps())
    assert found.at_one == pytest.approx(0.8, abs=1e-3)
    cold, _, one, hot = found.rows
    assert one.alpha == pytest.approx(found.at_one)
    assert cold.alpha == cold.point, "at temperature 0 a draft is its likeliest token"
    assert hot.point < one.point < cold.point
    assert hot.best == theory.best_k(hot.alpha, 0.1)
    assert hot.point_best.speedup < hot.best.speedup
    assert found.curve[0].temperature == 0
    assert found.curve[-1].temperature == 2


def test_a_toy_that_cannot_disagree_so_much_says_what_it_has() -> None:
    found = temperatures(0.1, [1], in_plain_steps())
    assert found.asked == 0.1
    assert found.at_one == pytest.approx(0.53, abs=0.02)


# -- everything at once ----------------------------------------------------------------------------------------------


def test_what_if_asks_at_the_first_batch_size() -> None:
    deployment = Deployment(MACHINE, TARGET, DRAFT)
    found = what_if([[0.8], [0.6]], deployment, sizes=[64, 1], heat=[1])
    assert found.batch == 64
    assert found.costs == deployment.costs(64)
    assert found.answers[0].speedup == pytest.approx(found.batches[0].rows[0].speedup)
    assert len(found.batches) == len(found.temperatures) == 2
    alone = what_if([[0.8]], deployment)
    assert alone.batch == 1
    assert [row.batch for row in alone.batches[0].rows] == [1]


def test_the_record_is_json_with_every_number() -> None:
    found = what_if([[1.0]], Deployment(MACHINE, TARGET, 0.1), k=2, heat=[0.5])
    text = json.dumps(record(found), allow_nan=False)
    back: dict[str, Any] = json.loads(text)
    assert back["headstart_simulate"] == 1
    assert back["answers"][0]["ceiling"] is None, "infinite"
    assert back["answers"][0]["best"] == {"k": found.answers[0].best.k, "speedup": found.answers[0].best.speedup}
    assert back["batches"][0]["rows"][0]["best"]["k"] == found.batches[0].rows[0].best.k
    assert np.shape(back["maps"]["by_length"]) == found.maps.by_length.shape
    assert back["verify_cost"]["1"] == 1


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: what_if([], in_plain_steps()), "no acceptance"),
        (lambda: what_if([[0.5]], in_plain_steps(), sizes=[2]), "need a machine"),
        (lambda: what_if([[1.5]], in_plain_steps()), "alpha=1.5"),
        (lambda: what_if([[]], in_plain_steps()), "no positions"),
        (lambda: what_if([[0.5]], in_plain_steps(), k=0), "k=0"),
        (lambda: what_if([[0.5]], in_plain_steps(), k=10**9), "k=1000000000"),
        (lambda: what_if([[0.5]], in_plain_steps(), most=0), "most=0"),
        (lambda: what_if([[0.5]], in_plain_steps(-0.1)), "c=-0.1"),
        (lambda: what_if([[0.5]], in_plain_steps(), heat=[-1.0]), "temperatures=-1"),
        (lambda: what_if([[0.5]], Deployment(MACHINE, TARGET, DRAFT), sizes=[0]), "batch=0"),
        (lambda: what_if([[0.5]], Deployment(MACHINE, TARGET, DRAFT, context=-1)), "context=-1"),
    ],
)
def test_bad_questions(ask: Any, says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        ask()
    assert says in caught.value.message
