"""Pacing on mixtures of experts: what rows count as, what is learnt of it, and what is drafted then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pacing_simulation as simulation
import pytest
from support.tiny import random_model

import headstart as hs
from headstart.engine.trace import read_trace
from headstart.engine.trace.summary import summarise
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.corrections import RowWeights
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.measuring import a_few_forwards, measure
from headstart.pacing.mixtures import expert_numbers, routing_of
from headstart.pacing.source import Source
from headstart.pacing.synthetic import SyntheticForwards, varied_tokens
from headstart.theory import DraftCost, Routing, StepCosts
from headstart.theory.mixture import DENSE

LAYERS = 40
ROUTING = Routing(128, 8, layers=LAYERS)
NUMBERS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
ROWS = tuple((n, 0.4 + 0.6 * ROUTING.union(n) / 8) for n in NUMBERS)
COSTS = StepCosts(ROWS, routing=ROUTING, drafts={"s": DraftCost(0.0, 0.001)})


def met(independent: float) -> int:
    return round(LAYERS * ROUTING.union(independent))


def test_a_level_a_sibling_and_a_request_are_told_apart() -> None:
    costs = CurrentCosts(COSTS, ["s"])
    assert costs.weigh(4, 4) == pytest.approx(4 * 0.55), "as nothing else is known"
    assert costs.weigh(8, 4) == pytest.approx(4 * 0.55 + 4 * 0.775), "siblings in the middle"
    assert costs.rows(3) == pytest.approx(3), "requests are strangers"
    rng = np.random.default_rng(0)
    for _ in range(300):
        requests, levels = int(rng.integers(1, 4)), int(rng.integers(0, 5))
        siblings = int(rng.integers(0, 4)) if levels else 0
        found = met(1 + 0.9 * (requests - 1) + 0.3 * levels + 0.5 * siblings)
        costs.observe_experts(requests, levels + siblings, levels, found)
    assert costs.weigh(1, 1) == pytest.approx(0.3, abs=0.01)
    assert costs.weigh(2, 1) == pytest.approx(0.8, abs=0.02)
    assert costs.rows(2) == pytest.approx(1.9, abs=0.02)


def test_a_chain_says_nothing_of_siblings_and_requests() -> None:
    costs = CurrentCosts(COSTS, ["s"])
    for _ in range(50):
        costs.observe_experts(1, 3, 3, met(1 + 3 * 0.2))
    assert costs.weigh(3, 3) == pytest.approx(0.6, abs=0.01)
    assert costs.weigh(2, 1) - costs.weigh(1, 1) == pytest.approx(0.775)
    assert costs.rows(2) == 2
    assert costs.step(1, costs.rows(1) + costs.weigh(3, 3)) == pytest.approx(
        0.4 + 0.6 * ROUTING.union(1.6) / 8, rel=0.02
    )


@pytest.mark.parametrize("alike", [0.0, 0.3])
def test_requests_without_drafts_cost_at_first_what_was_measured(alike: float) -> None:
    """They are strangers, as the rows are that were timed, however alike those choose."""
    measured = replace(COSTS, alike=alike)
    costs = CurrentCosts(measured, ["s"])
    for batch in (1, 4, 16):
        assert costs.step(batch, costs.rows(batch)) == pytest.approx(measured.forward(batch, batch))
    assert costs.weigh(1, 1) == pytest.approx(measured.further)
    assert costs.weigh(2, 1) == pytest.approx((3 * measured.further + 1) / 2), "siblings in the middle"


def test_forwards_that_meet_all_experts_teach_nothing_wrong() -> None:
    """Sixteen requests with five guesses each meet all 8 experts of a layer whether a guess counts as a half or as a
    fifth. Forwards of few rows say which."""
    routing = Routing(8, 2, layers=32)
    weights = RowWeights(StepCosts(((1, 1.0), (8, 2.0)), routing=routing))
    for _ in range(100):
        weights.observe(16, 80, 80, 256)
    assert weights.nodes(1, 1) == pytest.approx(0.55, abs=0.01)
    assert weights.rows(2) == pytest.approx(2, abs=0.01)
    for _ in range(100):
        weights.observe(16, 80, 80, 256)
        weights.observe(1, 3, 3, round(32 * routing.union(1 + 3 * 0.3)))
    assert weights.nodes(1, 1) == pytest.approx(0.3, abs=0.02)


def test_counts_that_scatter_teach_their_mean() -> None:
    """Rows that choose at random, on a batch that misses one expert in a hundred."""
    rng = np.random.default_rng(0)
    routing = Routing(8, 2, layers=32)
    weights = RowWeights(StepCosts(((1, 1.0), (8, 2.0)), routing=routing))
    for _ in range(400):
        rows = 1 + 3 + 12
        chosen = rng.random((32, rows, 8)).argsort(-1)[..., :2]
        weights.observe(4, 12, 12, sum(len(np.unique(layer)) for layer in chosen))
    assert weights.rows(4) + weights.nodes(12, 12) == pytest.approx(rows, rel=0.15)


@pytest.mark.parametrize("experts", [None, 0, 10**9])
def test_a_count_that_is_missing_or_senseless_does_no_harm(experts: int | None) -> None:
    costs = CurrentCosts(COSTS, ["s"])
    for _ in range(20):
        costs.observe_experts(1, 2, 2, experts)
    assert 0 < costs.weigh(2, 2) <= 2
    assert np.isfinite(costs.step(1, 1 + costs.weigh(2, 2)))


def test_in_a_dense_model_a_row_is_a_row() -> None:
    costs = CurrentCosts(replace(COSTS, routing=DENSE), ["s"])
    costs.observe_experts(2, 5, 2, 300)
    assert costs.rows(7) == 7
    assert costs.weigh(np.array([1, 9]), np.array([1, 3])).tolist() == [1, 9]


def test_wide_trees_are_narrower_on_a_mixture() -> None:
    """Siblings bring a fraction of a token and nearly a row's experts."""
    nodes, depths = np.array([3, 6, 12, 24]), np.array([3, 3, 3, 3])
    option = DraftOption(0, 1.0, nodes, depths, np.array([1.4, 1.75, 1.95, 2.05]))
    flat = replace(COSTS, rows=tuple((n, 1 + 0.001 * n) for n in NUMBERS), routing=DENSE)
    wide, narrow = (
        choose([[option]], CurrentCosts(costs, ["s"]), batch=1, sampled=[False]).nodes[0][0] for costs in (flat, COSTS)
    )
    assert wide == 24
    assert narrow == 3


