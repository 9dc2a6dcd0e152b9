"""Intervals: against known values, against scipy, and by how often they hold what they should."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from headstart.base.as_json import as_json
from headstart.base.errors import InvalidOption
from headstart.theory.statistics import Interval, bootstrap, proportion, quantile, student


def mean(values: Any) -> float:
    return float(np.mean(values))


def ratio(units: Any) -> float:
    return float(units[:, 0].sum() / units[:, 1].sum())


# -- Student's distribution
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 11, 30, 121, 299])
@pytest.mark.parametrize("probability", [0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.9999])
def test_students_quantiles_are_those_of_scipy(freedom: int, probability: float) -> None:
    assert student(freedom, probability) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-8, abs=1e-12)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert student(5000, 0.975) == pytest.approx(1.959964, abs=1e-6)


# -- bootstrap -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [3, 5, 12, 40])
def test_the_interval_of_a_ratio_covers_as_often_as_it_says(units: int) -> None:
    """Prompts differ by far more than their two lanes do: paired, as a speedup is."""
    rng = np.random.default_rng(units)
    held = 0
    for trial in range(400):
        plain = rng.lognormal(0, 0.5, units)
        fast = plain / 2 * rng.lognormal(0, 0.15, units)
        interval = bootstrap(np.stack([plain, fast], 1), ratio, resamples=300, seed=trial, scale="log")
        held += 2 / math.exp(0.15**2 / 2) in interval
    assert 0.91 <= held / 400 <= 0.99, "of 95%, within four standard errors"


def test_paired_units_make_the_interval_shorter_than_their_scatter() -> None:
    rng = np.random.default_rng(0)
    plain = rng.lognormal(0, 1.0, 20)
    both = np.stack([plain, plain / 2 * rng.lognormal(0, 0.01, 20)], 1)
    paired = bootstrap(both, ratio)
    apart = bootstrap(np.stack([both[:, 0], rng.permutation(both[:, 1])], 1), ratio)
    assert paired.high - paired.low < 0.05 < apart.high - apart.low


def test_the_bootstrap_of_a_mean_is_about_students_interval() -> None:
    values = np.random.default_rng(1).normal(10, 2, 25)
    found = bootstrap(values, mean, resamples=4000)
    low, high = stats.t.interval(0.95, 24, loc=values.mean(), scale=values.std(ddof=1) / 5)
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(low, abs=0.1)
    assert found.high == pytest.approx(high, abs=0.1)


def test_a_wider_level_gives_a_wider_interval() -> None:
    values = np.random.default_rng(2).normal(0, 1, 30)
    ninety, ninety_nine = (bootstrap(values, mean, level=level) for level in (0.9, 0.99))
    assert ninety_nine.low < ninety.low < ninety.high < ninety_nine.high


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert bootstrap(values, mean, seed=3) == bootstrap(values, mean, seed=3) != bootstrap(values, mean, seed=4)


def test_on_the_log_scale_a_ratio_stays_positive_and_its_inverse_has_the_inverse_ends() -> None:
    units = np.array([[1.0, 9.0], [2.0, 1.0], [5.0, 0.5]])
    there = bootstrap(units, ratio, scale="log")
    back = bootstrap(units[:, ::-1], ratio, scale="log")
    assert there.low > 0
    assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))


def test_units_may_be_anything() -> None:
    found = bootstrap([[1.0], [2.0, 3.0], [4.0]], lambda units: mean([x for unit in units for x in unit]))
    assert found.value == 2.5
    assert found.low < 2.5 < found.high


@pytest.mark.parametrize("values", [[], [3.0]])
def test_where_there_is_no_scatter_there_is_no_interval(values: list[float]) -> None:
    found = bootstrap(values, mean if values else lambda _: math.nan)
    assert not found.known
    assert as_json(found) == {"value": 3.0 if values else None, "low": None, "high": None}
    assert 3.0 not in found


def test_equal_units_have_an_interval_of_one_point() -> None:
    found = bootstrap([2.0, 2.0, 2.0], mean)
    assert (found.low, found.high) == (2.0, 2.0)


def test_a_statistic_that_is_mostly_unknown_has_no_interval() -> None:
    units = np.array([[1.0, 0.0]] * 9 + [[1.0, 1.0]])

    def sum_over_sum(chosen: Any) -> float:
        below = chosen[:, 1].sum()
        return float(chosen[:, 0].sum() / below) if below > 1 else math.nan

    assert not bootstrap(units, sum_over_sum).known


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"resamples": 0}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        bootstrap([1.0, 2.0], mean, **options)


# -- proportions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (1, 7), (7, 7), (50, 100), (999, 1000)])
def test_wilsons_interval_is_that_of_scipy(successes: int, trials: int) -> None:
    found = proportion(successes, trials)
    wanted = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    assert found.value == successes / trials
    assert found.value in found


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8])
def test_wilsons_interval_covers_as_often_as_it_says(chance: float) -> None:
    counts = np.random.default_rng(5).binomial(40, chance, 4000)
    held = np.mean([chance in proportion(int(count), 40) for count in counts])
    assert 0.92 <= held <= 0.98


def test_without_trials_anything_may_be() -> None:
    found = proportion(0, 0)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2)])
def test_no_proportion(successes: int, trials: int) -> None:
    with pytest.raises(InvalidOption):
        proportion(successes, trials)


# -- quantiles -------------------------------------------------------------------------------------------------------


def test_quantiles() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0], 0.99) == pytest.approx(2.98)
    assert math.isnan(quantile([], 0.5))


def test_an_interval_knows_whether_it_is_known() -> None:
    assert Interval(1.0, 0.5, 2.0).known
    assert not Interval(1.0).known
