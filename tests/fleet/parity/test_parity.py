"""Parity holds where both sides run the same head, and fails for every fault that is planted in one of them."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.head_faults import EAGLE3, planted
from support.parallel_drafts import masked_checkpoint
from support.parity import PAIR, Recorded, StandIn

from headstart.base.errors import ContextExceeded, InvalidOption, UnsupportedModel
from headstart.fleet.parity import Plan, parity
from headstart.fleet.parity.compare import differences, reasons
from headstart.fleet.parity.counts import Counts
from headstart.fleet.parity.drafters import EarliestLookup
from headstart.fleet.parity.plan import PROMPTS
from headstart.fleet.parity.reference import Predicted, Reference
from headstart.fleet.parity.report import Compared, ParityReport, render

PLANS: dict[str, dict[str, Any]] = {
    "eagle3": {"kind": "eagle3", "depth": 4, "drafter": PAIR / "eagle3"},
    "medusa": {"kind": "medusa", "depth": 3, "drafter": PAIR / "medusa"},
    "ngram": {"kind": "ngram", "depth": 4, "lookup": (1, 3)},
    "draft_model": {"kind": "draft_model", "depth": 4, "drafter": PAIR / "draft"},
}
TOKENS = 32


def plan(name: str, **changes: Any) -> Plan:
    return Plan(**{"target": PAIR / "target", "device": "cpu", **PLANS[name], **changes})


@functools.cache
def reference(name: str) -> Reference:
    return Reference(plan(name))


def printed(report: ParityReport) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


@pytest.mark.parametrize("name", ["eagle3", "medusa", "ngram"])
def test_headstart_predicts_what_vllm_counted(name: str) -> None:
    """The recordings are of a real vLLM; every counter of every prompt is equal."""
    recorded = Recorded(name)
    report = parity(recorded, reference(name), prompts=recorded.prompts[:1], max_tokens=96)
    assert report.passed, report.reasons
    assert (report.equal, report.same_text) == (1, 1)
    assert report.ours == report.theirs
    undrafted = report.ours.forwards - report.ours.drafts - 1  # beside those of the prompts
    assert undrafted > 0 if name == "ngram" else undrafted == 0
    assert "PARITY: All counters are equal for 1 of 1 prompt" in printed(report)


def refused(report: ParityReport) -> None:
    assert report.same_text == len(report.compared), "a wrong head changes no text"
    assert not report.passed
    assert "counters of" in report.reasons[0]
    assert "NO PARITY" in printed(report)


@pytest.mark.parametrize("fault", EAGLE3)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    faulty = StandIn(plan("eagle3", drafter=planted(PAIR / "eagle3", tmp_path / "head", fault)))
    refused(parity(faulty, reference("eagle3"), prompts=PROMPTS[:1], max_tokens=TOKENS))


def test_dropped_biases_are_found(tmp_path: Path) -> None:
    right = planted(PAIR / "medusa", tmp_path / "right", "biases enlarged")
    wrong = planted(right, tmp_path / "wrong", "biases dropped")
    ours = Reference(plan("medusa", drafter=right))
    refused(parity(StandIn(plan("medusa", drafter=wrong)), ours, prompts=PROMPTS[:1], max_tokens=TOKENS))


def test_a_depth_of_another_engine_is_found() -> None:
    refused(parity(StandIn(plan("ngram", depth=3)), reference("ngram"), prompts=PROMPTS[:1], max_tokens=TOKENS))


def test_a_draft_model_agrees_with_itself() -> None:
    report = parity(StandIn(plan("draft_model")), plan("draft_model"), prompts=PROMPTS[:1], max_tokens=TOKENS)
    assert report.passed, report.reasons
    assert report.equal == report.same_text == 1


def test_a_draft_model_with_a_mask_token_drafts_in_parallel_where_the_engine_does(tmp_path: Path) -> None:
    folder = masked_checkpoint(shutil.copytree(PAIR / "draft", tmp_path / "draft"), 7)
    mine = plan("draft_model", drafter=folder, parallel=True)
    ours = Reference(mine)
    report = parity(StandIn(mine), ours, prompts=PROMPTS[:1], max_tokens=TOKENS)
    assert report.passed, report.reasons
    refused(parity(StandIn(plan("draft_model", drafter=folder)), ours, prompts=PROMPTS[:1], max_tokens=TOKENS))
    with pytest.raises(UnsupportedModel, match="names no mask token"):
        Reference(plan("draft_model", parallel=True))


# -- narrower numbers -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_bfloat16_a_right_head_passes_within_the_noise_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """The stand-in runs the target in float32: another rounding, as another engine's kernels have."""
    narrow = Reference(plan("eagle3", dtype="bfloat16"))
    report = parity(StandIn(plan("eagle3")), narrow, prompts=PROMPTS[:6], max_tokens=96)
    assert report.passed, report.reasons
    assert report.equal < 6, "rounding decides some drafts"
    assert "within the noise" in printed(report)
    wrong = planted(PAIR / "eagle3", tmp_path / "head", "output rows swapped")
    report = parity(StandIn(plan("eagle3", drafter=wrong)), narrow, prompts=PROMPTS[:6], max_tokens=96)
    assert not report.passed
    assert any(reason.startswith("tokens per forward is") for reason in report.reasons)


def counted(counts: tuple[int, ...], theirs: tuple[int, ...], *, gap: float = 0.0) -> Compared:
    """(generated, drafts, drafted, A_1, A_2) of both sides."""
    ours, server = (Counts(c[0], c[1], c[2], c[3:]) for c in (counts, theirs))
    return Compared(8, Predicted(ours, gap, int(gap > 0)), server)


