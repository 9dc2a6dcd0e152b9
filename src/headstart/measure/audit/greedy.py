"""Is greedy text the reference's? Every token of the subject's own text is looked up; each divergence has a verdict.

A divergence is a position where the subject did not emit the token with the largest processed logit. It is a near-tie
where rounding alone decides between the two (`rounding`); else it is a bug. The reference goes on from what the subject
emitted (teacher forcing), so that one tie does not hide what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.base.as_json import picked
from headstart.base.words import counted
from headstart.engine.in_turn import first_difference
from headstart.measure.audit.engines import Rounding
from headstart.measure.audit.subject import (
    Ask,
    Completion,
    Progress,
    Reference,
    Subject,
    Verdict,
    no_progress,
    up_to_end,
)
from headstart.types import Sampling

Kind = Literal["near-tie", "bug", "unclear"]
SHOWN = 200
"""Divergences kept in a record, bugs first."""
_SMALLEST = 1e-38


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that is not the likeliest.

    prompt, position: where; position 0 is the first token after the prompt
    best, second: the tokens with the two largest logits
    said: the subject's token
    margin: the logit of best minus that of said
    """

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
    """The same prompts without speculation.

    equal: how many of the texts are the same, token for token
    first_differences: (prompt, position) of each that is not
    """

    texts: int
    equal: int
    first_differences: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class GreedyResult:
    """What a greedy audit found.

    texts, positions: how many texts were audited, and how many tokens in them
    past_end: texts that went on after a token that ends them
    plain: how the texts compare with plain decoding's, for headstart's own engine
    """

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
            found.append(
                f"{self.past_end} of {counted(self.texts, 'greedy text')} went on after a token that ends them"
            )
        if bugs:
            worst = max((each for each in self.divergences if each.verdict == "bug"), key=lambda each: each.margin)
            found.append(
                f"{bugs} of {counted(self.positions, 'greedy token')} are not the likeliest; the worst, "
                f"{worst.said_text!r} for {worst.best_text!r} at position {worst.position} of prompt {worst.prompt}, "
                f"is {worst.margin:.3g} below it, where rounding explains {self.rounding.margin:.3g}"
            )
        if unclear := self.count("unclear"):
            found.append(f"{unclear} greedy texts differ where their tokens are not known for sure")
        if not found and not self.positions:
            return ["no greedy token was seen"]
        if not found:
            found.append(
                f"all {counted(self.positions, 'greedy token')} of {counted(self.texts, 'text')} are the likeliest"
                + (f", up to {ties} near-ties" if ties else "")
            )
        if self.plain is not None:
            found.append(
                f"{self.plain.equal} of {counted(self.plain.texts, 'text')} are plain decoding's, token for token"
            )
        return found

    def record(self) -> dict[str, Any]:
        shown = sorted(self.divergences, key=lambda each: (each.verdict != "bug", -each.margin))[:SHOWN]
        return {
            **picked(self, "verdict", "reasons", "texts", "positions", texts_past_their_end="past_end"),
            "divergences": len(self.divergences),
            "near_ties": self.count("near-tie"),
            "bugs": self.count("bug"),
            "unclear": self.count("unclear"),
            "rounding": asdict(self.rounding),
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
    progress: Progress = no_progress,
    *,
    spell: Callable[[int], str],
    plain: Subject | None = None,
    token_class: NDArray[np.int64] | None = None,
) -> GreedyResult:
    """Look up every token of the subject's greedy text after each prompt.

    sampling: its penalties, bias, min_tokens and max_tokens hold; the temperature is 0 here
    spell: a token as text
    plain: the same engine without speculation, to compare texts with
    token_class: [V] the token that each counts as, where the subject does not tell them apart
    """
    cold = replace(sampling, temperature=0.0, logprobs=None, seed=None)
    asks = [Ask(tuple(prompt), cold) for prompt in prompts]
    written = subject.sample(asks)
    past_end = positions = 0
    found: list[Divergence] = []
    for number, (ask, completion) in enumerate(zip(asks, written, strict=True)):
        tokens = up_to_end(completion.tokens, reference.stop_ids(cold))
        past_end += len(tokens) < len(completion.tokens)
        positions += len(tokens)
        logits = processed_logits(reference, ask, tokens[:-1]) if tokens else ()
        for position, (row, token) in enumerate(zip(logits, tokens, strict=True)):
            own = row[token] if token_class is None else row[token_class == token].max()
            if row.max() > own:
                found.append(divergence(number, position, row, token, float(row.max() - own), rounding, spell))
        progress("greedy", number + 1, len(asks))
    return GreedyResult(
        texts=len(written),
        positions=positions,
        divergences=tuple(found),
        past_end=past_end,
        rounding=rounding,
        plain=None if plain is None else _compare(written, plain.sample(asks)),
    )


def processed_logits(reference: Reference, ask: Ask, tokens: Sequence[int]) -> NDArray[np.float64]:
    """[n + 1, V]: the logits that a greedy choice is made from (penalties and bias applied), less a constant in each
    row: the log of the distribution at temperature 1."""
    warm = replace(ask.sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    distributions = np.asarray(reference.distributions(ask.prompt, tokens, warm), dtype=np.float64)
    found: NDArray[np.float64] = np.log(np.maximum(distributions, _SMALLEST))
    return found


def divergence(
    prompt: int,
    position: int,
    row: NDArray[np.float64],
    token: int,
    margin: float,
    rounding: Rounding,
    spell: Callable[[int], str],
) -> Divergence:
    """A token that is not the likeliest, and whether rounding explains it. row: [V] processed logits."""
    second, best = np.argsort(row, kind="stable")[-2:].tolist()
    kind: Kind = "near-tie" if rounding.near_tie(margin) else "bug"
    return Divergence(prompt, position, best, spell(best), second, spell(second), token, spell(token), margin, kind)


def _compare(written: Sequence[Completion], plain: Sequence[Completion]) -> PlainTexts:
    places = [first_difference(a.tokens, b.tokens) for a, b in zip(written, plain, strict=True)]
    differences = tuple((number, at) for number, at in enumerate(places) if at is not None)
    return PlainTexts(len(written), len(written) - len(differences), differences)
