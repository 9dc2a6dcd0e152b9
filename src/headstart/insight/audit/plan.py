"""The options of an audit: what to test, and how sure to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.errors import InvalidOption, InvalidPrompt
from headstart.insight.audit.subject import Ask
from headstart.options import check_number, strict
from headstart.types import Sampling


@strict
@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What to test, and how sure to be.

    sampling: how text is sampled; its penalties and bias hold for greedy text too. Its seed and max_tokens are not used
    greedy, sampled, behaviour: which parts are tested
    level: the most probable that it may be to accuse a lossless subject
    effect: the total variation of a token's law, on average, that should be noticed (between two servers: of the first)
    power: the probability with which it should be noticed
    max_samples: completions in all (between two servers: of each)
    batch: completions drawn before each look
    sample_tokens: tokens of a sampled text; short texts meet the same prefixes again, but a few drafts must fit
    greedy_tokens: tokens of a greedy text
    near_tie: logits by which a greedy token may be off; None measures it
    k: tokens of the longest draft, as far as it is known
    seed: where the seeds of the completions begin
    replicates: simulated audits for each bias, which the stated power is estimated from
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    greedy: bool = True
    sampled: bool = True
    behaviour: bool = True
    level: float = 0.01
    effect: float = 0.05
    power: float = 0.9
    max_samples: int = 4000
    batch: int = 64
    sample_tokens: int = 12
    greedy_tokens: int = 64
    near_tie: float | None = None
    k: int = 8
    seed: int = 0
    replicates: int = 100

    def __post_init__(self) -> None:
        check_number("level", self.level, above=0, high=0.5)
        check_number("effect", self.effect, above=0, high=0.9)
        check_number("power", self.power, low=0, high=0.999)
        for name in ("max_samples", "batch", "sample_tokens", "greedy_tokens"):
            check_number(name, getattr(self, name), low=1, integer=True)
        check_number("k", self.k, low=0, integer=True)
        check_number("seed", self.seed, low=0, integer=True)
        check_number("replicates", self.replicates, low=10, integer=True)
        if self.near_tie is not None:
            check_number("near_tie", self.near_tie, low=0)
        if self.sampled and self.sampling.greedy:
            raise InvalidOption(
                "temperature 0 leaves nothing to sample", hint="give a temperature above 0, or ask for greedy text only"
            )
        if not (self.greedy or self.sampled):
            raise InvalidOption("nothing is left to audit", hint="leave out one of --greedy-only and --sampling-only")

    def asks(self, prompts: Sequence[Sequence[int]]) -> list[Ask]:
        """One ask for each prompt, by which sampled text is drawn.

        Raises:
            InvalidPrompt: there is none, or one is empty.
        """
        if not prompts or not all(prompts):
            raise InvalidPrompt("an audit needs prompts", hint="give at least one, of at least one token")
        sampling = replace(self.sampling, max_tokens=self.sample_tokens, seed=None)
        return [Ask(tuple(prompt), sampling) for prompt in prompts]

    def greedy_sampling(self) -> Sampling:
        return replace(self.sampling, temperature=0.0, max_tokens=self.greedy_tokens, seed=None, logprobs=None)

    def bets(self) -> dict[str, Any]:
        """The settings of a test of sampled text, for its record."""
        names = ("level", "effect", "power", "max_samples", "batch", "seed")
        return {**{name: getattr(self, name) for name in names}, "max_tokens": self.sample_tokens}
