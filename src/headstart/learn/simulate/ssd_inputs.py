"""What a simulation of drafting ahead is told: costs of the two lanes as tables, drafts and their fate as measured.

`account` puts the same figures into the formula of `headstart.theory.ssd`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_flag, check_number
from headstart.theory import StepCosts, expected_tokens_by_position
from headstart.theory.rounds import by_position, extended
from headstart.theory.ssd import Drafted, SsdAccount, hit_rate

Late = Literal["serve", "finish", "wait"]
"""What becomes of drafts that are not ready when the verification ends: the levels that are ready are served; the
branch that is wanted is finished; or all branches are waited for (as the published engine does)."""


@dataclass(frozen=True)
class LaneCosts:
    """What each lane's forwards cost, in any one unit of time. Tables are {rows: time}, with 1 among the rows.

    Raises:
        InvalidOption: a cost that is not a number of at least 0, or a table without one row.
    """

    verify: Mapping[int, float]
    """The target's forward by rows, alone on the machine."""
    level: Mapping[int, float]
    """A forward of the drafter by rows: one row for each request or branch."""
    glue: Mapping[int, float] | None = None
    """The drafter's forward over the draft by rows, before the levels; by default as a level."""
    hand_over: float = 0.0
    """Telling the drafter the outcome and fetching the draft, every round that is drafted ahead."""
    slow: float = 0.0
    """How much longer the target takes while the drafter works too, as a share."""
    draft_slow: float = 0.0
    """The same for the drafter."""
    split: bool = False
    """The slow-downs hold all the time, as where each has its own cores for good."""
    jitter: float = 0.0
    """How much verifications vary: standard deviation over mean."""

    def __post_init__(self) -> None:
        for name in ("hand_over", "slow", "draft_slow", "jitter"):
            check_number(name, getattr(self, name), low=0)
        check_flag("split", self.split)
        if self.glue is None:
            object.__setattr__(self, "glue", self.level)
        for name in ("verify", "level", "glue"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))
            table_of(name, getattr(self, name))


@dataclass(frozen=True)
class SsdPlan:
    """How is drafted, and what comes true of it.

    Raises:
        InvalidOption: a value out of its range.
    """

    acceptance: Sequence[float]
    """Conditional acceptance by position; the last value holds for every later one."""
    k: int
    """Draft length."""
    fan_out: Sequence[int] = (3,)
    """F_0 to F_K, the foreseen bonus tokens after 0 to K accepted ones; one number is the same for all."""
    hits: Sequence[float] | float = 0.7
    """[n], the share of bonus tokens after a rejection among the first 1..n foreseen ones, as measured; the last value
    holds beyond. Or the power r of 1 - F^-r."""
    hits_full: Sequence[float] | float | None = None
    """The same where the whole draft was accepted; by default as `hits`."""
    batch: int = 1
    late: Late = "serve"
    drafted: Drafted = "missed"
    """Who is drafted for when some rows of a batch missed."""

    def __post_init__(self) -> None:
        by_position(self.acceptance)
        check_number("k", self.k, low=1, integer=True)
        check_number("batch", self.batch, low=1, integer=True)
        check_choice("late", self.late, get_args(Late))
        check_choice("drafted", self.drafted, get_args(Drafted))
        for one in self.fan_out:
            check_number("fan_out", one, low=0, integer=True)
        if len(self.fan_out) not in (1, self.k + 1):
            raise InvalidOption(
                f"fan_out has {len(self.fan_out)} numbers",
                hint=f"give one, or one for each of 0 to {self.k} accepted tokens: {self.k + 1}",
            )
        for name in ("hits", "hits_full"):
            _check_hits(name, getattr(self, name))

    def outs(self, length: int) -> tuple[int, ...]:
        """F_0 to F_length of a draft so long; its last is that of a draft accepted as a whole."""
        full = tuple(self.fan_out) * (self.k + 1) if len(self.fan_out) == 1 else tuple(self.fan_out)
        return (*full[:length], full[self.k])

    def foreseen(self, accepted: int, length: int) -> float:
        """The chance that the bonus token after so many accepted tokens of a draft was foreseen."""
        table = self.hits if accepted < length or self.hits_full is None else self.hits_full
        count = self.outs(length)[accepted]
        if not isinstance(table, Sequence):
            return float(hit_rate(count, table))
        return float(table[min(count, len(table)) - 1]) if count else 0.0

    @property
    def hit_rate(self) -> float:
        """h of one row after a whole draft."""
        chances = self.accepted_chances
        return sum(chance * self.foreseen(k, self.k) for k, chance in enumerate(chances))

    @property
    def accepted_chances(self) -> tuple[float, ...]:
        """The chances of 0 to K accepted tokens."""
        reached = np.concatenate([[1.0], np.cumprod(extended(by_position(self.acceptance), self.k))])
        return tuple(float(p) for p in np.append(reached[:-1] - reached[1:], reached[-1]))

    @property
    def tokens(self) -> float:
        """E: tokens of a round with a whole draft."""
        return float(expected_tokens_by_position(self.acceptance, self.k))


def account(plan: SsdPlan, costs: LaneCosts) -> SsdAccount:
    """The formula's answer for the same figures: a constant verification, drafts waited for, a stop at any moment.

    Handing over counts as missing: every round pays it. With several rows it is the formula for rows that are drafted
    for all together, or not at all.
    """
    verify, level = table_of("verify", costs.verify), table_of("level", costs.level)
    glue = table_of("glue", costs.glue or costs.level)
    rows = plan.batch * (plan.k + 1)
    unit, s = verify.forward(rows), costs.slow
    branches = plan.batch * sum(plan.outs(plan.k))
    work = (glue.forward(rows) + plan.k * level.forward(branches)) / unit if branches else 0.0
    now = plan.k * level.forward(plan.batch) / unit
    overlapped = work * (1 + costs.draft_slow)
    slowed = s if costs.split else s * min(1.0, overlapped / (1 + s))  # only while both work
    # What outlasts the verification is done alone, at full speed unless the machine is split
    left = overlapped - 1 - s if costs.split else work - (1 + s) / (1 + costs.draft_slow)
    h = plan.hit_rate if plan.drafted == "nothing" else plan.hit_rate**plan.batch
    missed = 0.0 if plan.drafted == "nothing" else (1 - h) * now * (1 + costs.draft_slow * costs.split)
    return SsdAccount(now, slowed, h * max(0.0, left), missed + costs.hand_over / unit)


def table_of(name: str, costs: Mapping[int, float]) -> StepCosts:
    try:
        return StepCosts(tuple(costs.items()))
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}", hint="a table is {rows: time}, from 1 row upwards") from error


def _check_hits(name: str, table: Sequence[float] | float | None) -> None:
    if table is None:
        return
    if not isinstance(table, Sequence):
        check_number(name, table, low=0)
        return
    for share in table:
        check_number(name, share, low=0, high=1)
    if not table or list(table) != sorted(table):
        raise InvalidOption(f"{name}={list(table)} does not rise", hint="give the share among the first 1, 2, 3, ...")
