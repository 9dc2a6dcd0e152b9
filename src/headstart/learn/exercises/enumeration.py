"""Exact distributions by enumeration: a random procedure is run once for every way that its decisions and draws can
fall."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from headstart.learn.exercises.findings import WrongAnswer, amount, distribution_text

Distribution = Any
"""An array [V] of fractions."""
Outcomes = dict[tuple[int, ...], Fraction]
"""Tokens, and the chance that just these come."""
_MOST_QUESTIONS = 500


class _Undecided(Exception):
    def __init__(self, options: list[tuple[int, Fraction]]) -> None:
        self.options = options


class Oracle:
    """Answers from a script; past its end it stops the run, and says which answers there are."""

    def __init__(self, script: Sequence[tuple[int, list[tuple[int, Fraction]]]]) -> None:
        self._script = script
        self._asked = 0
        self._questions = 0

    def accept(self, chance: Any) -> bool:
        """True with this chance."""
        asked = _fraction(chance, "accept")
        value = Fraction(0) if asked < 0 else Fraction(1) if asked > 1 else asked
        return bool(self._ask([(1, value), (0, 1 - value)]))

    def draw(self, distribution: Any) -> int:
        """A token from this distribution."""
        try:
            weights = [_fraction(weight, "draw") for weight in distribution]
        except TypeError:
            raise WrongAnswer(
                f"draw was given {distribution!r}", hint="it wants a distribution: one chance for each word"
            ) from None
        total = sum(weights, Fraction(0))
        if any(weight < 0 for weight in weights) or float(abs(total - 1)) > 1e-9:
            raise WrongAnswer(
                f"draw was given {distribution_text(weights)}, which sums to {amount(total)}",
                hint="a distribution has no chance below 0 and sums to 1: divide by the sum",
            )
        return self._ask([(token, weight / total) for token, weight in enumerate(weights)])

    def _ask(self, options: list[tuple[int, Fraction]]) -> int:
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            raise WrongAnswer(
                f"more than {_MOST_QUESTIONS} decisions and draws in one round",
                hint="a draft of K guesses needs at most 2 K + 1",
            )
        options = [(value, chance) for value, chance in options if chance > 0]
        if len(options) == 1:
            return options[0][0]
        if self._asked == len(self._script):
            raise _Undecided(options)
        answer, before = self._script[self._asked]
        self._asked += 1
        if before != options:
            raise WrongAnswer(
                "verify asks something else when the same decisions and draws fall again",
                hint="all chance has to come from accept(...) and draw(...), and nothing may be kept between calls",
            )
        return answer


def outcomes(procedure: Callable[[Oracle], tuple[int, ...]]) -> Outcomes:
    """Every outcome of a procedure, with its chance."""
    result: Outcomes = defaultdict(Fraction)
    pending: list[tuple[tuple[tuple[int, list[tuple[int, Fraction]]], ...], Fraction]] = [((), Fraction(1))]
    while pending:
        script, chance = pending.pop()
        try:
            result[procedure(Oracle(script))] += chance
        except _Undecided as branch:
            pending += [((*script, (value, branch.options)), chance * weight) for value, weight in branch.options]
    return dict(result)


def chain_distributions(
    p: Callable[[tuple[int, ...]], Distribution],
    q: Callable[[tuple[int, ...]], Distribution],
    k: int,
    draw: Callable[[Distribution], int],
) -> tuple[list[int], list[Distribution], list[Distribution]]:
    """A draft of k tokens drawn from q; the k + 1 distributions of p after 0, 1, ... of them; the k distributions that
    they came from."""
    draft: list[int] = []
    distributions: list[Distribution] = []
    for _ in range(k):
        distributions.append(q(tuple(draft)))
        draft.append(draw(distributions[-1]))
    return draft, [p(tuple(draft[:i])) for i in range(k + 1)], distributions


def joint(p: Callable[[tuple[int, ...]], Distribution], length: int) -> Outcomes:
    """The distribution of the target's next `length` tokens."""
    return completed({(): Fraction(1)}, p, length)


def completed(emitted: Outcomes, p: Callable[[tuple[int, ...]], Distribution], length: int) -> Outcomes:
    """Outcomes of different lengths, each continued by the target alone to `length` tokens."""
    result: Outcomes = defaultdict(Fraction)
    pending = list(emitted.items())
    while pending:
        tokens, chance = pending.pop()
        if len(tokens) >= length:
            result[tokens[:length]] += chance
            continue
        distribution = p(tokens)
        pending += [((*tokens, token), chance * weight) for token, weight in enumerate(distribution) if weight > 0]
    return dict(result)


def distance(one: Outcomes, other: Outcomes) -> Fraction:
    """Total variation: half the sum of the differences."""
    zero = Fraction(0)
    return sum((abs(one.get(text, zero) - other.get(text, zero)) for text in set(one) | set(other)), zero) / 2


def _fraction(value: Any, asked: str) -> Fraction:
    try:
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise WrongAnswer(
            f"{asked} was given {value!r}", hint="it wants numbers; nan comes from 0 divided by 0"
        ) from None
