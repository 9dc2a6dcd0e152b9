"""The arithmetic of the evidence against its definition, and its promises on streams that are simulated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drift_changes import KINDS, cells_of, changing, paced_cells
from drift_simulation import QUIET, Tag, Watch, World, delays, false_alarms

from headstart.fleet.watch.drift import Cell, Detector, Level, Settings
from headstart.fleet.watch.drift.evidence import DROPS, Bets, Fit, carried, log_growth, spread
from headstart.theory import expected_tokens

RNG = np.random.default_rng


# -- the arithmetic ---------------------------------------------------------------------------------------------------


def test_the_recursion_is_the_sum_over_all_beginnings() -> None:
    rng = RNG(0)
    growth, starts = rng.normal(0, 0.5, (30, len(DROPS))), rng.random(30)
    logs = np.full(len(DROPS), -np.inf)
    for t, (each, start) in enumerate(zip(growth, starts, strict=True)):
        logs = carried(logs, each, start)
        products = [starts[j] * np.exp(growth[j : t + 1].sum(0)) for j in range(t + 1)]
        np.testing.assert_allclose(np.exp(logs), np.sum(products, 0))


def mean_growth(distribution: dict[int, float], tested: int, m: float, tests_as_one: float) -> np.ndarray:
    """E of what a window with this distribution of accepted guesses multiplies evidence by, for each alternative."""
    growth = [p * np.exp(log_growth(tested, a, m, tested / tests_as_one)) for a, p in distribution.items()]
    return np.asarray(np.sum(growth, 0))


def binomial(n: int, p: float) -> dict[int, float]:
    return {a: math.comb(n, a) * p**a * (1 - p) ** (n - a) for a in range(n + 1)}


def joint(first: dict[int, float], second: dict[int, float]) -> dict[int, float]:
    """The distribution of the sum of two that are independent."""
    found: dict[int, float] = {}
    for (a, p), (b, q) in itertools.product(first.items(), second.items()):
        found[a + b] = found.get(a + b, 0.0) + p * q
    return found


@pytest.mark.parametrize("m", [0.1, 0.5, 0.8, 0.99])
def test_growth_has_a_mean_of_at_most_one_whatever_the_dependence_inside_groups(m: float) -> None:
    independent = binomial(12, m)
    np.testing.assert_allclose(mean_growth(independent, 12, m, 1), 1)
    assert (mean_growth(binomial(12, min(1.0, m + 0.05)), 12, m, 1) <= 1).all()
    alike = {0: 1 - m, 6: m}  # all six tests of a request end alike
    groups = joint(alike, alike)
    np.testing.assert_allclose(mean_growth(groups, 12, m, 6), 1)
    assert (mean_growth(groups, 12, m, 12) <= 1).all()
    uneven = joint(joint(alike, {0: 1 - m, 3: m}), binomial(3, m))
    assert (mean_growth(uneven, 12, m, 6) <= 1 + 1e-12).all()
    # and the number of tests that count as one may not be smaller than a group
    assert (mean_growth(groups, 12, m, 1) > 1).all()


def test_a_level_under_the_baseline_is_no_evidence_and_nothing_tested_is_none() -> None:
    assert (log_growth(100, 90, 0.8, 100) < 0).all()
    assert (log_growth(0, 0, 0.8, 0) == 0).all()
    assert np.isfinite(log_growth(np.array([10, 10]), np.array([0, 10]), np.array([1.0, 0.0]), 10)).all()


def windows(rng: np.random.Generator, kind: str, streams: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and scales [streams, count] of windows of 1000 tests, by how they are correlated."""
    m, tested = 0.8, 1000
    share = np.full((streams, count), m)
    if kind == "differ":
        share = rng.beta(m * 99, (1 - m) * 99, (streams, count))  # design effect 1 + 999/100
    if kind == "alike":  # neighbours correlated by 0.7
        wave = np.zeros((streams, count + 50))
        for t in range(1, count + 50):
            wave[:, t] = 0.7 * wave[:, t - 1] + rng.normal(0, 0.02, streams)
        share = np.clip(m + wave[:, 50:], 0, 1)
    accepted = rng.binomial(tested, share)
    value = accepted.mean(1, keepdims=True) / tested
    return accepted - value * tested, value * (1 - value) * tested + 0 * accepted


@pytest.mark.parametrize(
    ("kind", "truth"), [("independent", 1.0), ("differ", 1 + 999 / 100), ("alike", 1 + 0.02**2 / 0.3**2 * 1000 / 0.16)]
)
def test_the_spread_is_seldom_estimated_too_small_and_not_far_too_large(kind: str, truth: float) -> None:
    found, _ = spread(*windows(RNG(1), kind, 200, 48))
    assert (found >= truth * 0.999).mean() > 0.65
    assert np.median(found) < 3 * truth


# -- its promises -----------------------------------------------------------------------------------------------------

STATED = 200.0
SHORT = ("independent tests", "requests differ", "few long requests", "tags change places")


@pytest.mark.parametrize("name", SHORT)
def test_alarms_are_at_least_as_rare_as_stated(name: str) -> None:
    found = false_alarms(QUIET[name], Watch(mean_windows=STATED, learning=48), streams=40, windows=120)
    assert found.mean >= STATED


