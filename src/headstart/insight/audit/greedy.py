"""Is greedy text the reference's? Every token of the subject's own text is judged; each that is not has a verdict.

A divergence is a position where the subject did not say the token with the largest processed logit. Two are nearly
tied where rounding alone decides (`rounding`); more is a bug. The reference goes on from what the subject said (teacher
forcing), so that one tie does not hide what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.insight.audit.rounding import EXACT, Rounding
from headstart.insight.audit.sampled import Verdict
from headstart.insight.audit.subject import Ask, Completion, Reference, Subject, sample_all
from headstart.types import Sampling

Kind = Literal["near-tie", "bug", "unclear"]
SHOWN = 200
"""Divergences kept in a record, bugs first."""
_NOWHERE = 1e-38


@dataclass(frozen=True, slots=True)
class Divergence:
    """prompt, position: where (position 0 is the first token after the prompt). best: the token with the largest
    logit; said: the subject's; second: the runner-up. margin: logit of best minus logit of said."""

    prompt: int
    position: int
    best: int
    best_text: str
    second: int
    second_text: str
    said: int
    said_text: str
    margin: float
    verdict: Kind


@dataclass(frozen=True)
class PlainTexts:
    """The same prompts without speculation: how many texts were equal, token for token."""

    texts: int
    equal: int
    first_differences: tuple[tuple[int, int], ...] = ()
    """(prompt, position) of each that is not."""


@dataclass(frozen=True)
class GreedyResult:
    """positions: tokens judged, in `texts` texts. past_end: texts that went on after a token that ends them."""

    texts: int
    positions: int
    divergences: tuple[Divergence, ...]
    past_end: int
    rounding: Rounding
    plain: PlainTexts | None = None
    notes: tuple[str, ...] = ()

    def count(self, kind: Kind) -> int:
        return sum(each.verdict == kind for each in self.divergences)

    @property
    def verdict(self) -> Verdict:
        if self.past_end or self.count("bug"):
            return "not lossless"
        return "lossless" if self.positions and not self.count("unclear") else "undecided"

    @property
    def reasons(self) -> list[str]:
        found = []
        ties, bugs = self.count("near-tie"), self.count("bug")
        if self.past_end:
            found.append(f"{self.past_end} of {self.texts} greedy texts went on after a token that ends them")
        if bugs:
            worst = max((each for each in self.divergences if each.verdict == "bug"), key=lambda each: each.margin)
            found.append(
                f"{bugs} of {self.positions} greedy tokens are not the likeliest; the worst, {worst.said_text!r} for "
                f"{worst.best_text!r} at position {worst.position} of prompt {worst.prompt}, is {worst.margin:.3g} "
                f"below it, where rounding explains {self.rounding.margin:.3g}"
            )
        if unclear := self.count("unclear"):
            found.append(f"{unclear} greedy texts differ where their tokens are not known for sure")
        if not found and not self.positions:
            return ["no greedy token was seen"]
        if not found:
            found.append(
                f"all {self.positions} greedy tokens of {self.texts} texts are the likeliest"
                + (f", up to {ties} near-ties" if ties else "")
            )
        if self.plain is not None:
            found.append(f"{self.plain.equal} of {self.plain.texts} texts are plain decoding's, token for token")
        return found

    def record(self) -> dict[str, Any]:
        shown = sorted(self.divergences, key=lambda each: (each.verdict != "bug", -each.margin))[:SHOWN]
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "texts": self.texts,
            "positions": self.positions,
            "divergences": len(self.divergences),
            "near_ties": self.count("near-tie"),
            "bugs": self.count("bug"),
            "unclear": self.count("unclear"),
            "texts_past_their_end": self.past_end,
            "rounding": self.rounding.record(),
            "plain": None if self.plain is None else asdict(self.plain),
            "notes": list(self.notes),
            "where": [{**asdict(each), "margin": round(each.margin, 6)} for each in shown],
        }


