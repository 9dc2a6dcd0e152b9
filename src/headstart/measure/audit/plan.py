"""The options of an audit: what to test, and how sure to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.base.options import check_fields, check_number, option, strict
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.measure.audit.subject import Ask


_option = partial(option, panel="Audit")


@strict
@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What to test, and how sure to be.

    The effect is the total variation of a token's distribution, on average; between two servers, of the first token's.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    """How text is sampled. Penalties and bias hold for greedy text too; seed and max_tokens are not used."""
    greedy: bool = _option(True, "Test greedy text.", "--greedy/--no-greedy")
    sampled: bool = _option(True, "Test sampled text.", "--sampled/--no-sampled")
    behaviour: bool = _option(
        True, "Test stops, ends, limits, log-probabilities and seeds.", "--behaviour/--no-behaviour"
    )
    level: float = _option(
        0.01, "The greatest probability of calling a lossless engine not lossless.", "--significance", above=0, high=0.5
    )
    effect: float = _option(
        0.05, "The smallest bias to detect, as the total variation of a token's distribution.",
        above=0, high=0.9,
    )  # fmt: skip
    power: float = _option(0.9, "The probability with which such a bias is detected.", low=0, high=0.999)
    max_samples: int = _option(
        4000, "The most texts to sample (from each of two servers). The audit stops earlier once it can decide.", low=1
    )
    batch: int = 64
    """Completions drawn before each look at the evidence."""
    sample_tokens: int = _option(12, "Tokens of a sampled text, which should hold a few drafts.", low=1)
    greedy_tokens: int = _option(64, "Tokens of a greedy text.", low=1)
    near_tie: float | None = _option(
        None, "Logits by which a greedy token may be off. Default: twice the largest change measured here.", low=0
    )
    k: int = 8
    """Tokens of the longest draft, as far as it is known."""
    seed: int = _option(0, "First seed of the texts.", low=0)
    replicates: int = 100
    """Simulated audits for each bias, from which the stated power is estimated."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_number("batch", self.batch, low=1, integer=True)
        check_number("k", self.k, low=0, integer=True)
        check_number("replicates", self.replicates, low=10, integer=True)
        if self.sampled and self.sampling.greedy:
            raise InvalidOption(
                "temperature 0 leaves nothing to sample", hint="give a temperature above 0, or ask for greedy text only"
            )
        if not (self.greedy or self.sampled):
            raise InvalidOption("nothing is left to audit", hint="leave out one of --no-greedy and --no-sampled")

    def asks(self, prompts: Sequence[Sequence[int]]) -> list[Ask]:
        """One ask for each prompt, by which sampled text is drawn.

        Raises:
            InvalidPrompt: there is none, or one is empty.
        """
        from headstart.measure.audit.subject import Ask  # needs NumPy, which --help must not wait for

        if not prompts or not all(prompts):
            raise InvalidPrompt("an audit needs prompts", hint="give at least one, of at least one token")
        sampling = replace(self.sampling, max_tokens=self.sample_tokens, seed=None)
        return [Ask(tuple(prompt), sampling) for prompt in prompts]

    def greedy_sampling(self) -> Sampling:
        return replace(self.sampling, temperature=0.0, max_tokens=self.greedy_tokens, seed=None, logprobs=None)

    def record(self, prompts: int) -> dict[str, Any]:
        """All settings, and how many prompts there were."""
        return {**asdict(self), "prompts": prompts}

    def bets(self) -> dict[str, Any]:
        """The settings of a test of sampled text, for its record."""
        names = ("level", "effect", "power", "max_samples", "batch", "seed")
        return {**{name: getattr(self, name) for name in names}, "max_tokens": self.sample_tokens}
