"""What an engine counts while it speculates for one request, in vLLM's terms, on either side of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import add

from headstart.types import Step


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one request, or the sum of several.

    `accepted_per_position` counts from the first position (index 0). vLLM drafts and verifies as if a text went on
    behind its last token, so the last draft of a request counts in full, and `beyond` tokens of it are in no text
    (vllm#56101).
    """

    generated: int
    """G, the tokens of the text. The first of them comes from the prompt's forward, without a draft."""
    drafts: int
    """D, forwards that verified a draft."""
    drafted: int
    """N, drafted tokens."""
    accepted_per_position: tuple[int, ...]
    """A_i, drafts whose tokens up to this position were accepted."""
    beyond: int = 0
    """Tokens of A that lie behind the end of the text. A server does not count them apart; `run` works them out."""

    @property
    def accepted(self) -> int:
        """A: a draft that is accepted up to position i is counted at each position up to there."""
        return sum(self.accepted_per_position)

    @property
    def forwards(self) -> int:
        """Forwards that gave tokens, the prompt's (its last chunk) included: each gives its accepted tokens and one
        more, so that they are G - A but for what lies beyond the end."""
        return self.generated - self.accepted + self.beyond

    def tested(self, position: int) -> int:
        """How many drafted tokens at this position (from 0) had only accepted ones before them, where every draft was
        long enough to have one."""
        return self.drafts if position == 0 else self.accepted_per_position[position - 1]

    def __add__(self, other: Counts) -> Counts:
        pairs = zip_longest(self.accepted_per_position, other.accepted_per_position, fillvalue=0)
        return Counts(
            self.generated + other.generated,
            self.drafts + other.drafts,
            self.drafted + other.drafted,
            tuple(a + b for a, b in pairs),
            self.beyond + other.beyond,
        )


def total(several: Iterable[Counts]) -> Counts:
    return reduce(add, several, Counts(0, 0, 0, ()))


def counts_of(steps: Sequence[Step], generated: int, depth: int) -> Counts:
    """What vLLM would have counted for a text of so many tokens, from the steps of a request that went on behind them.

    The request must have had room for `depth` + 1 tokens more, so that its last draft within the text is as long as any
    other. Steps that begin behind the text are left out; chunks of a prompt, which give no token, count nowhere.
    """
    drafts = drafted = written = 0
    accepted = [0] * depth
    for step in steps:
        if written >= generated:
            break
        written += len(step.tokens)
        if len(step.draft):
            drafts += 1
            drafted += len(step.draft)
            for position in range(len(step.path)):
                accepted[position] += 1
    return Counts(generated, drafts, drafted, tuple(accepted), written - generated)