def test_a_reproducible_row_is_priced_by_the_profile_alone() -> None:
    """What forwards met is learnt by the shared costs and not by those that a seed's lengths rest on."""
    pacing = AdaptivePacing([Source("s", 4)], COSTS)
    pacing._shared.costs.observe_experts(1, 3, 3, met(1.1))
    assert pacing._profile.weigh(3, 3) == pytest.approx(1.65)


# -- simulated ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [simulation.MIXTURES[i] for i in (1, 3, 7)], ids=lambda world: world.name)
@pytest.mark.parametrize("alpha", [0.5, 0.85])
def test_paced_drafts_are_never_slower_and_nearly_the_best_length(world: simulation.World, alpha: float) -> None:
    """On 800 tokens; the benchmark asks for more of longer texts."""
    alphas = [simulation.stationary(alpha)(np.random.default_rng(0), 1700)]
    pacings = simulation.contenders(world, alphas)
    fixed = [simulation.expected(alpha, k) / (world.forward(1 + k) + world.draft([k])) for k in range(13)]
    ours = simulation.speed(world, pacings["adaptive"], alphas, 800, 0)
    assert ours > 0.97 / world.plain
    assert ours > 0.93 * max(fixed)


@pytest.mark.parametrize(("alpha", "of_plain"), [(0.3, 0.945), (0.5, 0.95), (0.85, 1.15)])
def test_little_is_lost_on_the_first_short_text(alpha: float, of_plain: float) -> None:
    """Of 24 steps, the first that an engine makes, where two rows cost 1.57 plain steps and nothing is known."""
    world = simulation.MIXTURES[-1]
    alphas = [np.full(400, alpha)]
    speeds = [
        simulation.speed(world, simulation.contenders(world, alphas)["adaptive"], alphas, 400, seed, steps_at_most=24)
        for seed in range(24)
    ]
    assert np.mean(speeds) > of_plain


def test_a_short_draft_is_tried_first_and_its_count_says_what_the_next_costs() -> None:
    pacing = AdaptivePacing([Source("s", 12)], COSTS)
    costs = pacing._shared.costs
    assert costs.weigh(4, 4) == pytest.approx(4), "as if all of a text were strangers"
    costs.observe_experts(1, 1, 1, met(1.55))
    assert costs.weigh(4, 4) == pytest.approx(4 * 0.55, abs=0.1)


def test_of_sizes_that_promise_the_same_an_untried_source_drafts_the_shortest() -> None:
    sizes = np.array([1, 2, 3])
    known = DraftOption(0, 1.0, sizes, sizes, np.array([0.5, 1.0, 1.5]))
    flat = CurrentCosts(StepCosts(((1, 1.0), (2, 1.25), (3, 1.66), (4, 2.07))), ["s"])
    longest, shortest = (
        choose([[replace(known, untried=untried)]], flat, batch=1, sampled=[False]).nodes[0][0]
        for untried in (False, True)
    )
    assert (longest, shortest) == (3, 1)


# -- measured ----------------------------------------------------------------------------------------------------------


