"""Do two servers write by the same law? No reference: one has speculation, the other has not, and texts are paired.

The audit bets on which server wrote which sampled text (`coin`); greedy texts are compared directly. Texts are token
ids, or characters where a server gives no tokens; how a text ended counts as one more symbol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from headstart.insight.audit.plan import AuditPlan
from headstart.insight.audit.servers.coin import Coin, Symbols, symbol_at
from headstart.insight.audit.subject import Ask, Completion, Progress, Subject, Verdict, no_progress

CLEAR = 1.0
"""Nats: a greedy difference with a larger margin (by A's own log-probabilities) is no near-tie in any number format."""
_SIMULATED = 60
_MOST_SIMULATED = 20_000
_SHUFFLES = 200


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
    power: the share of simulated comparisons that tell two laws `effect` apart; None where texts never differ
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
                f"pairs; with one law that has a probability of {plan.level:g} at most"
            )
        elif self.pairs and self.power is not None:
            found.append(
                f"no bet on which server wrote which of {self.pairs} pairs won more than {self.most_evidence:.3g} "
                f"times its stake; of laws {plan.effect:g} apart at the first token, {self.power:.0%} are told by "
                "then (differences that begin later take more pairs)"
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
            "verdict": self.verdict,
            "reasons": self.reasons,
            "settings": {**self.plan.bets(), "sampling": asdict(self.plan.sampling)},
            "a": self.a,
            "b": self.b,
            "pairs": self.pairs,
            "differing_pairs": self.differing,
            "e_value": float(f"{self.evidence:.4g}"),
            "e_value_most": float(f"{self.most_evidence:.4g}"),
            "e_value_by_pairs": [[pairs, float(f"{value:.4g}")] for pairs, value in self.curve],
            "power": self.power,
            "pairs_needed": self.needed,
            "total_variation": [
                {"prompt": prompt, "first_token": round(tv, 4), "noise_floor": round(floor, 4)}
                for prompt, tv, floor in self.distances
            ],
            "greedy_texts": self.greedy_texts,
            "greedy_differences": [asdict(each) for each in self.greedy],
        }


def compare_subjects(
    a: Subject,
    b: Subject,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    progress: Progress = no_progress,
    *,
    greedy: bool = True,
    sampled: bool = True,
    by_text: bool = False,
) -> PairResult:
    """Pair texts of A and B after the same prompts until sure of either answer; compare greedy texts directly.

    by_text: compare characters, where one of them gives no tokens.

    Raises:
        InvalidPrompt: there is none, or one is empty.
    """
    comparison = _Comparison(a, b, plan.asks(prompts), plan, by_text=by_text)
    if sampled:
        comparison.run(progress)
    differences = _greedy(a, b, prompts, plan, by_text=by_text) if greedy else ()
    return comparison.result(len(prompts) if greedy else 0, differences)


class _Comparison:
    """The sampled part while it runs."""

    def __init__(self, a: Subject, b: Subject, asks: Sequence[Ask], plan: AuditPlan, *, by_text: bool) -> None:
        self._a, self._b, self._asks, self._plan, self._by_text = a, b, asks, plan, by_text
        self._coin = Coin()
        self._texts: list[tuple[list[Symbols], list[Symbols]]] = [([], []) for _ in asks]
        self._pairs = 0
        self._curve: list[tuple[int, float]] = []
        self._power: float | None = None
        self._needed: int | None = None

    def run(self, progress: Progress) -> None:
        """Draw pairs and bet until one of the verdicts is due."""
        plan = self._plan
        look = 4 * plan.batch
        while self._pairs < plan.max_samples:
            count = min(plan.batch, plan.max_samples - self._pairs)
            turn = [(self._pairs + i) % len(self._asks) for i in range(count)]
            asks = [self._asks[i] for i in turn]
            for i, x, y in zip(turn, self._a.sample(asks), self._b.sample(asks), strict=True):
                left, right = symbols(x, by_text=self._by_text), symbols(y, by_text=self._by_text)
                self._coin.add(i, left, right)
                self._texts[i][0].append(left)
                self._texts[i][1].append(right)
            self._pairs += count
            self._curve.append((self._pairs, self._coin.capital))
            progress("comparison", self._pairs, plan.max_samples, f"e-value {self._coin.capital:.3g}")
            if self._coin.best >= 1 / plan.level:
                return
            if self._pairs >= look:
                look *= 2
                self._power = self._simulate(self._pairs)
                if self._power is not None and self._power >= plan.power:
                    return
        self._power = self._simulate(self._pairs)
        if self._power is not None and self._power < plan.power:
            self._needed = self._reach()

    def _simulate(self, pairs: int, audits: int = _SIMULATED) -> float | None:
        """The share of simulated comparisons of so many pairs that tell two laws `effect` apart.

        None if texts never differ.

        A's first symbols are drawn again from all that were seen after a prompt; B's likewise, but so many become the
        commonest one that the total variation is `effect`.
        """
        pooled = [left + right for left, right in self._texts if left]
        if all(len({text[:1] for text in texts}) < 2 for texts in pooled):
            return None
        generator = np.random.default_rng(self._plan.seed)
        return sum(self._accuses(pooled, pairs, generator) for _ in range(audits)) / audits

    def _accuses(self, pooled: list[list[Symbols]], pairs: int, generator: np.random.Generator) -> bool:
        """Whether one simulated comparison tells the laws apart."""
        coin = Coin()
        moved = [_shifted(texts, self._plan.effect) for texts in pooled]
        for i in range(pairs):
            texts, (share, usual) = pooled[i % len(pooled)], moved[i % len(pooled)]
            x, y = (texts[j][:1] for j in generator.integers(len(texts), size=2))
            if y != usual and generator.random() < share:
                y = usual
            coin.add(i % len(pooled), x, y)
            if coin.best >= 1 / self._plan.level:
                return True
        return False

    def _reach(self) -> int | None:
        """About how many pairs the power asked for takes; None if more than can be simulated in a few seconds."""
        pairs = 2 * self._pairs
        while pairs <= _MOST_SIMULATED:
            power = self._simulate(pairs, audits=20)
            if power is not None and power >= self._plan.power:
                return pairs
            pairs *= 2
        return None

    def result(self, greedy_texts: int, differences: tuple[TextDifference, ...]) -> PairResult:
        generator = np.random.default_rng(self._plan.seed)
        distances = [
            (i, *_distance([t[:1] for t in left], [t[:1] for t in right], generator))
            for i, (left, right) in enumerate(self._texts)
            if left
        ]
        return PairResult(
            plan=self._plan,
            pairs=self._pairs,
            differing=self._coin.differing,
            evidence=self._coin.capital,
            most_evidence=self._coin.best,
            power=self._power,
            needed=self._needed,
            distances=tuple(distances),
            curve=tuple(self._curve),
            greedy_texts=greedy_texts,
            greedy=differences,
            a=self._a.describe(),
            b=self._b.describe(),
        )