def test_one_prompt_shows_nothing_in_narrow_numbers_unless_it_is_equal() -> None:
    narrow = plan("ngram", depth=2, dtype="bfloat16")
    same, other = (40, 20, 40, 15, 5), (40, 21, 42, 15, 4)
    equal, unequal = [counted(same, same)], [counted(same, other)]
    assert reasons(narrow, equal, differences(equal, 2, 0.99), 0.99) == ([], [])
    wrong, _ = reasons(narrow, unequal, differences(unequal, 2, 0.99), 0.99)
    assert "one prompt shows nothing" in wrong[0]


def test_a_text_that_is_not_the_target_s_is_named() -> None:
    exact, same = plan("ngram", depth=2), (40, 20, 40, 15, 5)
    for gap, passes in ((0.0, True), (1e-4, True), (0.5, False)):
        compared = [counted(same, same, gap=gap)]
        wrong, notes = reasons(exact, compared, differences(compared, 2, 0.99), 0.99)
        assert bool(wrong) is not passes
        assert bool(notes) is (0 < gap < 0.5)
        assert all("not this target's: at prompt 1" in each for each in wrong)


def noisy(rng: np.random.Generator, loss: float = 0.0) -> list[Compared]:
    """A dozen prompts with independent noise on both sides; `loss`: of the server's chance of acceptance."""
    compared = []
    for chance in rng.uniform(0.4, 0.9, size=12):
        sides = []
        for here in (chance, chance - loss):
            first = int(rng.binomial(30, here))
            second = int(rng.binomial(first, here))
            sides.append((31 + first + second, 30, 60, first, second))
        compared.append(counted(*sides))
    return compared


def within(compared: list[Compared], level: float) -> bool:
    return not reasons(plan("ngram", depth=2, dtype="bfloat16"), compared, differences(compared, 2, level), level)[0]


def test_a_loss_of_acceptance_lies_outside_the_joint_interval() -> None:
    rng = np.random.default_rng(1)
    assert within(noisy(rng), 0.99)
    assert not within(noisy(rng, 0.25), 0.99)


@pytest.mark.slow
def test_the_joint_interval_keeps_its_level() -> None:
    """Right heads: at the level 0.9 at most about one in ten fails."""
    rng = np.random.default_rng(5)
    fails = sum(not within(noisy(rng), 0.9) for _ in range(100))
    assert fails <= 19  # 3 standard deviations above 10


# -- plans and bad input ----------------------------------------------------------------------------------------------


def test_plans_are_what_vllm_is_told() -> None:
    made = Plan.of_speculation("t", {"method": "ngram", "num_speculative_tokens": 5}, dtype="bfloat16")
    assert (made.lookup, made.depth, made.exact) == ((5, 5), 5, False)  # vLLM's own default
    made = Plan.of_speculation(
        "t", {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}, dtype="float32"
    )
    assert (made.lookup, made.exact) == ((3, 3), True)
    by_batch = {"method": "eagle3", "model": "h", "num_speculative_tokens": 5}
    by_batch["num_speculative_tokens_per_batch_size"] = [[1, 4, 3], [5, 8, 0]]  # type: ignore[assignment]
    assert Plan.of_speculation("t", by_batch, dtype="float32").depth == 3  # that of a single request


@pytest.mark.parametrize(
    ("speculation", "error"),
    [
        ({"method": "suffix", "num_speculative_tokens": 4}, UnsupportedModel),
        ({"num_speculative_tokens": 4}, UnsupportedModel),
        ({"method": "eagle3", "model": "h"}, InvalidOption),
        ({"method": "eagle3", "num_speculative_tokens": 4}, InvalidOption),
        ({"method": "ngram", "num_speculative_tokens": 0}, InvalidOption),
        ({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 4, "prompt_lookup_max": 2},
         InvalidOption),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(speculation: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Plan.of_speculation("t", speculation, dtype="float32")


def test_what_does_not_fit_is_refused() -> None:
    known = reference("ngram")
    subject = Recorded("ngram")
    with pytest.raises(InvalidOption, match="no prompts"):
        parity(subject, known, prompts=())
    with pytest.raises(ContextExceeded, match="leave no room for a draft of 4"):
        parity(subject, known, max_tokens=2040)
    with pytest.raises(InvalidOption, match="the number of Medusa heads is 3"):
        Reference(plan("medusa", depth=4))
    with pytest.raises(InvalidOption, match="chains of up to 12"):
        Reference(plan("eagle3", depth=13))


def test_the_report_is_json() -> None:
    recorded = Recorded("ngram")
    report = parity(recorded, reference("ngram"), prompts=recorded.prompts[:1], max_tokens=96)
    record = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert record["passed"] is True
    assert record["totals"]["headstart"] == record["totals"]["server"]
    assert record["totals"]["server"]["forwards"] == report.ours.forwards
    assert record["plan"]["target"] == str(PAIR / "target")
    assert record["positions"][0]["position"] == 1


# -- vLLM's lookup ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "shortest", "longest", "after"),
    [
        ((1, 2, 9, 1, 2, 8, 1, 2), 1, 2, (9, 1, 2, 8)),  # the first occurrence, where headstart's drafter has the last
        ((1, 2, 9, 2, 8, 1, 2), 1, 3, (9, 2, 8, 1)),  # the longest match that there is
        ((7, 7, 7), 1, 2, (7,)),  # matches may overlap; nothing is repeated past the end
        ((1, 2, 3, 4, 1), 2, 3, ()),
        ((1, 2, 3), 1, 3, ()),
        ((5,), 1, 1, ()),
    ],
)
def test_the_lookup_is_vllm_s(tokens: tuple[int, ...], shortest: int, longest: int, after: tuple[int, ...]) -> None:
    assert EarliestLookup(4, shortest, longest).after(tokens)[:4] == after
