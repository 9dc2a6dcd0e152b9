"""What a comparison of two servers found, and its verdict in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headstart.base.as_json import picked
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.subject import Verdict

CLEAR = 1.0
"""Nats: a greedy difference with a larger margin (by A's own log-probabilities) is no near-tie in any number format."""


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Greedy texts that are not equal.

    position: of the first differing token (character)
    margin: how much likelier A's token is than B's, in nats, by A's log-probabilities; None where they do not tell
    """

    prompt: int
    position: int
    a: str
    b: str
    margin: float | None


@dataclass(frozen=True)
class PairResult:
    """What a comparison of two subjects found.

    pairs, differing: sampled pairs of texts, and those that are not equal
    evidence, most_evidence: the capital at the end, and the most it ever was
    power: the share of simulated comparisons that tell two distributions `effect` apart; None where texts never differ
    needed: about how many pairs the power asked for takes
    distances: per prompt, the total variation between the first symbols of both, and what shuffling the sides gives
        (95th percentile)
    curve: after each batch: pairs and capital
    greedy_texts, greedy: greedy texts compared, and those that differ
    a, b: what the subjects are
    """

    plan: AuditPlan
    pairs: int
    differing: int
    evidence: float
    most_evidence: float
    power: float | None
    needed: int | None
    distances: tuple[tuple[int, float, float], ...]
    curve: tuple[tuple[int, float], ...]
    greedy_texts: int
    greedy: tuple[TextDifference, ...]
    a: dict[str, Any]
    b: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        bug = any(each.margin is not None and abs(each.margin) > CLEAR for each in self.greedy)
        if bug or self.most_evidence >= 1 / self.plan.level:
            return "not lossless"
        enough = self.power is not None and self.power >= self.plan.power
        decided = (self.pairs == 0 or enough) and (self.pairs > 0 or self.greedy_texts > 0)
        return "lossless" if decided and not self.greedy else "undecided"

    @property
    def reasons(self) -> list[str]:
        plan = self.plan
        found = []
        if self.most_evidence >= 1 / plan.level:
            found.append(
                f"bets on which server wrote which text won {self.most_evidence:.3g} times their stake in {self.pairs} "
                f"pairs; with one distribution that has a probability of {plan.level:g} at most"
            )
        elif self.pairs and self.power is not None:
            found.append(
                f"no bet on which server wrote which of {self.pairs} pairs won more than {self.most_evidence:.3g} "
                f"times its stake; of distributions {plan.effect:g} apart at the first token, {self.power:.0%} are "
                "told by then (differences that begin later take more pairs)"
            )
            if self.power < plan.power:
                more = "more than can be told" if self.needed is None else f"about {self.needed}"
                found.append(f"a power of {plan.power:g} takes {more} pairs")
        elif self.pairs:
            found.append("first tokens leave nothing to chance, so power is not known: compare at a higher temperature")
        if self.greedy:
            margins = [each.margin for each in self.greedy if each.margin is not None]
            size = f", with margins up to {max(map(abs, margins)):.3g} nats" if margins else ""
            found.append(f"{len(self.greedy)} of {self.greedy_texts} greedy texts differ{size}")
            if not any(abs(margin) > CLEAR for margin in margins):
                found.append("without reference weights a near-tie cannot be told from a bug there")
        elif self.greedy_texts:
            found.append(f"all {self.greedy_texts} greedy texts are equal")
        return found

    def record(self) -> dict[str, Any]:
        return {
            **picked(self, "verdict", "reasons"),
            "settings": {**self.plan.bets(), "sampling": asdict(self.plan.sampling)},
            **picked(self, "a", "b", "pairs", differing_pairs="differing"),
            "e_value": float(f"{self.evidence:.4g}"),
            "e_value_most": float(f"{self.most_evidence:.4g}"),
            "e_value_by_pairs": [[pairs, float(f"{value:.4g}")] for pairs, value in self.curve],
            **picked(self, "power", pairs_needed="needed"),
            "total_variation": [
                {"prompt": prompt, "first_token": round(tv, 4), "noise_floor": round(floor, 4)}
                for prompt, tv, floor in self.distances
            ],
            "greedy_texts": self.greedy_texts,
            "greedy_differences": [asdict(each) for each in self.greedy],
        }
