"""Pacing on texts that a real head drafted for: how many of its guesses hold at each position is recorded, so that
decisions can be counted without a model or a clock.

Recorded on the bundled target, greedy, in bf16: two completions of 96 tokens with its EAGLE-3 head, and eight of 64
with n-grams and its draft LM. The costs are those of a target so small that drafts are a good part of its step.
"""

from __future__ import annotations

from dataclasses import replace

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


PAIR_COSTS = StepCosts(
    ((1, 1.9e-3), (2, 1.9e-3), (3, 2.02e-3), (4, 2.28e-3), (8, 2.95e-3), (16, 3.65e-3), (32, 6.24e-3)),
    drafts={"ngram": DraftCost(0.065e-3, 0.0, 0.002e-3), "lm": DraftCost(0.25e-3, 0.3e-3, 0.014e-3)},
)
OVERHEAD, DECIDING = 0.25e-3, 0.15e-3
PAIR_TEXTS = (
    (8, "...................vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "4321000101032100101010103210010101010432101010101043210101010104"),
    (10, ".........210........vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "2105432102105432101021054321043210543210432105432104321054321043"),
    (10, "....6543210...6543210...6543210..........76543210...3210........",
     "1054321032105432100210543210043210432105432100543210876543210321"),
    (10, ".......0...........vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "021032101032100ccccccccccccccccccccccccccccccccccccccccccccccccc"),
    (38, "..0..............vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "3210876543210101098765432101010ba9876543210ccccba9876543210ccba9"),
    (315, "0.65432102106543210.10.....876543210.vvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "3210001002100021000210543210010021003210010021003210010021003210"),
    (365, "..........0..........210......10....10vvvvvvvvvvvvvvvvvvvvvvvvvv",
     "4321001032101021021021032103210210321005432102103210054321065432"),
    (31, "......00..vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
     "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"),
)  # fmt: skip
"""Tokens of the prompt; guesses of an n-gram copy that hold at each position, "." where nothing matches; and those of
the draft LM. In digits beyond 9: a is 10, and v is 31."""


def two_rounds() -> tuple[int, float]:
    """Target forwards of all texts, twice over, and their speed over that of plain decoding."""
    pacing = AdaptivePacing([Source("ngram", 31), Source("lm", 12)], PAIR_COSTS, clock=lambda: 0.0)
    spent, steps = 0.0, 0
    for request, (prompt, copies, guesses) in enumerate(PAIR_TEXTS * 2):
        held = {"ngram": copies, "lm": guesses}
        read = dict.fromkeys(held, 0)
        at = index = 0
        while at < len(copies):
            length = prompt + at
            plan = replace(pacing.plan([a_row(request, length, len(copies) - at - 1)]), seconds=DECIDING)
            (budget,) = plan.budgets
            draft, right, drafting = Draft(), 0, 0.0
            for name, cost in PAIR_COSTS.drafts.items():
                nodes = budget.max_nodes.get(name, 0)
                if nodes and not len(draft):
                    drafting += cost.seconds(0) + cost.read * max(0, length - read[name] - 2)
                    read[name] = length
                    if held[name][at] != ".":
                        draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), source=name)
                        drafting += cost.token * nodes
                        right = min(nodes, int(held[name][at], 36))
            verify = PAIR_COSTS.forward(1 + len(draft))
            seconds = Seconds(draft=drafting, verify=verify, plan=DECIDING, commit=OVERHEAD)
            rows = len(draft) + (1 if index else prompt)
            tokens = (0,) * (right + 1)
            pacing.observe(
                plan,
                [Step(request, index, length, draft, tuple(range(right)), tokens, None, rows, 1, seconds, None,
                 Speculation(True, "pair"), budget)],
            )  # fmt: skip
            spent += seconds.total
            steps += 1
            index += 1
            at += len(tokens)
        pacing.release(request)
    made = 2 * sum(len(copies) for _, copies, _ in PAIR_TEXTS)
    return steps, made * (PAIR_COSTS.plain + OVERHEAD) / spent


def test_a_draft_lm_is_not_kept_from_the_tokens_before_a_long_copy() -> None:
    """N-grams copy most of these texts. That makes a mean token cheap, and drafts of the LM look dear beside it; but
    the tokens that no n-gram matches are decoded with the LM or without any draft."""
    steps, speed = two_rounds()
    assert steps <= 212
    assert speed > 2.65
