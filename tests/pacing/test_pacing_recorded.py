"""Pacing on texts that a real head drafted for: how many of its guesses hold at each position is recorded, so that
decisions can be counted without a model or a clock.

Recorded on the bundled target and its EAGLE-3 head, greedy, in bf16: two completions of 96 tokens. The costs are those
of a target so small that drafts are a good part of its step.
"""

from __future__ import annotations

import pytest
from support.rows import a_row

from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft, Seconds, Speculation, Step

LIMIT = 12
COSTS = StepCosts(
    ((1, 1.2e-3), (2, 1.22e-3), (4, 1.54e-3), (8, 1.68e-3), (16, 2.4e-3), (32, 3.6e-3)),
    drafts={"head": DraftCost(0.3e-3, 0.31e-3, 0.014e-3, 0.1)},
)
SLOW_START = """
0 0 0 1 2 4 12 9 8 7 8 7 10 7 12 11 10 11 10 9 10 9 10 11 12 11 12 11 12 11 12 11 12 11 12 9 12 9 12 9 10 9 12 9 10
9 10 9 10 9 10 9 10 9 10 9 10 9 10 9 10 9 10 9 10 9 12 12 12 11 12 11 12 11 12 11 12 11 12 11 12 11 12 11 11 10 9 8
7 6 5 4 3 2 1
"""
LISTS = """
0 0 0 1 0 10 3 2 10 9 10 7 8 7 4 9 8 7 6 5 3 2 2 1 0 8 1 3 2 1 7 6 5 4 3 2 1 0 6 5 4 3 2 1 0 6 5 4 3 2 1 0 6 5 4 3 2
1 0 6 5 4 3 2 1 0 6 5 4 3 2 1 0 8 7 6 5 5 3 3 2 0 0 5 4 3 6 5 0 6 4 3 3 2 0
"""
"""Guesses that hold at each position, of drafts of up to 12: both texts begin with guesses that are wrong."""


def forwards(recorded: str, prompt: int, *, reproducible: bool = False) -> tuple[int, float]:
    """Target forwards of the first text after a load, and its speed over that of plain decoding."""
    held = [int(each) for each in recorded.split()]
    cost = COSTS.drafts["head"]
    pacing = AdaptivePacing([Source("head", LIMIT)], COSTS, clock=lambda: 0.0)
    at = steps = read = 0
    spent = 0.0
    while at < len(held):
        length = prompt + at
        plan = pacing.plan([a_row(0, length, len(held) - at - 1, reproducible=reproducible)])
        (budget,) = plan.budgets
        nodes = budget.nodes if steps else 0  # a head has seen nothing before the first forward
        right = min(nodes, held[at])
        drafting = cost.seconds(nodes) + cost.read * max(0, length - read - 2) if nodes else 0.0
        read = length if nodes else read
        verify = COSTS.forward(1 + nodes)
        draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), source="head") if nodes else Draft()
        tokens = (0,) * min(right + 1, len(held) - at)
        rows = 1 + nodes if steps else prompt
        pacing.observe(
            plan,
            [Step(0, steps, length, draft, tuple(range(right)), tokens, None, rows, 1,
                 Seconds(draft=drafting, verify=verify), None, Speculation(True, "head"), budget)]
        )  # fmt: skip
        spent += drafting + verify
        steps += 1
        at += len(tokens)
    return steps, len(held) * COSTS.plain / spent


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(("recorded", "prompt", "most"), [(SLOW_START, 283, 32), (LISTS, 180, 50)])
def test_a_head_whose_first_guesses_are_wrong_is_tried_again_soon(
    recorded: str, prompt: int, most: int, reproducible: bool
) -> None:
    """Its belief is then moderate and its trials nearly pay for themselves, so they need no long saving up."""
    steps, speed = forwards(recorded, prompt, reproducible=reproducible)
    assert steps <= most
    assert speed > 1.0


def test_a_head_that_is_never_right_is_not() -> None:
    steps, speed = forwards("0 " * 960, 180)
    assert steps == 960
    assert speed > 0.97
