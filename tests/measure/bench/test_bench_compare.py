"""Two results compared: a planted regression is found, noise is not taken for one, and other prompts do not mix in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import bench_runs as made

from headstart.base.errors import InvalidFile
from headstart.measure.bench.comparison import compare

CATEGORIES = {"code": 8, "prose": 8}


@pytest.mark.parametrize("seed", range(5))
def test_a_regression_of_a_fifth_is_found(seed: int) -> None:
    before = made.noisy(seed, categories=CATEGORIES)
    after = made.noisy(100 + seed, categories=CATEGORIES, slower=1.25)
    found = compare(before, after)
    assert found.verdict == "slower"
    assert found.words == "slower beyond noise"
    assert found.rows[0].speedup.ratio.value == pytest.approx(0.8, abs=0.1)
    assert found.below(95)
    assert not found.below(60), "it is slower, but not by so much"


def test_the_other_way_round_it_is_faster() -> None:
    found = compare(made.noisy(0, categories=CATEGORIES, slower=1.25), made.noisy(1, categories=CATEGORIES))
    assert found.verdict == "faster"
    assert not found.below(100)


def test_noise_is_not_taken_for_a_change() -> None:
    """The level holds for all categories together, so about 3 of 60 may be wrong."""
    wrong = 0
    for seed in range(60):
        pair = (made.noisy(each, categories=CATEGORIES) for each in (seed, 500 + seed))
        wrong += compare(*pair, resamples=400).verdict != "no difference"
    assert wrong <= 6


def test_a_slower_machine_is_not_a_regression_and_is_said() -> None:
    before = made.result([[1.0], [2.0], [4.0]], [[0.5], [1.1], [2.0]])
    after = made.result([[1.5], [3.0], [6.0]], [[0.75], [1.65], [3.0]])
    found = compare(before, after)
    assert found.verdict == "no difference"
    assert found.rows[0].fast.ratio.value == pytest.approx(1 / 1.5)
    assert "33% slower" in found.machine
    assert compare(before, before).machine == ""


def test_one_slower_category_is_enough() -> None:
    plain = [[1.0]] * 8
    before = made.result(plain, [[0.5 + 0.001 * i] for i in range(8)], prompts=made.prompts({"code": 4, "prose": 4}))
    slow = [[0.5 + 0.001 * i] for i in range(4)] + [[0.7 + 0.001 * i] for i in range(4)]
    found = compare(before, made.result(plain, slow, prompts=before.prompts))
    assert [row.category for row in found.rows] == ["overall", "code", "prose"]
    assert [row.speedup.judgement for row in found.rows[1:]] == ["no difference", "slower"]
    assert found.verdict == "slower"
    assert "prose" in [row.category for row in found.below(95)]


def test_prompts_of_one_result_only_do_not_count() -> None:
    before = made.result([[1.0], [2.0], [4.0]], [[0.5], [1.0], [2.0]])
    after = made.result([[1.0], [2.0], [4.0]], [[0.5], [1.0], [99.0]])
    other = (*after.prompts[:2], replace(after.prompts[2], digest="another"))
    found = compare(before, replace(after, prompts=other))
    assert (found.prompts, found.missing, found.rows[0].units) == (2, 2, 2)
    assert found.rows[0].speedup.ratio.value == pytest.approx(1.0)
    nothing = tuple(replace(prompt, digest=f"x{i}") for i, prompt in enumerate(after.prompts))
    with pytest.raises(InvalidFile, match="no prompt in common"):
        compare(before, replace(after, prompts=nothing))


def test_the_same_prompt_twice_is_two_units() -> None:
    twice = made.result([[1.0], [2.0]], [[0.5], [1.0]])
    twice = replace(twice, prompts=(twice.prompts[0], twice.prompts[0]))
    assert compare(twice, twice).rows[0].units == 2


def test_with_one_prompt_nothing_can_be_told() -> None:
    found = compare(made.result([[1.0]], [[0.5]]), made.result([[1.0]], [[2.0]]))
    assert found.rows[0].speedup.ratio.value == pytest.approx(0.25)
    assert found.verdict == "no difference"


def test_what_was_different_about_the_runs() -> None:
    before = made.result([[1.0]], [[0.5]])
    after = replace(
        before,
        settings={"target": "T", "max_tokens": 20, "sampling": {"seed": 1}},
        engine={**made.ENGINE, "threads": 8},
        provenance={**before.provenance, "date": "another", "commit": "abc", "command": "headstart other"},
        complete=False,
    )
    found = compare(before, after)
    assert found.settings["max_tokens"] == (10, 20)
    assert found.settings["sampling seed"] == (None, 1)
    assert found.settings["engine threads"] == (1, 8)
    assert found.settings["made with commit"] == (before.provenance["commit"], "abc")
    assert not [name for name in found.settings if "date" in name or "command" in name or "target" in name]
    assert found.incomplete == ("second",)
