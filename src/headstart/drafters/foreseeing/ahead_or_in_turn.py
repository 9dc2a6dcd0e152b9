"""Whether to draft ahead or in turn: the quicker of the two, found out by doing both.

Drafting ahead hides the drafter's time and slows the target down where the two share cores; which weighs more is a
matter of the machine, the text and what else runs. The drafts are the same either way, so that one can be changed for
the other at any time. Compared are the seconds of drafting and judging for each token that a draft of its length should
give, at the acceptance seen so far: that counts a draft cut short for what it is worth, and keeps luck out of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from headstart.types import Step


@dataclass(frozen=True)
class Trials:
    """How long each is tried. These are fixed. A trial of what turns out to take twice as long costs
    a hundredth of the time between two trials, once these are as far apart as they get."""

    rounds: int = 12
    """Rounds of a trial; the first ones of a request's life are one, of drafting ahead."""
    least: int = 3
    """A trial with fewer rounds says nothing: pacing drafts too seldom."""
    skipped: int = 1
    """Rounds after a change that are not counted: what was begun before it shows in them."""
    kept: int = 64
    """Latest drafts of each way that are compared."""
    stay: int = 64
    """Rounds that the winner stays, at first."""
    longest_stay: int = 1024
    """The same, in the end: each time it wins again it stays for twice as long."""
    outlier: float = 4.0
    """Times the median from which a round's seconds are cut: machines hiccup."""


TRIALS = Trials()


class AheadOrInTurn:
    """Says how to draft. `ahead` is the present answer; `observe` is shown the steps that follow it."""

    def __init__(self) -> None:
        self.ahead = True
        self._found: dict[bool, deque[tuple[float, float]]] = {
            each: deque(maxlen=TRIALS.kept) for each in (True, False)
        }
        self._accepted, self._tested = 3.0, 5.0
        self._favourite = True
        self._passed, self._until = 0.0, float(TRIALS.rounds)
        self._stay = TRIALS.stay
        self._first = True

    def observe(self, step: Step, source: str) -> None:
        """A step of a request, whether or not `source` drafted in it. Seconds of a batch are shared by its rows."""
        if not step.rows:
            return
        share = 1 / step.batch
        self._passed += share
        if step.draft.source == source and len(step.draft) and self._passed > TRIALS.skipped:
            prepared = step.draft.prepared
            if prepared is not None and prepared.beside == self.ahead and step.rows == 1 + len(step.draft):
                self._count(step, share)
        if self._passed >= self._until:
            self._change()

    def _count(self, step: Step, share: float) -> None:
        depth, accepted = max(step.draft.depths), len(step.path)
        self._accepted += accepted
        self._tested += accepted + (accepted < depth)
        alpha = self._accepted / self._tested
        tokens = sum(alpha**i for i in range(depth + 1))
        seconds = step.seconds.draft + step.seconds.verify
        self._found[self.ahead].append((share * seconds, share * tokens))

    def _change(self) -> None:
        """A trial or a stay has ended."""
        if self._first:  # of the other nothing is known
            self._first = False
            self._begin(not self.ahead, TRIALS.rounds)
            return
        if self.ahead == self._favourite:
            self._found[not self.ahead].clear()  # it is measured again
            self._begin(not self.ahead, TRIALS.rounds)
            return
        known = all(len(found) >= TRIALS.least for found in self._found.values())
        better = known and _seconds_per_token(self._found[self.ahead]) < _seconds_per_token(self._found[not self.ahead])
        self._stay = TRIALS.stay if better or not known else min(2 * self._stay, TRIALS.longest_stay)
        if better:
            self._favourite = self.ahead
        self._begin(self._favourite, self._stay)

    def _begin(self, ahead: bool, rounds: int) -> None:
        self.ahead = ahead
        self._passed, self._until = 0.0, float(rounds + TRIALS.skipped)


def _seconds_per_token(rounds: deque[tuple[float, float]]) -> float:
    most = TRIALS.outlier * median(seconds for seconds, _ in rounds)
    return sum(min(seconds, most) for seconds, _ in rounds) / sum(tokens for _, tokens in rounds)