def test_a_check_of_what_is_known_reads_few_experts(target: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of a process all of them may have to come from a disk."""
    rows: list[int] = []
    forward = target.forward
    monkeypatch.setattr(
        target, "forward", lambda segments, cache: rows.append(sum(map(len, segments))) or forward(segments, cache)
    )
    a_few_forwards(target, target.new_cache(1))
    assert sum(rows) < 20


def test_a_check_of_what_is_known_takes_no_long_forwards_of_many_rows(
    target: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.pacing.measuring.CHECKING_SECONDS", 0.0)
    assert a_few_forwards(target, target.new_cache(1)).keys() == {1}


def test_made_up_rows_are_others_in_every_run() -> None:
    for size in (7, 97, 50_000):
        tokens = list(islice(varied_tokens(size), size))
        assert sorted(tokens) == list(range(size)), "all, before one comes again"
    assert set(islice(varied_tokens(8, {2, 3}), 12)) == {0, 1, 4, 5, 6, 7}


class Counting(ModelRunner):
    """Says of the last forward what independent rows would meet; the numbers of rows that were asked for are kept."""

    asked: set[int]
    experts_touched: int | None = None
    met: Any = None

    def forward(self, segments: Any, *args: Any, **kwargs: Any) -> Any:
        rows = sum(len(segment) for segment in segments)
        self.asked.add(rows)
        if self.met is not None:
            self.experts_touched = round(4 * Routing(4, 2).union(1 + (rows - 1) * self.met))
        return super().forward(segments, *args, **kwargs)


@pytest.fixture
def target() -> Counting:
    made = Counting(adopt(random_model("mixtral")))
    made.asked = set()
    return made


def test_a_mixture_is_measured_at_more_numbers_of_rows_and_counted(target: Counting) -> None:
    target.met = 0.6
    costs = measure(target, target.new_cache(1), (), batch=1, seconds=0.05).costs
    assert {1, 2, 3, 4, 6, 8, 16} <= target.asked
    assert [n for n, _ in costs.rows] == [1, 2, 3, 4, 6, 8, 16]
    assert (costs.routing.experts, costs.routing.chosen, costs.routing.layers) == (4, 2, 4)
    assert costs.alike == pytest.approx(0.4, abs=0.1), "counted in whole experts"


def test_where_nothing_counts_experts_rows_are_priced_as_those_of_a_text(target: Counting) -> None:
    costs = measure(target, target.new_cache(2), (), batch=2, seconds=0.05).costs
    assert costs.routing.dense
    assert [n for n, _ in costs.rows][:7] == [1, 2, 3, 4, 6, 8, 16]


def test_no_run_meets_the_tokens_of_the_last(target: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def watched(segments: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend((*segment.causal, *segment.draft.tokens) for segment in segments)
        return ModelRunner.forward(target, segments, *args, **kwargs)

    forwards = SyntheticForwards(target, target.new_cache(2), 2)
    monkeypatch.setattr(target, "forward", watched)
    for _ in range(3):
        forwards.run(2, 4)
    assert len({token for tokens in seen for token in tokens}) == 3 * 2 * 4


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({"num_experts": 128, "num_experts_per_tok": 8}, (128, 8)),
        ({"num_local_experts": 32, "num_experts_per_tok": 4}, (32, 4)),
        ({"n_routed_experts": 64, "num_experts_per_tok": 4}, (64, 4)),
        ({"num_experts": 256, "num_experts_per_token": 8}, (256, 8)),
        ({"num_experts": 128, "top_k_experts": 8}, (128, 8)),
        ({"moe_num_experts": 64, "moe_k": 6}, (64, 6)),
        ({"num_experts": 64, "moe_topk": [8, 8, 8]}, (64, 8)),
        ({"num_experts": 64, "moe_topk": [8, 4]}, (1, 1)),
        ({"num_experts": None, "top_k_experts": None}, (1, 1)),
        ({"num_local_experts": 0, "num_experts_per_tok": 0}, (1, 1)),
        ({"num_experts": 1, "moe_topk": 1}, (1, 1)),
        ({}, (1, 1)),
    ],
)
def test_a_config_says_how_many_are_chosen(stated: dict[str, Any], found: tuple[int, int]) -> None:
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(**stated))
    routing = routing_of(config)
    assert (routing.experts, routing.chosen) == found


@pytest.mark.parametrize("name", ["mixtral", "qwen3"])
def test_experts_are_told_from_other_weights(name: str) -> None:
    model = random_model(name)
    found = sum(each.numel() for key, each in model.named_parameters() if ".experts." in key)
    assert expert_numbers(model, routing_of(model.config)) == found
    assert bool(found) == (name == "mixtral")


# -- run ---------------------------------------------------------------------------------------------------------------


def test_an_engine_tells_the_experts_of_its_forwards(tiny: Callable[..., str], tmp_path: Path) -> None:
    """Every step has the count, the trace and its summary too, and pacing learns from it."""
    target = hs.Target(tiny("mixtral"), dtype="float32", max_length=120)
    engine = target.engine(drafter="ngram", pacing="adaptive")
    sampling = hs.Sampling(max_tokens=40, ignore_eos=True)
    prompt = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7]
    assert engine.generate(prompt, sampling).tokens == engine.plain().generate(prompt, sampling).tokens
    steps = [chunk.step for chunk in engine.stream(prompt, sampling)][1:]
    counts = {step.rows: step.experts for step in steps}
    assert counts[1] == 4 * 2, "of four layers"
    assert all(8 <= (step.experts or 0) <= 16 for step in steps)
    with engine.trace(tmp_path / "run.jsonl"):
        engine.generate(prompt, sampling)
    (request,) = read_trace(tmp_path / "run.jsonl").requests
    assert summarise(request).experts[1] == 8
