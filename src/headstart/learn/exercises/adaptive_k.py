"""Exercise 3: a draft length that follows acceptance, checked on histories and then run on text that changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any

from headstart.learn.exercises.findings import Findings, WrongAnswer, returned, shortened, table
from headstart.learn.exercises.solutions import adaptive_k as right

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


HINTS = (
    "Look at history[-5:]. With fewer than five rounds in it, return k as it is. Else add up what the five rounds "
    "drafted and what they accepted: the share is one sum over the other.",
    "More than 0.8: k + 1. Less than 0.5: k - 1. Exactly 0.8 or 0.5 changes nothing. At the end max(2, min(10, k)).",
)
WHY = (
    "Five rounds are few enough to follow a change and enough not to jump at every refusal. The limits keep a lucky "
    "stretch from drafting far beyond what pays, and a bad one from giving up the chance to notice better text."
)
History = list[tuple[int, int]]
_SHOWN: tuple[tuple[int, History], ...] = (
    (5, [(5, 5)] * 5),
    (5, [(5, 1)] * 5),
    (5, [(5, 3)] * 5),
    (5, [(5, 5)] * 4),
    (10, [(10, 10)] * 5),
    (2, [(2, 0)] * 5),
)
_HIDDEN: tuple[tuple[int, History], ...] = (
    (5, []),
    (5, [(5, 4)] * 5),
    (4, [(4, 2)] * 5),
    (6, [(5, 0)] * 20 + [(6, 6)] * 5),
    (6, [(5, 5)] * 20 + [(6, 1)] * 5),
    (4, [(2, 2), (2, 2), (2, 2), (10, 1), (4, 4)]),
    (3, [(3, 3), (3, 3), (3, 3), (3, 3), (3, 1)]),
)


def check(answer: Any) -> Findings:
    """Compare a function of (k, history) with the rule, then let it draft."""
    for k, history in (*_SHOWN, *_HIDDEN, *_drawn()):
        found, wanted = _length(answer(k, list(history)), k, history), right(k, history)
        if found != wanted:
            message = f"adaptive_k({k}, {_shown(history)}) gives {found}; it should be {wanted}."
            return Findings.wrong(message, *_guess(k, history, found))
    return Findings(True, ("Every history gives the right length.", "", *_race(answer)))


def _drawn() -> list[tuple[int, History]]:
    luck = random.Random(3)
    cases = []
    for _ in range(60):
        drafted = [luck.randint(2, 10) for _ in range(luck.randint(0, 9))]
        easy = luck.choice((0.3, 0.65, 0.9))
        history = [(n, sum(luck.random() < easy for _ in range(n))) for n in drafted]
        cases.append((drafted[-1] if drafted else 5, history))
    return cases


def _length(value: Any, k: int, history: History) -> int:
    call = f"adaptive_k({k}, {_shown(history)})"
    if isinstance(returned(value, call), bool) or not isinstance(value, Integral):
        raise WrongAnswer(f"{call} returns {shortened(value)}", hint="a whole number (an int) is asked for")
    return int(value)


def _shown(history: Sequence[tuple[int, int]]) -> str:
    return shortened(list(history)) if len(history) <= 6 else f"[... {len(history)} rounds, the last {history[-1]}]"


def _guess(k: int, history: History, found: int) -> tuple[str, ...]:
    """What may have gone wrong."""
    if not 2 <= found <= 10:
        return ("That is outside 2 to 10.",)
    if len(history) < 5:
        return ("There are fewer than five rounds to look at: keep k.",)
    share = sum(kept for _, kept in history[-5:]) / sum(drafted for drafted, _ in history[-5:])
    if len(history) > 5 and right(k, history) != found:
        return (f"Of what the last five rounds drafted, {share:.0%} was accepted; older rounds do not count.",)
    if share in (0.8, 0.5):
        return (f"Exactly {share:.0%} was accepted: neither more than 80% nor less than 50%.",)
    return (f"In these five rounds {share:.0%} of all guesses was accepted.",)


def _race(answer: Chooser) -> tuple[str, ...]:
    """200 tokens of text that changes: the answer against fixed lengths."""
    runs = compare({"yours": answer})
    best = min((run for run in runs if run.name != "yours"), key=lambda run: run.time)
    yours = next(run for run in runs if run.name == "yours")
    rows = [[run.name, f"{run.target_calls:.1f}", f"{run.drafted:.1f}", f"{run.time:.1f}"] for run in runs]
    verdict = "less than" if yours.time < best.time else "more than"
    return (
        "200 tokens of text whose acceptance changes between 95% and 20% every 50 tokens (means of 200 texts;",
        "time: target calls + 0.1 for each guess; the target alone needs 200 calls):",
        *table(("", "target calls", "guesses", "time"), rows),
        f"Your rule takes {yours.time:.1f}, {verdict} the best fixed length ({best.name}: {best.time:.1f}), and "
        "it was not told which length that is.",
    )
