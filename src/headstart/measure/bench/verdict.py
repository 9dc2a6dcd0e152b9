"""What a bench comes to, in plain words: faster, slower or no difference, why, and whether the texts were the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headstart.base.words import counted
from headstart.measure.bench.result import BenchResult
from headstart.measure.bench.summary import Figures
from headstart.measure.bench.sweep import Here, here

_BUSY = 0.5  # processes that want a core, by core
Kind = Literal["good", "bad", "unsure", "info"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """headline: one sentence. reasons: more of them, the most important first."""

    kind: Kind
    headline: str
    reasons: tuple[str, ...]


def conclude(result: BenchResult, figures: list[Figures]) -> Conclusion:
    """figures: of `summarise`, not empty."""
    overall = figures[0]
    size = max(map(len, result.units), default=1)
    batches = f"Prompts ran up to {size} at a time: the speedup is that of a batch's tokens per second."
    reasons = [
        *(f"Speculation was off in {n} of {counted(overall.runs, 'run')}: {why}." for why, n in overall.off.items()),
        *_pays(overall, here(result, overall)),
        *_texts(result, overall),
        *(
            f"Slower in category {each.category}: {each.speedup.times}."
            for each in figures[1:]
            if each.speedup.known and each.speedup.high < 1
        ),
        *([batches] if size > 1 else []),
        *_busy(result),
    ]
    kind, headline = _headline(overall)
    if not result.complete:
        headline += " (interrupted: what was finished counts)"
    return Conclusion(kind, headline, tuple(reasons))


def _headline(overall: Figures) -> tuple[Kind, str]:
    speedup = overall.speedup
    if not sum(source.nodes for source in overall.sources.values()):
        return "info", "Nothing was drafted: both sides are plain decoding, and their difference is the noise."
    tokens = f"{overall.tokens_per_forward.value:.2f} tokens per target forward"
    prompts = f"{overall.prompts} prompt{'s' if overall.prompts != 1 else ''}"
    if not speedup.known:
        return "unsure", f"{tokens}; {speedup.times} on {prompts}, too few to say how far off that is."
    ends = f"95% interval {speedup.low:.2f} to {speedup.high:.2f}"
    if speedup.low > 1:
        return "good", f"{tokens}; {speedup.value:.2f} times as fast as plain decoding on {prompts} ({ends})."
    if speedup.high < 1:
        return "bad", f"{tokens}, but slower: {speedup.value:.2f} times plain decoding's speed on {prompts} ({ends})."
    return "unsure", f"{tokens}; no difference in speed beyond noise: {speedup.value:.2f}x on {prompts} ({ends})."


def _pays(overall: Figures, place: Here | None) -> list[str]:
    """Why, as far as alpha, K and c say it."""
    if place is None:
        return []
    words = f"Of the judged guesses {overall.alpha:.0%} were accepted; a drafted token costs {place.c:.2f} plain steps"
    if not math.isfinite(place.break_even):
        return [f"{words}, which is more than any acceptance brings in: use a cheaper drafter."]
    side = "above" if overall.alpha >= place.break_even else "below"
    return [f"{words}: {side} the break-even of {place.break_even:.0%} for drafts of {max(1, round(place.k))}."]


def _texts(result: BenchResult, overall: Figures) -> list[str]:
    acceptance = result.settings.get("synthetic_acceptance")
    if acceptance is not None:
        return [
            f"Each guess was kept with a probability of {acceptance:.0%}, whatever it was: the text is not the "
            "model's, and the speed is that of a drafter which guesses so well."
        ]
    if overall.differing is None:
        return ["Sampled texts were not compared: they have the same distribution, not the same words."]
    if not overall.differing:
        return [f"The texts were the same as plain decoding's, token for token, in all {counted(overall.runs, 'run')}."]
    words = f"The texts parted from plain decoding's in {overall.differing} of {counted(overall.runs, 'run')}"
    if result.engine.get("dtype") == "float32" or result.engine.get("width_invariant"):
        return [f"{words}. With this target they should not: please report it, `headstart audit` shows where."]
    return [
        f"{words}: in {result.engine.get('dtype')} a forward of another width rounds differently, and nearly equal "
        "tokens can change places. `headstart audit` tells such a tie from a bug."
    ]


def _busy(result: BenchResult) -> list[str]:
    """The load average counts processes that want a core; those of the bench itself come later."""
    load, cores = result.provenance.get("load"), result.provenance.get("cores")
    if not load or not cores or load < _BUSY * cores:
        return []
    return [f"The machine was busy when this began (load {load:g} on {cores} cores): costs and times are less certain."]