@pytest.mark.parametrize("name", ["requests differ", "few long requests", "windows differ"])
def test_a_detector_that_counts_every_test_as_one_breaks_that_promise(name: str) -> None:
    naive = false_alarms(QUIET[name], Watch(mean_windows=STATED, naive=True), streams=10, windows=100)
    assert naive.mean < STATED / 5


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUIET))
@pytest.mark.parametrize("learning", [24, 96])
def test_alarms_are_at_least_as_rare_as_stated_for_longer(name: str, learning: int) -> None:
    watch = Watch(mean_windows=500, learning=learning)
    assert false_alarms(QUIET[name], watch, streams=40, windows=500, seed=3).mean >= 500


@pytest.mark.parametrize(("fall", "suspected", "proved"), [(0.05, 25, None), (0.1, 6, 40), (0.2, 2, 4)])
def test_falls_are_found_soon_and_five_per_cent_is_not_proved_to_be_more(
    fall: float, suspected: float, proved: float | None
) -> None:
    watch = Watch(learning=96, mean_windows=10_000)
    found, tokens = delays(World(), watch, fall, streams=20, before=2, most=45)
    middle = np.median(found, 0)
    assert middle[0] <= suspected
    if proved is None:
        assert np.isinf(found[:, 1]).all()
    else:
        assert middle[1] <= proved
    assert ((tokens >= 1000) == (found >= 1)).all()


def test_the_detector_of_one_stream_is_the_one_that_was_simulated() -> None:
    world, watch = World((Tag(), Tag(0.6))), Watch(learning=24, mean_windows=1000)
    source, other = (world.windows(RNG(5), 1) for _ in range(2))
    first = [next(source) for _ in range(24)]
    fit = Fit.of(*(np.stack([window[i] for window in first], -1) for i in (0, 1)))
    assert fit.settled(24).all()
    bets = Bets(fit, np.stack([fit.low, fit.low * (1 - watch.drop)], 1))
    detector = Detector(settings=Settings(learning=24, mean_windows_to_false_alarm=1000))
    for t in range(60):
        tested, accepted = next(other)
        # sorted by tag, then position, as the simulation has them
        keys = [(tag, position) for tag in ("a", "b") for position in (1, 2, 3, 4)]
        detector.observe(
            [Cell(p, "", tag, int(n), int(a)) for (tag, p), n, a in zip(keys, tested[0], accepted[0], strict=True)]
        )
        if t >= 24:
            watch.step(bets, next(source))
            total = np.logaddexp.reduce(bets.logs[0], axis=-1)
            ours = [math.log(detector.evidence[level]) for level in (Level.SUSPECTED, Level.PROVED)]
            np.testing.assert_allclose(ours, total)


def test_where_requests_last_for_many_windows_it_learns_for_longer() -> None:
    def states(tag: Tag, lasting: float) -> list[bool]:
        detector, found = Detector(settings=Settings(learning=24)), []
        world = World((tag,), lasting=lasting)
        for cells in itertools.islice(cells_of(world)(RNG(1)), 100):
            detector.observe(cells)
            found.append(detector.learning)
        return found

    assert states(Tag(), 1).index(False) == 23
    assert states(Tag(requests=4, correlation=0.2), 20).index(False) == 95


# -- what is no fall --------------------------------------------------------------------------------------------------


def run(make: Any, count: int, depth: float | None = None, seed: int = 0) -> Detector:
    detector = Detector(settings=Settings(learning=24))
    for cells in itertools.islice(make(RNG(seed)), count):
        detector.observe(cells, depth)
    return detector


UNTAGGED = replace(World(), tags=KINDS, most=8)


def test_the_first_guess_is_right_less_often_the_longer_drafts_are_though_nothing_changed() -> None:
    """Requests whose guesses are often right take fewer rounds, the more so the longer drafts are."""
    alphas = np.array([tag.acceptance for tag in KINDS])
    shares = []
    for k in range(1, 9):
        rounds = 1 / np.asarray(expected_tokens(alphas, k))
        shares.append(float((rounds * alphas).sum() / rounds.sum()))
    assert shares == sorted(shares, reverse=True)
    assert shares[7] / shares[0] < 0.95


def test_longer_drafts_are_no_alarm_and_would_be_one_if_lengths_were_not_looked_at() -> None:
    longer = replace(UNTAGGED, depth=changing(30, 4, 8))
    assert run(cells_of(longer), 100).level is Level.NONE
    assert run(cells_of(longer, known=True), 100).level is Level.NONE
    assert run(cells_of(longer), 130, depth=4.0).level >= Level.SUSPECTED


def test_shorter_drafts_are_no_alarm() -> None:
    assert run(cells_of(replace(UNTAGGED, depth=changing(30, 4, 2))), 80).level is Level.NONE


def test_shares_of_tags_and_load_are_no_alarm_and_without_tags_they_are_one() -> None:
    mixed = replace(World(), tags=KINDS, load=lambda t: (1.0, 1.0) if t < 30 else (0.4, 3.0))
    assert run(cells_of(mixed, tags=("code", "chat")), 80).level is Level.NONE
    assert run(cells_of(mixed), 80).level is Level.PROVED


def test_lengths_that_pacing_chooses_are_no_alarm_when_the_batch_changes() -> None:
    for batches in ((2, 8), (8, 2)):
        make = paced_cells(lambda t, batches=batches: batches[t >= 26], per_window=40)
        assert run(make, 44).level is Level.NONE
