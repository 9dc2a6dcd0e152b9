"""The allowance for trying sources that do not seem to pay: the text changes, and nothing is learnt of the unasked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.pacing.belief import SourcePrior
from headstart.pacing.constants import FIRST_ROUNDS, HORIZON_STEPS, MAX_TIME_SHARE, MIN_TIME_SHARE, REFRESH_STEPS
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import Choice, DraftOption, can_pay, net_gain
from headstart.pacing.source import Source


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to try a source now."""

    place: int | None
    """The source to try, or None."""
    interval_steps: float = 0.0
    """Steps between two probes."""
    due_steps: float = math.inf
    """Steps until the next one may be paid for; infinite where no source could pay if every guess were right. A
    verdict stands until half of them have passed: judging is expensive, and what it rests on moves slowly."""


NO_TRIAL = Verdict(None)


class Probe:
    """Saves up time, step by step, and spends it on the smallest draft of the source whose trial is cheapest.

    Trials may cost at most 0.5% of the baseline time for a source that never paid, and up to 2% for one that did. A
    trial starts when its expected loss has been saved: its price, less the time that its accepted tokens should save.
    What it loses beyond that is saved up before the next one.

    Args:
        lasting: whether what trials teach is of use to later requests. Then even what cannot pay by its profile is
            tried, until a few drafts have shown what they take.
    """

    def __init__(
        self, sources: Sequence[Source], costs: CurrentCosts, priors: Sequence[SourcePrior], *, lasting: bool = False
    ) -> None:
        self._sources, self._costs, self._priors = sources, costs, priors
        self._lasting = lasting
        self._saved_seconds = self._spent_seconds = 0.0
        self._useful: dict[tuple[int, int, bool], bool] = {}
        self._age = 0
        self._asked: tuple[set[int], int, bool] | None = None
        self._verdict = NO_TRIAL
        self._passed_steps = 0  # since the verdict

    def decide(
        self,
        options: Sequence[Sequence[DraftOption]],
        choice: Choice,
        batch: int,
        sampled: bool,
        passed_steps: int,
        deciding: float = 0.0,
    ) -> Verdict:
        """Whether to try a source that drafts nothing for some row. passed_steps: since the last decision. deciding:
        seconds of a decision, to which every trial leads."""
        self._age += passed_steps
        if self._age >= HORIZON_STEPS:
            self._useful.clear()
            self._age = 0
        if all(map(all, choice.nodes)):
            return NO_TRIAL
        drafts = [each for row in zip(options, choice.nodes, strict=True) for each in zip(*row, strict=True)]
        idle = {option.source for option, nodes in drafts if nodes == 0 and len(option.nodes)}
        if not idle:
            return NO_TRIAL
        self._passed_steps += passed_steps
        last, asked = self._verdict, (idle, batch, sampled)
        if asked == self._asked and self._passed_steps < min(last.due_steps / 2, REFRESH_STEPS):
            return Verdict(None, last.interval_steps, last.due_steps - self._passed_steps)
        self._asked = asked
        self._verdict = self._judge(idle, options, choice, batch, sampled, deciding)
        self._passed_steps = 0
        return self._verdict

    def _judge(
        self,
        idle: set[int],
        options: Sequence[Sequence[DraftOption]],
        choice: Choice,
        batch: int,
        sampled: bool,
        deciding: float,
    ) -> Verdict:
        candidates = [place for place in idle if self._unknown(place) or self.can_pay(place, batch, sampled)]
        losses = {place: deciding + self._loss(place, options, choice, batch, sampled) for place in candidates}
        if not losses:
            return NO_TRIAL
        place = min(losses, key=lambda each: losses[each])
        share = MIN_TIME_SHARE + (MAX_TIME_SHARE - MIN_TIME_SHARE) * self._priors[place].promise
        allowance = self._costs.step(batch, self._costs.rows(batch), batch * sampled) * share
        self._saved_seconds += allowance * self._passed_steps
        interval = losses[place] / allowance
        needed = max(0.0, losses[place] - self._expected_refund(place, options, choice, batch))
        if self._saved_seconds < needed:
            return Verdict(None, interval, (needed - self._saved_seconds) / allowance)
        self._saved_seconds -= losses[place]
        self._spent_seconds = losses[place]
        return Verdict(place, interval, interval)

    def refund(self, seconds: float) -> None:
        """Of the last trial's price, so many seconds were not lost, because its guesses were accepted."""
        given = min(seconds, self._spent_seconds)
        self._saved_seconds += given
        self._spent_seconds -= given
        self._asked = None

    def _loss(
        self, place: int, options: Sequence[Sequence[DraftOption]], choice: Choice, batch: int, sampled: bool
    ) -> float:
        """Seconds that trying its smallest draft costs at most: draft, rows, and the drafts that it displaces."""
        costs = self._costs
        tried = [row for row, mine in enumerate(choice.nodes) if mine[place] == 0 and len(options[row][place].nodes)]
        rows = costs.rows(batch) + sum(self._weight(mine) for mine in choice.nodes)
        least = self._sources[place].smallest
        more = costs.weigh(*least) * len(tried)
        seconds = costs.draft(place, least, len(tried), sampled)
        seconds += costs.step(batch, rows + more, least[0] * len(tried) * sampled) - costs.step(batch, rows)
        for row in tried:
            option = options[row][place]
            seconds += option.backlog
            for later in options[row][place + 1 :]:
                if choice.nodes[row][later.source]:
                    lost = net_gain(later, costs, costs.rows(batch), choice.rate, sampled)
                    seconds += option.coverage * lost / choice.rate
        return seconds

    def _weight(self, nodes: Sequence[int]) -> float:
        """What one request's drafts of so many nodes by source count as, in rows of the forward."""
        sizes = (source.size(each) for source, each in zip(self._sources, nodes, strict=True))
        return float(sum(self._costs.weigh(*size) for size in sizes))

    def _expected_refund(
        self, place: int, options: Sequence[Sequence[DraftOption]], choice: Choice, batch: int
    ) -> float:
        """Seconds that `refund` is expected to give back of it."""
        least, _ = self._sources[place].smallest
        mine = [row[place] for row, nodes in zip(options, choice.nodes, strict=True) if not nodes[place]]
        plain = self._costs.step(batch, self._costs.rows(batch)) / batch
        return sum(option.coverage * option.gain(least) for option in mine) * plain

    def _unknown(self, place: int) -> bool:
        return self._lasting and (self._priors[place].rounds < FIRST_ROUNDS or self._costs.doubts(place))

    def can_pay(self, place: int, batch: int, sampled: bool) -> bool:
        """Whether a source would pay if it were always right; found out again after some steps."""
        key = place, batch, sampled
        if key not in self._useful:
            source = self._sources[place]
            self._useful[key] = can_pay(place, self._costs, batch, source.nodes, source.depths, sampled)
        return self._useful[key]
