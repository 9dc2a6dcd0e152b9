"""Text whose acceptance changes, and rules for K that draft on it: calls and time of each, on the same luck."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from headstart.learn.exercises.findings import WrongAnswer

Chooser = Callable[[int, list[tuple[int, int]]], int]
"""From the present K and the past rounds (drafted, accepted), oldest first, to the next K."""
TOKENS = 200
EASY, HARD, STRETCH = 0.95, 0.2, 50
DRAFT_COST = 0.1
"""A guess over a call of the target."""
START = 5
FIXED = (2, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rule needed, on average over the texts."""

    name: str
    target_calls: float
    drafted: float

    @property
    def time(self) -> float:
        """In calls of the target."""
        return self.target_calls + DRAFT_COST * self.drafted


def compare(rules: Mapping[str, Chooser], *, texts: int = 200) -> list[Calls]:
    """The rules, and every fixed length, on the same texts."""
    fixed = [_mean(f"K = {k}", _fixed(k), texts, start=k) for k in FIXED]
    return fixed + [_mean(name, rule, texts) for name, rule in rules.items()]


def _mean(name: str, rule: Chooser, texts: int, *, start: int = START) -> Calls:
    runs = [decode(rule, luck, start=start) for luck in _texts(texts)]
    return Calls(name, sum(calls for calls, _ in runs) / texts, sum(drafted for _, drafted in runs) / texts)


def decode(rule: Chooser, kept: tuple[bool, ...], *, start: int = START) -> tuple[int, int]:
    """Target calls and guesses until TOKENS tokens are there.

    kept: whether a guess at this place is accepted. start: K before the rule is asked for the first time.

    Raises:
        WrongAnswer: the rule gave no length of 1 to 64.
    """
    at = calls = guesses = 0
    k, history = start, list[tuple[int, int]]()
    while at < TOKENS:
        accepted = 0
        while accepted < k and kept[at + accepted]:
            accepted += 1
        calls, guesses, at = calls + 1, guesses + k, at + accepted + 1
        history.append((k, accepted))
        k = rule(k, list(history[-64:]))
        if not 1 <= k <= 64:
            raise WrongAnswer(f"adaptive_k returned {k} while it drafted", hint="lengths of 2 to 10 are asked for")
    return calls, guesses


def _fixed(length: int) -> Chooser:
    return lambda k, history: length  # noqa: ARG005


@cache
def _texts(count: int) -> tuple[tuple[bool, ...], ...]:
    luck = random.Random(14)
    texts = []
    for _ in range(count):
        first = luck.randrange(2 * STRETCH)  # where in the change between easy and hard the text begins
        alphas = [EASY if (first + i) // STRETCH % 2 == 0 else HARD for i in range(TOKENS + 64)]
        texts.append(tuple(luck.random() < alpha for alpha in alphas))
    return tuple(texts)