def audit_greedy(
    subject: Subject,
    reference: Reference,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    rounding: Rounding,
    *,
    spell: Callable[[int], str],
    plain: Subject | None = None,
    standing: NDArray[np.int64] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> GreedyResult:
    """Judge the subject's greedy text after each prompt.

    sampling: its penalties, bias, min_tokens and max_tokens; the temperature is 0 here. spell: a token as text.
    plain: the same engine without speculation, to compare texts with. standing [V]: which token each counts as, where
    the subject does not tell them apart. on_progress: (prompts done, of how many).
    """
    cold = replace(sampling, temperature=0.0, logprobs=None, seed=None)
    asks = [Ask(tuple(prompt), cold) for prompt in prompts]
    said = sample_all(subject, asks)
    stops = reference.stop_ids(cold)
    judge = _Judge(reference, cold, rounding, spell, standing)
    past_end = positions = 0
    for number, (prompt, completion) in enumerate(zip(prompts, said, strict=True)):
        tokens = up_to_end(completion.tokens, stops)
        past_end += len(tokens) < len(completion.tokens)
        positions += len(tokens)
        judge.look(number, prompt, tokens)
        if on_progress is not None:
            on_progress(number + 1, len(prompts))
    return GreedyResult(
        texts=len(said),
        positions=positions,
        divergences=tuple(judge.found),
        past_end=past_end,
        rounding=rounding,
        plain=None if plain is None else _compare(said, sample_all(plain, asks)),
    )


def up_to_end(tokens: tuple[int, ...], stops: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to the first that ends a text, that one included."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in stops), tokens)


def processed_logits(
    reference: Reference, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
) -> NDArray[np.float64]:
    """[n + 1, V]: the logits that a greedy choice is made from (penalties and bias applied), less a constant in each
    row: the log of the law at temperature 1."""
    warm = replace(sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    laws = np.asarray(reference.laws(prompt, tokens, warm), dtype=np.float64)
    found: NDArray[np.float64] = np.log(np.maximum(laws, _NOWHERE))
    return found


class _Judge:
    """Finds the divergences of one text after the other."""

    def __init__(
        self,
        reference: Reference,
        sampling: Sampling,
        rounding: Rounding,
        spell: Callable[[int], str],
        standing: NDArray[np.int64] | None,
    ) -> None:
        self._reference, self._sampling, self._rounding = reference, sampling, rounding
        self._spell, self._standing = spell, standing
        self.found: list[Divergence] = []

    def look(self, number: int, prompt: Sequence[int], tokens: Sequence[int]) -> None:
        if not tokens:
            return
        logits = processed_logits(self._reference, prompt, tokens[:-1], self._sampling)
        for position, (row, said) in enumerate(zip(logits, tokens, strict=True)):
            margin = float(row.max() - self._value(row, said))
            if margin > 0:
                self.found.append(divergence(number, position, row, said, margin, self._rounding, self._spell))

    def _value(self, row: NDArray[np.float64], said: int) -> float:
        return float(row[said] if self._standing is None else row[self._standing == said].max())


def divergence(
    prompt: int,
    position: int,
    row: NDArray[np.float64],
    said: int,
    margin: float,
    rounding: Rounding,
    spell: Callable[[int], str],
) -> Divergence:
    """A token that is not the likeliest, and what rounding has to say to it. row: [V] processed logits."""
    second, best = np.argsort(row, kind="stable")[-2:].tolist()
    kind: Kind = "near-tie" if margin <= max(rounding.margin, EXACT) else "bug"
    return Divergence(prompt, position, best, spell(best), second, spell(second), said, spell(said), margin, kind)


def _compare(said: Sequence[Completion], plain: Sequence[Completion]) -> PlainTexts:
    differences = []
    for number, (ours, theirs) in enumerate(zip(said, plain, strict=True)):
        if ours.tokens != theirs.tokens:
            pairs = zip(ours.tokens, theirs.tokens, strict=False)
            shared = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            differences.append((number, min(len(ours.tokens), len(theirs.tokens)) if shared is None else shared))
    return PlainTexts(len(said), len(said) - len(differences), tuple(differences))
