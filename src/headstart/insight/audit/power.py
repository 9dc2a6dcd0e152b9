"""What an audit would have noticed: shadows of it, with laws that are wrong on purpose.

A shadow visits the places that the real audit visits and draws a token there from a biased law; the very same bettors
bet on it. The share of the shadows of one bias that have been caught by now is the power against that bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.insight.audit.betting import Pool
from headstart.insight.audit.biases import BIASES, REACHED, TO_GUESSES, at_effect, distance, redraw
from headstart.insight.audit.laws import Block, Floats

_FURTHER = 40


@dataclass(frozen=True, slots=True)
class Power:
    """Against one bias. share: of its shadows that were caught. effect: mean total variation that they had; counted:
    whether that is the effect asked for. needed: completions for the power asked for, if growth goes on as it has."""

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


class Shadows:
    """R shadows for each bias, advanced block by block with the real audit."""

    def __init__(
        self,
        replicates: int,
        *,
        effect: float,
        level: float,
        asked: float,
        tolerance: float,
        expected: float,
        suspect: bool,
        seed: int,
    ) -> None:
        self._biases = (*BIASES, TO_GUESSES) if suspect else BIASES
        self._replicates = replicates
        self._effect = effect
        self._bar = math.log(1 / level)
        self._asked = asked
        self._generator = np.random.default_rng(seed)
        audits = replicates * len(self._biases)
        self._pool = Pool.of(audits, tolerance=tolerance, expected=expected, suspect=suspect)
        self._caught = np.zeros(audits, dtype=np.bool_)
        self._distance = np.zeros(len(self._biases))
        self._positions = 0
        self._grown: list[tuple[int, Floats]] = []

    def follow(self, block: Block, completions: int) -> None:
        """One more block of the real audit, which has `completions` completions by now."""
        laws = [at_effect(block, bias, self._effect) for bias in self._biases]
        drawn = np.concatenate([redraw(each, self._replicates, self._generator) for each in laws])
        self._pool.bet(block, drawn)
        total = self._pool.total()
        self._caught |= total >= self._bar
        self._distance += [distance(block.p, each) * len(block) for each in laws]
        self._positions += len(block)
        weakest = np.quantile(total.reshape(len(laws), -1), 1 - self._asked, axis=1)
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
                bool(effects[i] >= REACHED * self._effect),
                self._needed(i, float(shares[i])),
            )
            for i, bias in enumerate(self._biases)
        ]

    def foresee(self, blocks: Sequence[Block], completions: int) -> int | None:
        """Completions that the power asked for would take if the blocks came again and again, `completions` in all of
        them each time; None if not even `_FURTHER` more blocks would do. The shadows are used up by it."""
        drawn = self._grown[-1][0]
        for number in range(_FURTHER):
            weakest = least(self.powers())
            if weakest is None:
                return None
            if weakest.share >= self._asked:
                return drawn
            drawn += math.ceil(completions / len(blocks))
            self.follow(blocks[number % len(blocks)], drawn)
        return None

    def _needed(self, bias: int, share: float) -> int | None:
        """Completions after which the weakest shadow that must be caught has the evidence, on a straight line through
        the second half of its way."""
        completions, now = self._grown[-1]
        if share >= self._asked:
            return completions
        before, then = self._grown[len(self._grown) // 2]
        if completions == before or now[bias] <= then[bias]:
            return None
        slope = float(now[bias] - then[bias]) / (completions - before)
        return completions + math.ceil(max(self._bar - float(now[bias]), 0) / slope)


def least(powers: list[Power]) -> Power | None:
    """The bias against which power is least, of those that reach the effect at all."""
    return min((power for power in powers if power.counted), key=lambda power: power.share, default=None)
