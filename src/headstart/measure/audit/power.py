"""What an audit would have noticed: simulated audits beside it, with distributions that are wrong on purpose.

A simulated audit visits the prefixes that the real one visits and draws a token there from a biased distribution; the
very same bettors bet on it. The share of the simulated audits of one bias that accuse by now is the power against that
bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.measure.audit.betting import Pool
from headstart.measure.audit.biases import BIASES, REACHED, TO_GUESSES, at_effect, distance, redraw
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.prefixes import Block, Floats

_FURTHER = 40


@dataclass(frozen=True, slots=True)
class Power:
    """The power against one bias.

    what: the bias in words
    share: of its simulated audits that accused
    effect: the mean total variation that they had
    counted: whether that is the effect asked for
    needed: completions for the power asked for, if growth goes on as it has
    """

    bias: str
    what: str
    share: float
    effect: float
    counted: bool
    needed: int | None

    def record(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "caught": round(self.share, 4),
            "total_variation": round(self.effect, 5),
            "counted": self.counted,
            "completions_needed": self.needed,
        }


class SimulatedAudits:
    """R simulated audits for each bias, advanced block by block with the real one."""

    def __init__(self, plan: AuditPlan, *, tolerance: float, expected: float, knows_draft: bool) -> None:
        self._plan = plan
        self._biases = (*BIASES, TO_GUESSES) if knows_draft else BIASES
        self._bar = math.log(1 / plan.level)
        self._generator = np.random.default_rng(plan.seed)
        audits = plan.replicates * len(self._biases)
        self._pool = Pool.of(audits, tolerance=tolerance, expected=expected, knows_draft=knows_draft)
        self._caught = np.zeros(audits, dtype=np.bool_)
        self._distance = np.zeros(len(self._biases))
        self._positions = 0
        self._grown: list[tuple[int, Floats]] = []

    def follow(self, block: Block, completions: int) -> None:
        """One more block of the real audit, which has `completions` completions by now."""
        distributions = [at_effect(block, bias, self._plan.effect) for bias in self._biases]
        drawn = np.concatenate([redraw(each, self._plan.replicates, self._generator) for each in distributions])
        self._pool.bet(block, drawn)
        total = self._pool.total()
        self._caught |= total >= self._bar
        self._distance += [distance(block.p, each) * len(block) for each in distributions]
        self._positions += len(block)
        weakest = np.quantile(total.reshape(len(distributions), -1), 1 - self._plan.power, axis=1)
        self._grown.append((completions, weakest))

    def powers(self) -> list[Power]:
        """By bias."""
        shares = self._caught.reshape(len(self._biases), -1).mean(1)
        effects = self._distance / max(self._positions, 1)
        return [
            Power(
                bias.name,
                bias.what,
                float(shares[i]),
                float(effects[i]),
                bool(effects[i] >= REACHED * self._plan.effect),
                self._needed(i, float(shares[i])),
            )
            for i, bias in enumerate(self._biases)
        ]

    def project(self, blocks: Sequence[Block], completions: int) -> int | None:
        """Completions that the power asked for would take if the blocks came again and again, `completions` in all of
        them each time; None if not even `_FURTHER` more blocks would do. The simulated audits are used up by it."""
        drawn = self._grown[-1][0]
        for number in range(_FURTHER):
            weakest = least(self.powers())
            if weakest is None:
                return None
            if weakest.share >= self._plan.power:
                return drawn
            drawn += math.ceil(completions / len(blocks))
            self.follow(blocks[number % len(blocks)], drawn)
        return None

    def _needed(self, bias: int, share: float) -> int | None:
        """Completions after which the weakest simulated audit that must accuse has the evidence: on a straight line
        through the second half of its growth."""
        completions, now = self._grown[-1]
        if share >= self._plan.power:
            return completions
        before, then = self._grown[len(self._grown) // 2]
        if completions == before or now[bias] <= then[bias]:
            return None
        slope = float(now[bias] - then[bias]) / (completions - before)
        return completions + math.ceil(max(self._bar - float(now[bias]), 0) / slope)


def least(powers: list[Power]) -> Power | None:
    """The bias against which power is least, of those that reach the effect at all."""
    return min((power for power in powers if power.counted), key=lambda power: power.share, default=None)
