"""What a sampled audit is asked, and what it answers: settings, result, and the verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headstart.errors import InvalidOption
from headstart.insight.audit.effects import Distance
from headstart.insight.audit.power import Power, least
from headstart.insight.audit.subject import Ask
from headstart.options import check_number, strict
from headstart.types import Sampling

Verdict = Literal["lossless", "not lossless", "undecided"]


@strict
@dataclass(frozen=True, slots=True)
class SampledSettings:
    """How sure to be, of how small a difference, at which cost.

    level: probability of accusing a lossless subject. effect: mean total variation of a token's law that should be
    noticed, with probability `power`. max_samples: completions in all; batch: drawn before each look. max_tokens: of
    a completion; short ones meet the same prefixes again, but a few blocks of draft tokens must fit. tolerance: total
    variation by which laws may differ without being wrong: 0 where subject and reference run the same weights in the
    same arithmetic, else the measured noise. replicates: simulated audits per bias, for the power. samplings: each is
    asked after every prompt; their seed and max_tokens are not used.
    """

    level: float = 0.01
    effect: float = 0.03
    power: float = 0.9
    max_samples: int = 4000
    batch: int = 64
    max_tokens: int = 12
    tolerance: float = 0.0
    seed: int = 0
    replicates: int = 100
    samplings: Sequence[Sampling] = (Sampling(temperature=1.0),)

    def __post_init__(self) -> None:
        check_number("level", self.level, above=0, high=0.5)
        check_number("effect", self.effect, above=0, high=0.9)
        check_number("power", self.power, low=0, high=0.999)
        check_number("max_samples", self.max_samples, low=1, integer=True)
        check_number("batch", self.batch, low=1, integer=True)
        check_number("max_tokens", self.max_tokens, low=1, integer=True)
        check_number("tolerance", self.tolerance, low=0)
        check_number("seed", self.seed, low=0, integer=True)
        check_number("replicates", self.replicates, low=10, integer=True)
        if self.tolerance >= self.effect:
            raise InvalidOption(
                f"tolerance={self.tolerance:g} hides an effect of {self.effect:g}",
                hint="ask for a larger effect, or make the two forwards more alike (float32)",
            )
        if not self.samplings or any(sampling.greedy for sampling in self.samplings):
            raise InvalidOption(
                "a sampled audit needs samplings with a temperature above 0",
                hint="greedy text has one right answer at each token and is compared, not tested",
            )

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "samplings": [asdict(sampling) for sampling in self.samplings]}


@dataclass(frozen=True)
class SampledResult:
    """What a sampled audit found.

    evidence: capital at the end, its most ever, and the capital of each strategy (1 is none, 1/level is proof).
    bound: the mean total variation of a token's law is at least this, at confidence 1 - level; leaning: its estimate
    along what the best bettor looked at. foreseen: completions needed, by going on in simulation where growth so far
    says nothing. distances: of beginnings, by ask. past_end: texts that went on after a token
    that ends them. impossible: tokens of probability 0.
    """

    verdict: Verdict
    reasons: list[str]
    settings: SampledSettings
    asks: Sequence[Ask]
    completions: int
    tokens: int
    places: int
    evidence: float
    most_evidence: float
    strategies: dict[str, float]
    bound: float
    leaning: float
    distances: list[Distance]
    powers: list[Power]
    foreseen: int | None
    past_end: int
    impossible: int
    subject: dict[str, Any] = field(default_factory=dict)
    reference: dict[str, Any] = field(default_factory=dict)

    @property
    def needed(self) -> int | None:
        """Completions that the power asked for takes, or would take; None where that cannot be told."""
        if self.foreseen is not None:
            return self.foreseen
        counted = [power.needed for power in self.powers if power.counted]
        known = [needed for needed in counted if needed is not None]
        return max(known) if known and len(known) == len(counted) else None

    def record(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "settings": self.settings.record(),
            "subject": self.subject,
            "reference": self.reference,
            "asks": [{"prompt": list(ask.prompt), "sampling": asdict(ask.sampling)} for ask in self.asks],
            "completions": self.completions,
            "tokens": self.tokens,
            "distinct_prefixes": self.places,
            "e_value": _json(self.evidence),
            "e_value_most": _json(self.most_evidence),
            "e_values": {name: _json(value) for name, value in self.strategies.items()},
            "total_variation": {
                "at_least": round(self.bound, 5),
                "seen_by_best_bettor": round(self.leaning, 5),
                "beginnings": [distance.record() for distance in self.distances],
            },
            "power": {power.bias: power.record() for power in self.powers},
            "completions_needed": self.needed,
            "texts_past_their_end": self.past_end,
            "tokens_of_probability_0": self.impossible,
        }


def reasons(result: SampledResult) -> list[str]:
    """The verdict in words, the main one first."""
    settings = result.settings
    found = []
    if result.past_end:
        found.append(f"{result.past_end} of {result.completions} texts went on after a token that ends them")
    if result.most_evidence >= 1 / settings.level:
        best = max(result.strategies, key=lambda name: result.strategies[name])
        found.append(
            f"bets against the reference's law won {result.most_evidence:.3g} times their stake after "
            f"{result.completions} completions; a lossless engine"
            + (f", its laws within {settings.tolerance:.2g} of these at every token," if settings.tolerance else "")
            + f" reaches {1 / settings.level:g} with probability {settings.level:g} at most. "
            f"The winning bet: {SAYS[best]}"
        )
        if result.bound > 0:
            found.append(f"the law of a token is off by at least {result.bound:.3f} in total variation, on average")
    if result.impossible:
        found.append(f"{result.impossible} of {result.tokens} tokens have probability 0 under the reference")
    if result.verdict == "not lossless":
        return found
    if not result.tokens:
        return ["the subject wrote no token"]
    weakest = least(result.powers)
    if weakest is None:
        return [
            *found,
            f"no bias of {settings.effect:g} can be tried: the laws leave almost nothing to chance; "
            "audit at a higher temperature, or with another prompt",
        ]
    caught = (
        f"of laws off by {settings.effect:g} in total variation, {weakest.share:.0%} are caught by "
        f"{result.completions} completions ({result.tokens} tokens) where the bias is hardest to see: {weakest.what}"
    )
    if result.verdict == "lossless":
        return [f"no bet won more than {result.most_evidence:.3g} times its stake", caught, *found]
    more = f"about {result.needed} completions" if result.needed else "many more completions"
    return [*found, caught, f"a power of {settings.power:g} takes {more}, or a larger effect, or a larger level"]


SAYS = {
    "likelier": "likely tokens come too often, or too seldom (temperature, greedy acceptance)",
    "repeats": "tokens of the output come again too often, or too seldom (penalties)",
    "ends": "the text ends too often, or too seldom",
    "guesses": "what the draft model prefers comes too often, or too seldom (resampling after a rejection)",
    "lag": "tokens follow the law of a neighbouring position",
    "ranks": "some ranks in the law come up too often",
    "ids": "some tokens come up too often everywhere",
    "prefixes": "some first tokens come up too often",
    "unlawful": "tokens of probability 0 come up",
}
"""What each strategy bets on, in words."""


def _json(value: float) -> float:
    return float(f"{value:.4g}")
