"""How fast the simulator is on this machine.

python -c "from headstart.learn import simulate as sim; [print(sim.measure_speed(rule)) for rule in sim.RULES]"
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from headstart.learn.simulate.decoding import speculate
from headstart.learn.simulate.toys import dial_pair


@dataclass(frozen=True)
class Speed:
    """A timed simulation."""

    rule: str
    rounds: int
    """Of all streams together."""
    tokens: int
    """Emitted by all streams."""
    seconds: float
    """Wall clock, the models' tables included."""

    def __str__(self) -> str:
        rate = self.rounds / self.seconds
        return f"{self.rule:<11}{self.rounds:>10,} rounds in {self.seconds:6.2f} s: {rate:>12,.0f} rounds/s"


def measure_speed(
    rule: str = "chain", *, rounds: int = 100, streams: int = 10_000, vocab: int = 10, k: int = 5, a: float = 0.8
) -> Speed:
    """Time `rounds` rounds of each of `streams` streams: a million with the defaults."""
    target, draft = dial_pair(a, vocab=vocab)
    start = time.perf_counter()
    run = speculate(target, draft, k=k, rule=rule, rounds=rounds, streams=streams)
    seconds = time.perf_counter() - start
    return Speed(rule, int(run.lengths.sum()), int(run.emitted.sum()), seconds)
