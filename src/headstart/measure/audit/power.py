"""What an audit would have noticed: simulated audits beside it, with distributions that are wrong on purpose.

A bias is a family of distributions with a strength; the strength is set, block by block, so that the mean total
variation between the biased distributions and p is the effect of the plan. A simulated audit visits the prefixes that
the real one visits and draws a token there from a biased distribution; the very same bettors bet on it. The share of
the simulated audits of one bias that accuse by now is the power against that bias. Shapes: n positions, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.measure.audit.betting import Pool
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.prefixes import BUCKETS, DRAFT_SCORE, OUTPUT_SCORE, Block, Floats, Ints, each_log
from headstart.rule.noise import Noise, Purpose
from headstart.theory.statistics import bisect

STRONGEST = 1e3
REACHED = 0.9
"""Share of the effect that a bias must reach to be counted: distributions that are nearly sure of a token cannot be
sharper."""
_HALVINGS = 30

Biased = Callable[[Block, float], Floats]


@dataclass(frozen=True, slots=True)
class Bias:
    """One way: what it does, and the distributions [n, C] of a block at a strength above 0."""

    name: str
    what: str
    distributions: Biased


def _tilted(p: Floats, by: NDArray[Any]) -> Floats:
    """p exp(by), normalised; 0 where p is."""
    logs = np.where(p > 0, np.log(np.where(p > 0, p, 1)) + by, -np.inf)
    grown = np.exp(logs - logs.max(1, keepdims=True))
    found: Floats = grown / grown.sum(1, keepdims=True)
    return found


def to_runner_up(block: Block, strength: float) -> Floats:
    """The likeliest token gives some of its mass to the second."""
    p: Floats = block.p.copy()
    given = np.where(p[:, 1] > 0, np.minimum(strength, p[:, 0]), 0)
    p[:, 0] -= given
    p[:, 1] += given
    return p


@cache
def _weights() -> Floats:
    """A fixed normal weight for each bucket of token ids."""
    noise = Noise(0)
    pairs = np.array([[noise.uniform(i, Purpose.TOKEN, 0, k) for k in (0, 1)] for i in range(BUCKETS + 1)])
    normal: Floats = np.sqrt(-2 * np.log(pairs[:, 0])) * np.cos(2 * np.pi * pairs[:, 1])
    return normal


def to_guesses(block: Block, strength: float) -> Floats:
    """Some draws come from the draft's distribution q."""
    share = np.minimum(block.scores[:, DRAFT_SCORE].astype(np.float64), 1 - 1e-6)
    q = share * block.p / (1 - share)
    total = q.sum(1, keepdims=True)
    q = np.where(total > 0, q / np.where(total > 0, total, 1), block.p)
    part = min(strength, 1.0)
    found: Floats = (1 - part) * block.p + part * q
    return found


BIASES = (
    # p to the power 1 + strength, as of a lower temperature, and to 1 / (1 + strength), as of a higher one
    Bias("sharper", "likely tokens are too likely", lambda block, s: _tilted(block.p, s * each_log(block.p))),
    Bias(
        "flatter",
        "likely tokens are not likely enough",
        lambda block, s: _tilted(block.p, (1 / (1 + s) - 1) * each_log(block.p)),
    ),
    Bias("runner-up", "the second likeliest token takes from the likeliest", to_runner_up),
    Bias(
        "reweighted",
        "each token has a weight of its own, the same everywhere",
        lambda block, s: _tilted(block.p, s * _weights()[block.buckets]),
    ),
    Bias(
        "repeats", "tokens come again too often", lambda block, s: _tilted(block.p, s * block.scores[:, OUTPUT_SCORE])
    ),
)
TO_GUESSES = Bias("guesses", "some tokens come from the draft's distribution", to_guesses)


def distance(p: Floats, biased: Floats) -> float:
    """Mean total variation over the positions."""
    return float(np.abs(p - biased).sum(1).mean() / 2)


def at_effect(block: Block, bias: Bias, effect: float) -> Floats:
    """The distributions whose mean total variation from p is `effect`, or as near below it as this bias can come."""
    strongest = bias.distributions(block, STRONGEST)
    if distance(block.p, strongest) <= effect:
        return strongest
    _, logarithm = bisect(
        lambda middle: distance(block.p, bias.distributions(block, math.exp(middle))),
        effect, math.log(1e-6), math.log(STRONGEST), _HALVINGS,
    )  # fmt: skip
    return bias.distributions(block, math.exp(logarithm))


def redraw(distributions: Floats, audits: int, generator: np.random.Generator) -> Ints:
    """[R, n]: classes drawn from distributions [n, C]; one of probability 0 never is."""
    sums = distributions.cumsum(1)
    sums /= sums[:, -1:]
    begins = np.arange(len(distributions))
    # One search for all rows: row i lies in [i, i + 1]
    uniforms = generator.random((audits, len(distributions))) + begins
    found_at = np.searchsorted((sums + begins[:, None]).ravel(), uniforms, side="right")
    classes = found_at - begins * distributions.shape[1]
    last = distributions.shape[1] - 1 - (distributions[:, ::-1] > 0).argmax(1)
    found: Ints = np.minimum(classes, last)
    return found


_FURTHER = 40


@dataclass(frozen=True, slots=True)
class Power:
    """The power against one bias.

    what: the bias in words
    share: of its simulated audits that accused
    effect: the mean total variation that they had
    counted: whether that is the effect of the plan
    needed: completions for the power of the plan, if growth goes on as it has
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
        shares: list[float] = self._caught.reshape(len(self._biases), -1).mean(1).tolist()
        effects: list[float] = (self._distance / max(self._positions, 1)).tolist()
        enough = REACHED * self._plan.effect
        return [
            Power(bias.name, bias.what, share, effect, effect >= enough, self._needed(i, share))
            for i, (bias, share, effect) in enumerate(zip(self._biases, shares, effects, strict=True))
        ]

    def project(self, blocks: Sequence[Block], completions: int) -> int | None:
        """Completions that the power of the plan would take if the blocks came again and again, `completions` in all of
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