def symbols(completion: Completion, *, by_text: bool) -> Symbols:
    """A completion as what is compared: its tokens or characters, and how it ended."""
    # half a character at the end is a replacement character to some servers and nothing to others
    symbols = completion.text.rstrip("\ufffd") if by_text else completion.tokens
    return (*symbols, completion.finish_reason)


def _shifted(texts: Sequence[Symbols], effect: float) -> tuple[float, Symbols]:
    """The commonest first symbol, and with what probability any other must become it for a total variation `effect`."""
    usual, count = Counter(text[:1] for text in texts).most_common(1)[0]
    return (min(1.0, effect / (1 - count / len(texts))) if count < len(texts) else 0.0), usual


def _distance(a: Sequence[Symbols], b: Sequence[Symbols], generator: np.random.Generator) -> tuple[float, float]:
    """Total variation between two samples, and the 95th percentile of it when the sides are shuffled."""
    ids = {text: i for i, text in enumerate(dict.fromkeys((*a, *b)))}
    both = np.array([ids[text] for text in (*a, *b)])

    def variation(order: Any) -> float:
        left, right = (np.bincount(part, minlength=len(ids)) for part in (order[: len(a)], order[len(a) :]))
        return float(np.abs(left / len(a) - right / len(b)).sum() / 2)

    shuffled = [variation(generator.permutation(both)) for _ in range(_SHUFFLES)]
    return variation(both), float(np.quantile(shuffled, 0.95))


def _greedy(
    a: Subject, b: Subject, prompts: Sequence[Sequence[int]], plan: AuditPlan, *, by_text: bool
) -> tuple[TextDifference, ...]:
    cold = replace(plan.sampling, temperature=0.0, max_tokens=max(48, plan.sample_tokens), seed=None, logprobs=5)
    asks = [Ask(tuple(prompt), cold) for prompt in prompts]
    edited = cold.logit_bias or cold.min_tokens or cold.presence_penalty or cold.frequency_penalty
    blind = by_text or bool(edited) or cold.repetition_penalty != 1  # most servers' log-probabilities are raw
    found = []
    for number, (x, y) in enumerate(zip(a.sample(asks), b.sample(asks), strict=True)):
        left, right = symbols(x, by_text=by_text), symbols(y, by_text=by_text)
        if left == right:
            continue
        at = next((i for i, (s, t) in enumerate(zip(left, right, strict=False)) if s != t), min(len(left), len(right)))
        found.append(
            TextDifference(number, at, x.text, y.text, None if blind else _margin(x, at, symbol_at(right, at)))
        )
    return tuple(found)


def _margin(x: Completion, at: int, other: Hashable) -> float | None:
    """How much likelier A's token is than B's, if A's alternatives name it; at least as much as than the last one."""
    if x.logprobs is None or at >= len(x.logprobs) or not isinstance(other, int):
        return None
    entry = x.logprobs[at]
    known = entry.top.get(other, min(entry.top.values(), default=math.nan))
    margin = entry.logprob - known
    return margin if math.isfinite(margin) else None
