"""What the parts of an audit found: sampled text, and the promises of the interface; their verdicts in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headstart.base.as_json import as_json, picked
from headstart.base.words import counted
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.power import Power, least
from headstart.measure.audit.subject import Ask, Refused, Verdict
from headstart.types import Sampling

STRATEGIES: Mapping[str, str] = {
    "likelier": "likely tokens come too often, or too seldom (temperature, greedy acceptance)",
    "repeats": "tokens of the output come again too often, or too seldom (penalties)",
    "ends": "the text ends too often, or too seldom",
    "guesses": "what the draft model prefers comes too often, or too seldom (resampling after a rejection)",
    "lag": "tokens follow the distribution of a neighbouring position",
    "ranks": "some ranks in the distribution come up too often",
    "ids": "some tokens come up too often everywhere",
    "prefixes": "some first tokens come up too often",
    "impossible": "tokens of probability 0 come up",
}
"""What each strategy bets on, in words."""


@dataclass(frozen=True)
class SampledResult:
    """What a sampled audit found.

    tolerance: total variation by which distributions may differ without being wrong
    completions, tokens, prefixes: how many were drawn, and how many different prefixes they have
    evidence, most_evidence: the capital at the end, and the most it ever was (1 is no evidence, 1/level is proof)
    strategies: the capital of each strategy
    curve: after each batch: completions, capital, and the least power so far (0 if not known)
    bound: the mean total variation of a token's distribution is at least this, at confidence 1 - level
    estimate: of that distance, along what the best bettor looked at
    projected: the completions needed, from going on in simulation where growth so far says nothing
    past_end: texts that went on after a token that ends them
    impossible: tokens of probability 0
    subject, reference: what they are
    """

    verdict: Verdict
    plan: AuditPlan
    tolerance: float
    asks: Sequence[Ask]
    completions: int
    tokens: int
    prefixes: int
    evidence: float
    most_evidence: float
    strategies: dict[str, float]
    curve: Sequence[tuple[int, float, float]]
    bound: float
    estimate: float
    powers: list[Power]
    projected: int | None
    past_end: int
    impossible: int
    subject: dict[str, Any]
    reference: dict[str, Any]

    @property
    def needed(self) -> int | None:
        """Completions that the power of the plan takes, or would take; None where that is not known."""
        if self.projected is not None:
            return self.projected
        counted = [power.needed for power in self.powers if power.counted]
        known = [needed for needed in counted if needed is not None]
        return max(known) if known and len(known) == len(counted) else None

    @property
    def reasons(self) -> list[str]:
        """The verdict in words, the main reason first."""
        found = self._accusations()
        if self.verdict == "not lossless":
            return found
        if not self.tokens:
            return ["the subject wrote no token"]
        plan, weakest = self.plan, least(self.powers)
        if weakest is None:
            return [
                *found,
                f"no bias of {plan.effect:g} can be tried: the distributions leave almost nothing to chance; "
                "audit at a higher temperature, or with another prompt",
            ]
        caught = (
            f"of distributions off by {plan.effect:g} in total variation, {weakest.share:.0%} are caught by "
            f"{counted(self.completions, 'completion')} ({counted(self.tokens, 'token')}) "
            f"where the bias is hardest to see: {weakest.what}"
        )
        if self.verdict == "lossless":
            won = f"no bet won more than {self.most_evidence:.3g} times its stake"
            return ["no bet won anything" if self.most_evidence <= 1 else won, caught, *found]
        more = f"about {counted(self.needed, 'completion')}" if self.needed else "many more completions"
        return [*found, caught, f"a power of {plan.power:g} takes {more}, or a larger effect, or a larger level"]

    def _accusations(self) -> list[str]:
        found, level = [], self.plan.level
        if self.past_end:
            found.append(f"{self.past_end} of {counted(self.completions, 'text')} went on after a token that ends them")
        if self.most_evidence >= 1 / level:
            best = max(self.strategies, key=lambda name: self.strategies[name])
            near = f", its distributions within {self.tolerance:.2g} of these at every token," if self.tolerance else ""
            found.append(
                f"bets against the reference's distribution won {self.most_evidence:.3g} times their stake after "
                f"{counted(self.completions, 'completion')}; a lossless engine{near} reaches {1 / level:g} with "
                f"probability {level:g} at most. The winning bet: {STRATEGIES[best]}"
            )
            if self.bound > 0:
                found.append(
                    f"the distribution of a token is off by at least {self.bound:.3f} in total variation, on average"
                )
        if self.impossible:
            found.append(f"{self.impossible} of {counted(self.tokens, 'token')} have probability 0 under the reference")
        return found

    def record(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        samplings: list[Sampling] = []
        for ask in self.asks:
            samplings += [] if ask.sampling in samplings else [ask.sampling]
        names = {"distinct_prefixes": "prefixes", "completions_needed": "needed", "texts_past_their_end": "past_end"}
        names["tokens_of_probability_0"] = "impossible"
        return {
            **picked(self, "verdict", "reasons", "subject", "reference", "completions", "tokens", **names),
            "settings": {
                **self.plan.bets(),
                "tolerance": self.tolerance,
                "replicates": self.plan.replicates,
                "samplings": [asdict(sampling) for sampling in samplings],
            },
            "asks": [{"prompt": list(ask.prompt), "sampling": asdict(ask.sampling)} for ask in self.asks],
            "e_value": _short(self.evidence),
            "e_value_most": _short(self.most_evidence),
            "e_values": {name: _short(value) for name, value in self.strategies.items()},
            "total_variation": {"at_least": round(self.bound, 5), "seen_by_best_bettor": round(self.estimate, 5)},
            "power": {power.bias: power.record() for power in self.powers},
            "e_value_by_completions": [[n, _short(evidence), round(power, 3)] for n, evidence, power in self.curve],
        }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


Status = Literal["passed", "failed", "not tested", "noted"]
SHOWN = 5
"""Failures of a check that a record keeps."""
_REASONS: Mapping[Status, str] = {"passed": "kept", "not tested": "not tested", "noted": "noted"}


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the interface.

    status: "noted" is a finding that decides nothing
    detail: what was seen, or why it was not tested
    cases: how often the promise was tried
    failures: the first few, in words
    """

    name: str
    status: Status
    detail: str
    cases: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BehaviourResult:
    """All checks, in order."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        statuses = {check.status for check in self.checks}
        if "failed" in statuses:
            return "not lossless"
        return "lossless" if "passed" in statuses else "undecided"

    @property
    def reasons(self) -> list[str]:
        failed = [f"{check.name}: {check.detail}" for check in self.checks if check.status == "failed"]
        if failed:
            return failed
        by_status = {status: [check.name for check in self.checks if check.status == status] for status in _REASONS}
        return [f"{words}: {', '.join(by_status[status])}" for status, words in _REASONS.items() if by_status[status]]

    def record(self) -> dict[str, Any]:
        return as_json(picked(self, "verdict", "reasons", "checks"))  # type: ignore[no-any-return]


class NotTested(Exception):
    """Raised by a trial that finds nothing to try, with the reason."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying a promise came to.

    cases: how often it was tried
    failures: in words
    kept: what to say if nothing failed
    untested: what to say if there was nothing to try
    """

    cases: int
    failures: Sequence[str]
    kept: str
    untested: str = ""


def check(name: str, trial: Callable[[], Trial]) -> Check:
    """Failed if anything did, not tested if there was nothing to try or the server refuses the fields, else passed."""
    try:
        found = trial()
    except NotTested as error:
        return Check(name, "not tested", str(error))
    except Refused as error:
        return Check(name, "not tested", f"refused: {error.message}")
    if not found.failures:
        kept = Check(name, "passed", found.kept, found.cases)
        return kept if found.cases else Check(name, "not tested", found.untested)
    detail = f"{len(found.failures)} of {found.cases} cases: {found.failures[0]}"
    return Check(name, "failed", detail, found.cases, tuple(found.failures[:SHOWN]))
