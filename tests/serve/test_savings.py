"""What an answer says that speculation saved: from steps whose seconds are made up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import t as student

from headstart.serve.savings import ENOUGH, KEPT_SECONDS, LEAST, SELDOM, SOON, PlainSteps, Tally
from headstart.types import CaughtUp, Draft, Seconds, Speculation, Step

PLAIN = [0.010, 0.012, 0.011, 0.013]


def step(
    request: int, tokens: int, *, drafted: int = 0, fed: int = 1, batch: int = 1, position: int = 100, **seconds: float
) -> Step:
    return Step(
        request, 0, position, Draft.chain([5] * drafted), tuple(range(max(0, tokens - 1))), (5,) * tokens, None,
        fed + drafted, batch, Seconds(**seconds), None, Speculation(True, "made up"),
    )  # fmt: skip


class Life:
    """Plain steps and one request, on a clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.plain = PlainSteps(lambda: self.now)
        self.tally = Tally()

    def see(self, *steps: Step) -> None:
        kind = self.plain.observe(steps, sampled=False)
        self.tally.add(steps[0], steps, kind)


def test_what_is_saved_is_plain_steps_less_what_was_spent_and_its_interval_is_students() -> None:
    life = Life()
    for seconds in PLAIN:
        life.see(step(9, 1, verify=seconds - 0.001, sample=0.001))
    life.tally = Tally()  # another request
    life.see(step(0, 4, drafted=5, plan=0.001, draft=0.002, verify=0.015, sample=0.001, commit=1.0))
    life.see(step(0, 1, drafted=5, plan=0.001, draft=0.002, verify=0.015, sample=0.001, commit=1.0))
    saved = life.plain.saved(life.tally)
    assert saved is not None
    assert saved.tokens == 5
    assert saved.seconds == pytest.approx(5 * 0.0115 - 2 * 0.019)
    variance = sum((x - 0.0115) ** 2 for x in PLAIN) / 3
    reach = student.ppf(0.975, 3) * math.sqrt(variance * (5 + 25 / 4))
    assert (saved.low, saved.high) == pytest.approx((saved.seconds - reach, saved.seconds + reach))


def test_it_may_be_below_zero_and_says_so() -> None:
    life = Life()
    for seconds in PLAIN:
        life.see(step(9, 1, verify=seconds))
    life.tally = Tally()
    life.see(step(0, 1, drafted=5, draft=0.05, verify=0.02))
    saved = life.plain.saved(life.tally)
    assert saved is not None
    assert saved.high < 0


def test_nothing_is_said_without_plain_steps_of_the_kind() -> None:
    life = Life()
    drafted = step(0, 4, drafted=5, verify=0.015)
    life.see(drafted)
    assert life.plain.saved(life.tally) is None
    for _ in range(LEAST):
        life.see(*(step(each, 1, batch=2, verify=0.01) for each in (1, 2)))  # of two requests
        life.see(step(1, 1, position=1000, verify=0.02))  # of a longer context
        assert life.plain.saved(Tally()) is None
    life.tally = Tally()
    life.see(drafted)
    assert life.plain.saved(life.tally) is None
    life.see(step(0, 3, drafted=5, position=1000, verify=0.025))
    saved = life.plain.saved(life.tally)
    assert saved is not None
    assert saved.tokens == 3, "the other four are left out on both sides"
    assert saved.seconds == pytest.approx(3 * 0.02 - 0.025)
    life.now = KEPT_SECONDS + 1
    assert life.plain.saved(life.tally) is None, "measured too long ago"


def test_a_prompt_that_is_read_beside_it_is_not_the_drafts_fault() -> None:
    life = Life()
    for _ in range(LEAST):
        life.see(*(step(each, 1, batch=2, verify=0.01) for each in (1, 2)))
    life.tally = Tally()
    life.see(step(0, 3, drafted=4, batch=2, draft=0.001, verify=0.1), step(1, 0, fed=95, batch=2, verify=0.1))
    saved = life.plain.saved(life.tally)
    assert saved is not None
    assert saved.seconds == pytest.approx(2 * 0.01 - 0.001 - 0.1 * 4 / 100)
    life.see(step(1, 0, fed=95))
    assert life.plain.saved(life.tally) == saved, "its own prompt saves and costs nothing"


def test_plain_steps_are_run_until_enough_are_known_and_not_while_a_prompt_is_read() -> None:
    life, ran = Life(), []
    for number in range(SOON * LEAST + SELDOM * ENOUGH):
        life.see(step(0, 2, drafted=3, verify=0.02))
        if life.plain.due:
            ran.append(number)
            life.plain._add(life.plain._kind, 0.01)  # type: ignore[arg-type]
            life.plain._since = 0
    assert ran[:LEAST] == [SOON * (each + 1) - 1 for each in range(LEAST)]
    assert len(ran) == ENOUGH
    other = Life()
    for _ in range(2 * SOON):
        other.see(step(0, 1, fed=64, verify=0.02))
        assert not other.plain.due


def test_no_plain_step_is_run_behind_one_in_which_a_drafter_reads() -> None:
    life = Life()
    drafted = step(0, 2, drafted=3, verify=0.02)
    reading = replace(drafted, draft=replace(drafted.draft, caught_up=(CaughtUp("draft", 500, 100),)))
    for _ in range(2 * SOON):
        life.see(reading)
        assert not life.plain.due
    life.see(drafted)
    assert life.plain.due
