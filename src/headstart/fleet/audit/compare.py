"""Do two servers write by the same distribution? No reference: one has speculation, the other has not, and texts are
paired.

The audit bets on which server wrote which sampled text (`uniform`); greedy texts are compared directly. Texts are token
ids, or characters where a server gives no tokens; how a text ended counts as one more symbol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headstart.engine.in_turn import first_difference
from headstart.fleet.audit.pair_result import PairResult, TextDifference
from headstart.fleet.audit.two_sample_bet import Symbols, TwoSampleBet, symbol_at
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.subject import Ask, Completion, Progress, Subject, no_progress

_SIMULATED = 60
_MOST_SIMULATED = 20_000
_SHUFFLES = 200


def compare_subjects(
    a: Subject,
    b: Subject,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    progress: Progress = no_progress,
    *,
    by_text: bool = False,
) -> PairResult:
    """Pair texts of A and B after the same prompts until sure of either answer; compare greedy texts directly.

    by_text: compare characters, where one of them gives no tokens.

    Raises:
        InvalidPrompt: there is none, or one is empty.
    """
    comparison = _Comparison(a, b, plan.asks(prompts), plan, by_text=by_text)
    if plan.sampled:
        comparison.run(progress)
    differences = _greedy(a, b, prompts, plan, by_text=by_text) if plan.greedy else ()
    return comparison.result(len(prompts) if plan.greedy else 0, differences)


class _Comparison:
    """The sampled part while it runs."""

    def __init__(self, a: Subject, b: Subject, asks: Sequence[Ask], plan: AuditPlan, *, by_text: bool) -> None:
        self._a, self._b, self._asks, self._plan, self._by_text = a, b, asks, plan, by_text
        self._uniform = TwoSampleBet()
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
                self._uniform.add(i, left, right)
                self._texts[i][0].append(left)
                self._texts[i][1].append(right)
            self._pairs += count
            self._curve.append((self._pairs, self._uniform.capital))
            progress("comparison", self._pairs, plan.max_samples, f"e-value {self._uniform.capital:.3g}")
            if self._uniform.best >= 1 / plan.level:
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
        """The share of simulated comparisons of so many pairs that tell two distributions `effect` apart.

        A's first symbols are drawn again from all that were seen after a prompt; B's likewise, but so many become the
        commonest one that the total variation is `effect`. None if texts never differ.
        """
        pooled = [left + right for left, right in self._texts if left]
        if all(len({text[:1] for text in texts}) < 2 for texts in pooled):
            return None
        generator = np.random.default_rng(self._plan.seed)
        return sum(self._accuses(pooled, pairs, generator) for _ in range(audits)) / audits

    def _accuses(self, pooled: list[list[Symbols]], pairs: int, generator: np.random.Generator) -> bool:
        """Whether one simulated comparison tells the distributions apart."""
        uniform = TwoSampleBet()
        moved = [_shifted(texts, self._plan.effect) for texts in pooled]
        for i in range(pairs):
            texts, (share, usual) = pooled[i % len(pooled)], moved[i % len(pooled)]
            x, y = (texts[j][:1] for j in generator.integers(len(texts), size=2))
            if y != usual and generator.random() < share:
                y = usual
            uniform.add(i % len(pooled), x, y)
            if uniform.best >= 1 / self._plan.level:
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
            differing=self._uniform.differing,
            evidence=self._uniform.capital,
            most_evidence=self._uniform.best,
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
    written = completion.text.rstrip("\ufffd") if by_text else completion.tokens
    return (*written, completion.finish_reason)


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
        at = first_difference(left, right)
        if at is not None:
            margin = None if blind else _margin(x, at, symbol_at(right, at))
            found.append(TextDifference(number, at, x.text, y.text, margin))
    return tuple(found)


def _margin(x: Completion, at: int, other: Hashable) -> float | None:
    """How much likelier A's token is than B's, if A's alternatives name it; at least as much as than the last one."""
    if x.logprobs is None or at >= len(x.logprobs) or not isinstance(other, int):
        return None
    entry = x.logprobs[at]
    known = entry.top.get(other, min(entry.top.values(), default=math.nan))
    margin = entry.logprob - known
    return margin if math.isfinite(margin) else None
