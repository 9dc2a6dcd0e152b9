"""K: chosen by theory from acceptance and costs, and costs read from what headstart writes on another machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from headstart import theory
from headstart.base.errors import InvalidFile
from headstart.fleet.export.depth import Costs, assumed, plan, read_costs
from headstart.fleet.export.files.engines import schedule
from headstart.theory import DraftCost, StepCosts
from headstart.theory.costs import DRAFT

FREE = Costs(StepCosts.in_plain_steps(0.1), "file: x")
DEAR = Costs(
    StepCosts(((1, 1.0), (2, 1.0), (4, 1.02), (8, 1.1), (16, 1.6), (32, 3.0)), drafts={"draft": DraftCost(token=0.05)}),
    "file: x",
)
ACCEPTANCE = [0.8, 0.75, 0.7, 0.65]


def test_one_request_is_the_textbooks_best_k() -> None:
    best = theory.best_k(ACCEPTANCE, 0.1, most=8)
    found = plan(ACCEPTANCE, FREE, longest=8, batch=1, fixed=None)
    assert (found.depth, found.by_batch[0].depth) == (best.k, best.k)
    assert found.by_batch[0].speedup == pytest.approx(best.speedup)
    assert found.off_from is None


def test_more_requests_want_shorter_drafts_and_then_none() -> None:
    found = plan(ACCEPTANCE, DEAR, longest=8, batch=8, fixed=None)
    depths = [one.depth for one in found.by_batch]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > 1
    assert depths[-1] == 0
    first = next(one.batch for one in found.by_batch if not one.depth)
    assert found.off_from == first
    assert all(one.speedup == 1.0 for one in found.by_batch if not one.depth)


def test_the_speedup_is_that_of_the_costs() -> None:
    found = plan(ACCEPTANCE, DEAR, longest=4, batch=2, fixed=None)
    at_2 = next(one for one in found.by_batch if one.batch == 2)
    k = at_2.depth
    tokens = theory.expected_tokens_by_position(ACCEPTANCE, k)
    seconds = DEAR.steps.step(2 * (k + 1), 2, {"draft": (k, 2)})
    assert at_2.speedup == pytest.approx(tokens * DEAR.steps.step(2, 2) / seconds)


def test_a_given_k_stands() -> None:
    assert plan(ACCEPTANCE, DEAR, longest=8, batch=256, fixed=5).depth == 5
    assert plan(ACCEPTANCE, DEAR, longest=8, batch=256, fixed=None).depth == 1


def test_an_assumption_says_nothing_of_batches() -> None:
    found = plan(ACCEPTANCE, assumed("eagle3"), longest=8, batch=32, fixed=None)
    assert [one.batch for one in found.by_batch] == [1]
    assert found.off_from is None
    assert assumed("eagle3").record().source.startswith("assumption: ")


def test_a_drafter_that_is_never_right() -> None:
    assert plan([], FREE, longest=8, batch=1, fixed=None).by_batch[0].depth == 0


def test_the_schedule_is_what_vllm_takes() -> None:
    found = schedule(plan(ACCEPTANCE, DEAR, longest=8, batch=1, fixed=None).by_batch)
    assert found[0][0] == 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(found))
    assert all(before[2] != after[2] for before, after in pairwise(found))
    assert found[-1][2] == 0


def doctor(folder: Path) -> Path:
    record = {
        "headstart_doctor": 1,
        "costs": {"seconds": 0.01, "v": {"1": 1.0, "8": 1.2}, "request_seconds": 0.0001},
        "candidates": [
            {"drafters": ["ngram"], "best": {"sources": {"ngram": {"c": 0.01}}}},
            {"drafters": ["my-head"], "best": {"depth": 4, "sources": {"eagle": {"c": 0.2}}}},
            {"drafters": ["broken"], "error": {}},
        ],
    }
    path = folder / "costs.json"
    path.write_text(json.dumps(record))
    return path


def test_costs_of_the_doctor(tmp_path: Path) -> None:
    found = read_costs(doctor(tmp_path), "eagle3", ("my-head", "/abs/my-head"))
    assert found.steps.c() == pytest.approx(0.2)
    assert found.steps.v(8) == pytest.approx(1.2)
    assert found.steps.request == 0.0001
    assert found.source == "file: costs.json, of headstart doctor"


def test_costs_of_a_profile(tmp_path: Path) -> None:
    costs = StepCosts(((1, 0.01), (8, 0.02)), drafts={"my-head": DraftCost(token=0.001)})
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"facts": {}, "costs": asdict(costs)}))
    found = read_costs(path, "eagle3", ("my-head",))
    assert found.steps.c() == pytest.approx(0.1)
    assert "profile" in found.source


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"costs": {"rows": []}}', '{"headstart_doctor": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(InvalidFile, match="costs"):
        read_costs(path, "eagle3", ())


def test_a_drafter_that_guesses_all_at_once_costs_about_the_same_at_any_length() -> None:
    """So longer drafts pay than where each token is a forward."""
    step, at_once = assumed("eagle3"), assumed("eagle3", parallel=True)
    assert at_once.steps.draft(DRAFT, 1) == pytest.approx(step.steps.draft(DRAFT, 1), rel=0.05)
    assert at_once.steps.draft(DRAFT, 8) < 1.2 * at_once.steps.draft(DRAFT, 1)
    acceptance = [0.6] * 8
    lengths = [plan(acceptance, each, longest=8, batch=1, fixed=None).depth for each in (step, at_once)]
    assert lengths[0] < lengths[1]
    assert "whatever the length" in at_once.source


def test_the_doctors_cost_of_a_parallel_drafter_is_that_of_one_forward(tmp_path: Path) -> None:
    """It was measured on drafts of four, 0.2 of a plain step for each token: 0.8 in all, of which none grows with K."""
    path = doctor(tmp_path)
    step, at_once = (read_costs(path, "eagle3", ("my-head",), parallel=each).steps for each in (False, True))
    assert at_once.draft(DRAFT, 4) == pytest.approx(step.draft(DRAFT, 4))
    assert at_once.draft(DRAFT, 8) < 1.1 * at_once.draft(DRAFT, 4) < 0.6 * step.draft(DRAFT, 8)
    unknown = read_costs(path, "draft_model", ("other",), parallel=True).steps
    assert unknown.draft(DRAFT, 8) < 1.2 * unknown.draft(DRAFT, 1)
