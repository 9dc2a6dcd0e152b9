"""Does sampled text follow the distribution it should? The audit draws, bets, and stops when it is sure of either
answer.

All asks are one process with one capital; batches go through them in turn. Not lossless: the bets against the
reference's distribution have won 1/level, which a lossless subject sees with probability at most `level`. Lossless
within stated power: they have not, and of simulated audits with distributions off by the stated effect, in any of the
ways tried, at least the share `power` would have accused by now. Undecided: neither, with all samples used. An audit
that accuses draws a few batches more, to say how far off the distribution is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.base.options import check_number
from headstart.measure.audit.betting import Pool
from headstart.measure.audit.findings import SampledResult
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.power import Power, SimulatedAudits, least
from headstart.measure.audit.prefixes import Block, Prefix, Prefixes
from headstart.measure.audit.subject import (
    Ask,
    Completion,
    Progress,
    Reference,
    Subject,
    Verdict,
    no_progress,
    up_to_end,
)

HORIZON = 5000.0
"""Positions at which the lower bound is about as tight as it can be made."""


class LowerBound:
    """On the mean total variation between each token's distribution and p.

    At each position the richest bettor names a set A of tokens, from the past; P(A) - p(A) is at most the distance of
    P from p there, and 1[x in A] - p(A) has that mean. Its sum is bounded below at all times at once by a mixture
    (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", section 3.2): each term lies in an interval of length 1, so it is sub-Gaussian with variance 1/4.
    """

    def __init__(self, level: float) -> None:
        self._level = level
        self._sum = 0.0
        self._positions = 0

    def add(self, block: Block, favoured: NDArray[np.bool_]) -> None:
        """favoured: [n, C], the sets A, chosen before the block was drawn."""
        hits = favoured[np.arange(len(block)), block.drawn]
        self._sum += float(hits.sum() - (block.p * favoured).sum())
        self._positions += len(block)

    @property
    def mean(self) -> float:
        """Of 1[x in A] - p(A): an estimate that is unbiased for a part of the distance."""
        return self._sum / max(self._positions, 1)

    @property
    def value(self) -> float:
        """The distance is at least this much, at confidence 1 - level, at whatever time one stops; at least 0."""
        if not self._positions:
            return 0.0
        variance, prior = self._positions / 4, HORIZON / 4 / 8
        width = math.sqrt((variance + prior) * math.log((variance + prior) / (prior * self._level**2)))
        return max((self._sum - width) / self._positions, 0.0)


_REMEMBERED = 8
"""Blocks that a projection goes through again."""
SIZING = 4
"""Batches from the one that accuses on, that one included."""


def audit_sampling(
    subject: Subject,
    reference: Reference,
    asks: Sequence[Ask],
    plan: AuditPlan,
    progress: Progress = no_progress,
    *,
    tolerance: float = 0.0,
    draft: Reference | None = None,
) -> SampledResult:
    """Audit the subject's sampled text against the reference's distributions.

    asks: prompts, and how to sample after each; their seeds are not used
    tolerance: total variation by which distributions may differ without being wrong: 0 where subject and reference run
        the same weights in the same arithmetic, else the measured noise
    draft: a distribution that the subject may lean towards, such as its draft model's; knowing it makes the audit
        sharper, and a wrong one does no harm

    Raises:
        InvalidPrompt: there is none, or one is empty.
        InvalidOption: an ask is greedy, or the tolerance is not below the effect.
    """
    if not asks or not all(ask.prompt for ask in asks):
        raise InvalidPrompt("an audit needs prompts", hint="give at least one, of at least one token")
    if any(ask.sampling.greedy for ask in asks):
        raise InvalidOption(
            "a sampled audit needs samplings with a temperature above 0",
            hint="greedy text has one right answer at each token and is compared, not tested",
        )
    check_number("tolerance", tolerance, low=0)
    if tolerance >= plan.effect:
        raise InvalidOption(
            f"tolerance={tolerance:g} hides an effect of {plan.effect:g}",
            hint="ask for a larger effect, or make the two forwards more alike (float32)",
        )
    audit = _Audit(subject, reference, asks, plan, tolerance, draft)
    audit.run(progress)
    return audit.result()


@dataclass(eq=False)
class _Audit:
    """One audit while it runs."""

    _subject: Subject
    _reference: Reference
    _asks: Sequence[Ask]
    _plan: AuditPlan
    _tolerance: float
    draft: InitVar[Reference | None]

    def __post_init__(self, draft: Reference | None) -> None:
        self._prefixes = Prefixes(self._reference, self._asks, draft)
        expected = self._plan.max_samples / len(self._asks)
        bettors: dict[str, Any] = {"tolerance": self._tolerance, "expected": expected, "knows_draft": draft is not None}
        self._pool = Pool.of(1, **bettors)
        self._simulated = SimulatedAudits(self._plan, **bettors)
        self._bound = LowerBound(self._plan.level)
        self._drawn = self._tokens = self._past_end = self._impossible = self._looks = 0
        self._most = 0.0
        self._blocks: list[Block] = []
        self._curve: list[tuple[int, float, float]] = []

    def run(self, progress: Progress) -> None:
        """Draw and bet until one of the verdicts is due."""
        plan = self._plan
        left = SIZING
        while self._drawn < plan.max_samples and left and not self._cleared:
            count = min(plan.batch, plan.max_samples - self._drawn)
            turn = [(self._drawn + i) % len(self._asks) for i in range(count)]
            completions = self._subject.sample([self._asks[ask] for ask in turn])
            self._drawn += count
            self._bet(turn, completions)
            weakest = least(self._powers())
            evidence, power = _capital(self._log_evidence), weakest.share if weakest else 0.0
            self._curve.append((self._drawn, evidence, power))
            left -= self._accused
            progress("sampling", self._drawn, plan.max_samples, f"e-value {evidence:.3g}, power {power:.0%}")

    def _bet(self, turn: Sequence[int], completions: Sequence[Completion]) -> None:
        prefixes: list[Prefix] = []
        tokens: list[int] = []
        for ask, completion in zip(turn, completions, strict=True):
            text = up_to_end(completion.tokens, self._reference.stop_ids(self._asks[ask].sampling))
            self._past_end += len(text) < len(completion.tokens)
            if text:
                prefixes += self._prefixes.along(ask, text)
                tokens += text
        if prefixes:
            block = Block.of(prefixes, tokens)
            self._bound.add(block, self._pool.favoured(block))
            self._pool.bet(block, block.drawn[None])
            self._simulated.follow(block, self._drawn)
            self._looks += 1
            self._blocks = [*self._blocks, block][-_REMEMBERED:]
            self._tokens += len(block)
            self._impossible += int((block.drawn == block.p.shape[1] - 1).sum())
            self._most = max(self._most, self._log_evidence)
        self._prefixes.settle()

    @property
    def _log_evidence(self) -> float:
        return float(self._pool.total()[0])

    @property
    def _accused(self) -> bool:
        return self._past_end > 0 or self._most >= math.log(1 / self._plan.level)

    @property
    def _cleared(self) -> bool:
        weakest = least(self._powers())
        sure = weakest is not None and weakest.share >= self._plan.power
        return self._tokens > 0 and sure and not self._accused

    def _powers(self) -> list[Power]:
        return self._simulated.powers() if self._tokens else []

    def result(self) -> SampledResult:
        verdict: Verdict = "not lossless" if self._accused else "lossless" if self._cleared else "undecided"
        powers = self._powers()
        projected = None
        if verdict == "undecided" and self._blocks and any(each.counted and each.needed is None for each in powers):
            completions = math.ceil(self._drawn * len(self._blocks) / self._looks)
            projected = self._simulated.project(self._blocks, completions)
        return SampledResult(
            verdict=verdict,
            plan=self._plan,
            tolerance=self._tolerance,
            asks=self._asks,
            completions=self._drawn,
            tokens=self._tokens,
            prefixes=self._prefixes.count,
            evidence=_capital(self._log_evidence),
            most_evidence=_capital(self._most),
            strategies={name: _capital(logs[0]) for name, logs in self._pool.by_strategy().items()},
            curve=self._curve,
            bound=self._bound.value,
            estimate=self._bound.mean,
            powers=powers,
            projected=projected,
            past_end=self._past_end,
            impossible=self._impossible,
            subject=self._subject.describe(),
            reference=self._reference.describe(),
        )


def _capital(log: float) -> float:
    return math.exp(min(log, 700))
