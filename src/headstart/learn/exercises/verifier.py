"""Exercise 4: a verifier for chains, proved or refuted by the exact distribution of what it emits.

Every `accept` and `draw` that the verifier calls is answered in every way, each with its chance as a fraction. A
round's output is then continued by the target alone to K + 1 tokens, and has to follow the target's own distribution,
to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from headstart.learn.exercises import solutions
from headstart.learn.exercises.enumeration import (
    Distribution,
    Oracle,
    Outcomes,
    chain_distributions,
    completed,
    distance,
    joint,
    outcomes,
)
from headstart.learn.exercises.findings import (
    Findings,
    WrongAnswer,
    amount,
    distribution_text,
    returned,
    shortened,
    table,
)

HINTS = (
    "Go through the draft from left to right. Guess i was drawn from q[i] and is judged by p[i]: keep it if "
    "accept(min(1, p[i][token] / q[i][token])). Stop at the first refusal: the rest was drafted after a wrong token.",
    "A refusal has to add what is still missing to p: draw from max(p[i] - q[i], 0) over its sum. If no guess was "
    "refused, one token more comes for free, drawn from p[K], the distribution after the last guess.",
)
WHY = (
    "A guess x comes and is kept with chance q(x) min(1, p(x)/q(x)) = min(p(x), q(x)). Refusals happen with chance "
    "1 - sum of min(p, q), which is the sum of max(p - q, 0); the replacement adds exactly that, and both add up "
    "to p. Block verification (the second function, Sun et al., arXiv:2403.10444) judges the draft as one and never "
    "keeps fewer guesses; headstart runs it, and its form for trees, in src/headstart/rule/verify.py."
)
_ROUNDING = 1e-9
_NAMES = "abc"


@dataclass(frozen=True, slots=True)
class Case:
    """A target and a draft model on a vocabulary of `size` words, and the draft length."""

    size: int
    k: int
    p: Callable[[tuple[int, ...]], Distribution]
    q: Callable[[tuple[int, ...]], Distribution]

    @property
    def words(self) -> str:
        """What is easiest to follow: the first distributions of both."""
        names = ", ".join(_NAMES[: self.size])
        p, q = distribution_text(self.p(())), distribution_text(self.q(()))
        return f"words {names}; K = {self.k}; at the start p = {p}, q = {q}"


def check(answer: Any) -> Findings:
    """Prove or refute a function of (draft, p, q, accept, draw), from the smallest case on."""
    yours = classic = block = Fraction(0)
    rounded = False
    cases = _cases()
    for case in cases:
        emitted = _round(answer, case)
        distribution = completed(emitted, case.p, case.k + 1)
        right = joint(case.p, case.k + 1)
        apart = distance(distribution, right)
        if apart > _ROUNDING:
            return Findings.wrong(*_counterexample(case, emitted))
        rounded = rounded or apart > 0
        yours += _mean(emitted)
        classic += _mean(_round(solutions.verify, case))
        block += _mean(_round(solutions.verify_block, case))
    means = [float(total / len(cases)) for total in (yours, classic, block)]
    exactly = "up to rounding, since your numbers become floats" if rounded else "exactly, in fractions"
    say = (
        f"PROVED on {len(cases)} pairs of models: what it emits follows the target's distribution ({exactly}; "
        "TV distance 0).",
        f"Tokens a round over these cases: yours {means[0]:.4f}, classic rule {means[1]:.4f}, "
        f"block verification {means[2]:.4f}.",
    )
    if means[0] < means[1] - _ROUNDING:
        return Findings.wrong(*say, f"{_wasted(answer)} So the text is right, but it comes more slowly than it could.")
    like = "block verification, which is what headstart runs."
    if means[0] < means[2] - _ROUNDING:
        like = "the classic rule of 2023, and less than block verification, which headstart runs."
    return Findings(True, (*say, f"It accepts as much as {like}"))


def _round(answer: Any, case: Case) -> Outcomes:
    """The exact distribution of what one round emits: a draft drawn from q, judged by the answer."""

    def play(oracle: Oracle) -> tuple[int, ...]:
        draft, p, q = chain_distributions(case.p, case.q, case.k, oracle.draw)
        given_p, given_q = ([distribution.copy() for distribution in each] for each in (p, q))
        return _emitted(answer(list(draft), given_p, given_q, oracle.accept, oracle.draw), draft, case.size)

    return outcomes(play)


def _emitted(value: Any, draft: list[int], size: int) -> tuple[int, ...]:
    """The returned tokens, if they are some.

    Raises:
        WrongAnswer: they are none, or not the beginning of the draft and one token.
    """
    call = f"verify({draft}, ...)"
    try:
        tokens = tuple(returned(value, call))
    except TypeError:
        raise WrongAnswer(f"{call} returns {shortened(value)}", hint="a list of tokens is asked for") from None
    if any(
        isinstance(token, bool) or not isinstance(token, int | np.integer) or not 0 <= token < size for token in tokens
    ):
        raise WrongAnswer(f"{call} returns {shortened(value)}", hint=f"tokens are whole numbers, here 0 to {size - 1}")
    if not tokens:
        raise WrongAnswer(
            f"{call} returns no token", hint="a refused guess is replaced; otherwise a round could emit nothing at all"
        )
    if len(tokens) > len(draft) + 1 or list(tokens[:-1]) != draft[: len(tokens) - 1]:
        raise WrongAnswer(
            f"{call} returns {list(tokens)}",
            hint="first the guesses that are kept, in their order, from the beginning of the draft; then one more",
        )
    return tuple(int(token) for token in tokens)


def _mean(emitted: Outcomes) -> Fraction:
    return sum((len(tokens) * chance for tokens, chance in emitted.items()), Fraction(0))


def _counterexample(case: Case, emitted: Outcomes) -> tuple[str, ...]:
    """What is wrong, on the shortest beginning of the text that shows it: numbers that can be computed by hand."""
    lengths = ((completed(emitted, case.p, n), joint(case.p, n)) for n in range(1, case.k + 2))
    distribution, right = next(
        (distribution, right) for distribution, right in lengths if distance(distribution, right) > _ROUNDING
    )
    texts = sorted(
        set(distribution) | set(right), key=lambda text: (-abs(distribution.get(text, 0) - right.get(text, 0)), text)
    )
    rows = [
        [" ".join(_NAMES[token] for token in text), _fraction(right.get(text, 0)), _fraction(distribution.get(text, 0))]
        for text in sorted(texts[:6])
    ]
    first = completed(emitted, case.p, 1)
    return (
        "REFUTED. The smallest counterexample:",
        f"  {case.words}.",
        *(f"  {line}" for line in table(("text", "target's chance", "your chance"), rows)),
        *(["  (the six texts that differ most)"] if len(texts) > 6 else []),
        f"TV distance {_fraction(distance(distribution, right))}; {float(_mean(emitted)):.3f} tokens a round.",
        *_guess(case, [first.get((token,), Fraction(0)) for token in range(case.size)]),
    )


def _guess(case: Case, found: list[Fraction]) -> tuple[str, ...]:
    """The classic mistakes, by the distribution of the first token that they give."""
    p, q = case.p(()), case.q(())
    shared = np.minimum(p, q)
    alpha = shared.sum()
    spread = Fraction(1, case.size)
    known = {
        "every guess were kept": q,
        "the replacement were drawn from p itself, not from what is missing": shared + (1 - alpha) * p,
        "the replacement were drawn from q": shared + (1 - alpha) * q,
        "a refused guess were never replaced, and the round tried again": shared / alpha,
        "the replacement were any word, all alike": shared + (1 - alpha) * np.array([spread] * case.size),
    }
    for words, distribution in known.items():
        if all(abs(a - b) <= _ROUNDING for a, b in zip(found, distribution, strict=True)):
            return (f"This is just what would come out if {words}.",)
    if all(abs(a - b) <= _ROUNDING for a, b in zip(found, p, strict=True)):
        return (
            "The first token of a round is right; a later one is not. Is each guess judged by its own p[i] and q[i]?",
        )
    return ("All chance has to come from accept(...) and draw(...), and guess i has to be judged by p[i] and q[i].",)


def _wasted(answer: Any) -> str:
    """Why fewer tokens come than the classic rule gives."""
    same = Case(2, 1, lambda context: _distribution(1, 1), lambda context: _distribution(1, 1))  # noqa: ARG005
    if _mean(_round(answer, same)) < 2:
        return "Where all guesses are kept, one token more is free: the distribution after the last guess is there."
    return "It refuses guesses that it may keep."


def _fraction(value: Any) -> str:
    exact = Fraction(value)
    return str(exact) if exact.denominator < 10_000 else amount(float(exact))


def _distribution(*weights: int) -> Distribution:
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def _cases() -> list[Case]:
    """From what can be followed by hand to what finds the last mistakes."""

    def always(*weights: int) -> Callable[[tuple[int, ...]], Distribution]:
        return lambda context: _distribution(*weights)  # noqa: ARG005

    def after(first: tuple[int, ...], *others: tuple[int, ...]) -> Callable[[tuple[int, ...]], Distribution]:
        return lambda context: _distribution(*(others[context[-1]] if context else first))

    return [
        Case(2, 1, always(1, 1), always(1, 3)),
        Case(2, 1, after((3, 1), (1, 2), (2, 1)), after((1, 1), (1, 1), (1, 1))),
        Case(3, 1, always(5, 3, 2), always(2, 6, 2)),
        Case(3, 1, always(1, 1, 0), always(0, 1, 1)),
        Case(2, 1, always(2, 3), always(2, 3)),
        Case(2, 2, after((2, 1), (1, 3), (3, 1)), after((1, 2), (2, 1), (1, 1))),
        Case(2, 2, after((1, 1), (1, 4), (1, 0)), after((1, 1), (1, 1), (1, 3))),
        Case(
            3, 2, after((3, 2, 1), (1, 1, 2), (2, 0, 1), (1, 3, 1)), after((1, 2, 1), (2, 1, 1), (1, 1, 0), (1, 1, 1))
        ),
        Case(2, 3, after((1, 2), (3, 1), (1, 2)), after((2, 1), (1, 2), (1, 1))),
    ]
