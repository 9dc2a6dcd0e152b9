"""Figures computed from runs: by hand, with hiccups, with interrupts, in batches, by category."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support import bench_runs as made

from headstart import theory
from headstart.measure.bench.machine import least
from headstart.measure.bench.result import FAST, PLAIN, SourceRecord, Trial
from headstart.measure.bench.summary import summarise
from headstart.measure.bench.sweep import c_of, here, step_costs, sweep_points, why_not_predicted
from headstart.measure.bench.verdict import conclude
from headstart.theory import DraftCost, StepCosts
from headstart.theory.statistics import proportion
from headstart.types import PARTS


def test_speedup_is_the_ratio_of_the_time_all_texts_take() -> None:
    """Plain 1 s and 4 s, speculative 0.5 s and 1 s: 5 / 1.5; the mean of the ratios, 3, would be wrong."""
    found = summarise(made.result([[1.0], [4.0]], [[0.5], [1.0]]))
    assert len(found) == 1, "with one category there is nothing to tell apart"
    assert found[0].speedup.value == pytest.approx(5 / 1.5)
    assert found[0].plain.tokens_per_second == pytest.approx(20 / 5)
    assert found[0].fast.tokens_per_second == pytest.approx(20 / 1.5)


def test_a_hiccup_of_the_machine_spoils_one_repetition_not_the_speedup() -> None:
    found = summarise(made.result([[1.0, 1.0, 30.0], [2.0, 2.1, 2.0]], [[0.5, 0.5, 0.5], [9.0, 1.0, 1.0]]))
    assert found[0].speedup.value == pytest.approx(2.0)


def test_texts_of_different_lengths_compare_by_time_per_token() -> None:
    slow = Trial(PLAIN, 0, 0, 1.0, (made.run(0, 1.0, tokens=10),))
    fast = Trial(FAST, 0, 0, 1.0, (made.run(0, 1.0, tokens=30, forwards=10),))
    found = summarise(made.result([[1.0]], [[1.0]], trials=(slow, fast)))[0]
    assert found.speedup.value == pytest.approx(3.0)
    assert found.tokens_per_forward.value == pytest.approx(3.0)
    assert not found.speedup.known, "one prompt has no scatter"


def test_the_interval_pairs_the_lanes_of_a_prompt() -> None:
    """Prompts of very different lengths, all exactly twice as fast: no doubt about the speedup."""
    found = summarise(made.result([[1.0], [10.0], [100.0]], [[0.5], [5.0], [50.0]]))[0]
    assert (found.speedup.low, found.speedup.high) == pytest.approx((2.0, 2.0))


def test_waiting_times() -> None:
    counts, arrivals = (2, 1, 3), (0.4, 0.5, 0.9)
    one = made.run(0, 1.0, arrivals=arrivals, counts=counts)
    assert one.first == 0.4
    assert one.gaps == pytest.approx((0.1, 0.4))
    assert one.seconds_per_token == pytest.approx(0.5 / 4), "four tokens came after the first chunk"
    single = made.run(0, 1.0, arrivals=(0.4,), counts=(2,))
    assert single.seconds_per_token is None
    assert made.run(0, 1.0, arrivals=(), counts=()).first == 1.0


def test_the_parts_of_the_time_add_up() -> None:
    found = summarise(made.result([[1.0], [4.0]], [[0.5], [1.0]]))[0]
    assert found.fast.time_split == pytest.approx(made.SHARES | {"other": 0.1})
    assert sum(found.plain.time_split.values()) == pytest.approx(1)


def test_acceptance_is_added_up_by_position_over_runs_of_different_depth() -> None:
    runs = (made.run(0, 1.0, tested=(10, 6), kept=(6, 3)), made.run(0, 1.0, tested=(5, 2, 1), kept=(2, 1, 1)))
    trials = [Trial(PLAIN, 0, 0, 1.0, (made.run(0, 1.0),)), Trial(PLAIN, 0, 1, 1.0, (made.run(0, 1.0),))]
    trials += [Trial(FAST, 0, repetition, 1.0, (each,)) for repetition, each in enumerate(runs)]
    found = summarise(made.result([[1.0]], [[1.0]], trials=tuple(trials)))[0]
    assert [(p.judged, p.accepted) for p in found.positions] == [(15, 8), (8, 4), (1, 1)]
    assert found.positions[0].share == proportion(8, 15)
    assert found.alpha == pytest.approx(13 / 24)


def test_categories_are_told_apart_in_their_order() -> None:
    both = made.result([[1.0], [1.0], [1.0], [1.0]], [[0.5], [0.5], [2.0], [2.0]])
    found = summarise(replace(both, prompts=made.prompts({"quick": 2, "slow": 2})))
    assert [each.category for each in found] == ["overall", "quick", "slow"]
    assert [each.speedup.value for each in found] == pytest.approx([4 / 5, 2.0, 0.5])
    assert "Slower in category slow" in " ".join(conclude(both, found).reasons)


def test_of_an_interrupted_bench_only_finished_pairs_count() -> None:
    whole = made.result([[1.0, 1.0], [4.0, 4.0]], [[0.5, 0.5], [1.0, 1.0]])
    cut = replace(whole, trials=whole.trials[:-1], complete=False)  # the last repetition of the second prompt
    found = summarise(cut)
    assert found[0].trials == 3
    assert found[0].speedup.value == pytest.approx(5 / 1.5)
    assert "interrupted" in conclude(cut, found).headline
    assert summarise(replace(whole, trials=())) == []
    assert summarise(replace(whole, trials=whole.trials[:1])) != [], "one arm alone: all arms that there are"


def test_a_batch_is_one_unit_and_its_speedup_is_that_of_throughput() -> None:
    """Two prompts at once, 20 tokens in 2 s plain; 20 in 0.5 s: four times the tokens per second."""
    pair = tuple(made.run(index, 2.0) for index in range(2))
    quick = tuple(made.run(index, 0.5, forwards=5) for index in range(2))
    trials = (Trial(PLAIN, 0, 0, 2.0, pair), Trial(FAST, 0, 0, 0.5, quick))
    whole = made.result([[1.0], [1.0]], [[1.0], [1.0]], trials=trials, units=((0, 1),))
    found = summarise(whole)[0]
    assert found.speedup.value == pytest.approx(4.0)
    assert (found.units, found.prompts) == (1, 2)
    assert found.plain.tokens_per_second == pytest.approx(10.0)
    assert "up to 2 at a time" in " ".join(conclude(whole, [found]).reasons)


def test_energy_is_per_token_and_unknown_where_one_round_has_none() -> None:
    whole = made.result([[1.0], [1.0]], [[0.5], [0.5]])
    told = replace(whole, trials=tuple(replace(each, joules=5.0) for each in whole.trials), no_energy="")
    assert summarise(told)[0].plain.joules_per_token == pytest.approx(10 / 20)
    assert summarise(replace(told, trials=(whole.trials[0], *told.trials[1:])))[0].plain.joules_per_token is None


# -- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fast", "kind", "words"),
    [
        ([0.5, 0.52, 0.49], "good", "times as fast"),
        ([2.0, 2.1, 1.9], "bad", "slower"),
        ([0.5, 1.0, 2.0], "unsure", "beyond noise"),
        ([0.5], "unsure", "too few"),
    ],
)
def test_verdicts(fast: list[float], kind: str, words: str) -> None:
    whole = made.result([[1.0]] * len(fast), [[seconds] for seconds in fast])
    found = conclude(whole, summarise(whole))
    assert found.kind == kind
    assert words in found.headline
    assert found.headline.startswith("2.00 tokens per target forward")


def test_the_verdict_says_why_speculation_was_off() -> None:
    whole = made.result([[1.0], [1.0]], [[0.5], [0.5]])
    off = made.run(0, 0.5, forwards=5, on=False, reason="the drafter raised ValueError: no")
    broken = replace(whole, trials=(*whole.trials[:2], replace(whole.trials[2], runs=(off,)), whole.trials[3]))
    found = summarise(broken)
    assert found[0].off == {"the drafter raised ValueError: no": 1}
    assert "off in 1 of 2 runs: the drafter raised" in " ".join(conclude(broken, found).reasons)


def test_without_a_single_draft_both_sides_are_plain() -> None:
    trials = tuple(Trial(arm, 0, 0, 1.0, (made.run(0, 1.0),)) for arm in (PLAIN, FAST))
    whole = made.result([[1.0]], [[1.0]], trials=trials)
    found = conclude(whole, summarise(whole))
    assert (found.kind, here(whole, summarise(whole)[0])) == ("info", None)


@pytest.mark.parametrize(("engine", "words"), [({}, "please report"), ({"dtype": "bfloat16"}, "change places")])
def test_texts_that_part_are_said_with_what_it_means(engine: dict[str, str], words: str) -> None:
    whole = made.result([[1.0], [1.0]], [[0.5], [0.5]], engine={**made.ENGINE, **engine})
    parted = replace(whole.trials[3], runs=(replace(whole.trials[3].runs[0], differs_at=4),))
    whole = replace(whole, trials=(*whole.trials[:3], parted))
    reasons = " ".join(conclude(whole, summarise(whole)).reasons)
    assert "in 1 of 2 runs" in reasons
    assert words in reasons
    assert "not compared" in " ".join(
        conclude(replace(whole, compared=False), summarise(replace(whole, compared=False))).reasons
    )


# -- the map and the sweep -------------------------------------------------------------------------------------------


def test_more_rows_never_cost_less() -> None:
    costs = StepCosts(((1, 2.0), (2, 1.0), (4, 5.0), (8, 4.0)))
    assert costs.forwards == {1: 1.0, 2: 1.0, 4: 4.0, 8: 4.0}
    assert {n: costs.v(n) for n in costs.forwards} == {1: 1.0, 2: 1.0, 4: 4.0, 8: 4.0}


def test_of_two_measurements_the_lower_counts() -> None:
    quick, slow = DraftCost(0.001, 0.001), DraftCost(0.0, 0.01)
    found = least(
        StepCosts(((1, 0.2), (2, 0.3)), drafts={"D": slow}), StepCosts(((1, 0.1), (2, 0.4)), drafts={"D": quick})
    )
    assert found == StepCosts(((1, 0.1), (2, 0.3)), drafts={"D": quick})


def test_c_is_a_drafted_token_in_forwards() -> None:
    costs = StepCosts(((1, 0.01),), drafts={"D": DraftCost(start=0.002, token=0.001)})
    assert costs.c("D", 4) == pytest.approx(0.006 / 4 / 0.01)


def test_here_is_where_the_runs_stood() -> None:
    """Plain: 1 s of 10 steps, 0.3 s of them neither forward nor draft. A draft of 3 takes 0.004 s."""
    whole = made.result([[1.0]], [[0.5]])
    place = here(whole, summarise(whole)[0])
    assert place is not None
    costs = step_costs(whole)
    assert costs is not None
    assert costs.overhead == pytest.approx(0.03)
    assert place.k == 3
    assert place.alpha == pytest.approx(1.0)
    assert place.c == pytest.approx(0.004 / 3 / 0.04)
    assert place.v[8] == pytest.approx((0.016 + 0.03) / 0.04)
    dearer = replace(made.COSTS, drafts={"D": DraftCost(0.001, 0.001, sibling=0.0005)})
    assert c_of(dearer, "D", SourceRecord(10, 50, 30, 9)) == pytest.approx((0.004 + 2 * 0.0005) / 3 / dearer.plain)


def test_what_a_step_takes_besides_grows_with_its_rows() -> None:
    """Plain 0.03 s a step; with a draft of 3 it is 0.09 s: 0.02 s for each row more."""
    whole = made.result([[1.0]], [[1.5]])
    costs = step_costs(whole)
    assert costs is not None
    assert (costs.overhead, costs.row_overhead) == pytest.approx((0.03, 0.02))
    assert costs.outside(4) == pytest.approx(0.09)


def test_the_sweep_is_measured_by_pairs_and_predicted_by_the_formula() -> None:
    """No overhead and no prompt to read: then the prediction is theory's own, with acceptance of the longest K."""
    costs = StepCosts(((1, 0.1), (2, 0.1), (3, 0.12)), drafts={"D": DraftCost(0.0, 0.02)})

    def arm(name: str, seconds: float, forwards: int, k: int) -> Trial:
        drafts = SourceRecord(forwards, k * forwards, k * forwards, 10 - forwards)
        judged = {"tested": (5, 3), "kept": (3, 1)} if k == 2 else {"tested": (5,), "kept": (3,)}
        each = made.run(
            0, seconds, forwards=forwards, arrivals=tuple(i * seconds / (forwards - 1) for i in range(forwards)),
            parts=dict.fromkeys(PARTS, 0.0) | {"verify": seconds},
            **({"sources": {"D": drafts}, **judged} if k else {}),
        )  # fmt: skip
        return Trial(name, 0, 0, seconds, (each,))

    sweep = (arm(PLAIN, 1.0, 10, 0), arm("K=1", 0.8, 6, 1), arm("K=2", 0.5, 5, 2))
    main = (arm(PLAIN, 1.0, 10, 0), arm(FAST, 0.5, 5, 2))
    whole = made.result([[1.0]], [[0.5]], trials=main, sweep=sweep, costs=costs)
    one, two = sweep_points(whole)
    assert (one.k, two.k) == (1, 2)
    assert (one.speedup.value, two.speedup.value) == pytest.approx((1.25, 2.0))
    assert (one.tokens_per_forward, two.tokens_per_forward) == pytest.approx((10 / 6, 2.0))
    chances = [3 / 5, 1 / 3]
    for point in (one, two):
        wanted = theory.speedup_by_position(chances, point.k, 0.2, costs.v)
        assert point.predicted == pytest.approx(wanted)


def test_a_sweep_that_cannot_be_predicted_says_why() -> None:
    whole = made.result([[1.0]], [[0.5]])
    arms = tuple(replace(each, arm="K=3" if each.arm == FAST else PLAIN) for each in whole.trials)
    swept = replace(whole, sweep=arms)
    assert why_not_predicted(swept) == ""
    assert math.isfinite(sweep_points(swept)[0].predicted)
    tree = replace(arms[1], runs=(replace(arms[1].runs[0], chains=False),))
    cases = {
        "trees": replace(swept, sweep=(arms[0], tree)),
        "not measured": replace(swept, costs=None),
        "cost of D": replace(swept, costs=StepCosts(((1, 0.1),))),
    }
    for words, case in cases.items():
        assert words in why_not_predicted(case)
        assert math.isnan(sweep_points(case)[0].predicted)
