"""The figures of an answer: `usage` (OpenAI), `metrics.speculative_decoding` (vLLM), `timings` (llama.cpp), and ours.

Every number is finite: a ratio without a denominator is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

from headstart.base.as_json import picked
from headstart.serve.api.schemas.parts import Shown
from headstart.serve.names import public_name, public_words
from headstart.types import AheadStats, Chunk, Output, Step

PREDICTION = "prediction"
"""The source of drafts that were taken from a request's predicted output."""


@dataclass(slots=True)
class Counts:
    """One choice's drafts, step by step, as far as `Stats` does not count them.

    Steps are counted and let go: a draft may hold large tensors.
    """

    accepted: list[int] = field(default_factory=list)
    """Of each step that judged a draft, the tokens accepted."""
    drafted: list[int] = field(default_factory=list)
    """Of the same steps, the tokens drafted."""
    tokens: int = 0
    """Tokens written so far."""
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    """Tokens of the prediction that were judged and refused; those behind a refused one were not judged."""
    reasoning: int | None = None
    """Tokens written so far that are reasoning; None where the model has none."""

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Count the steps behind these chunks."""
        for chunk in chunks:
            self._add(chunk.step)

    def _add(self, step: Step) -> None:
        self.tokens += len(step.tokens)
        if not step.draft.guesses or not step.tokens:
            return
        accepted = step.accepted - step.forced
        self.accepted.append(accepted)
        self.drafted.append(step.draft.guesses)
        if step.draft.source == PREDICTION:
            self.predicted_accepted += accepted
            self.predicted_rejected += step.draft.guesses_in(step.path) < step.draft.guessed_levels

    @property
    def histogram(self) -> list[int]:
        """[j]: the steps that accepted exactly j tokens."""
        found = Counter(self.accepted)
        return [found[j] for j in range(max(found, default=-1) + 1)]


@dataclass(frozen=True, slots=True)
class Done:
    """A finished choice."""

    output: Output
    counts: Counts


def usage(
    prompt_tokens: int, completion_tokens: int, cached: int, predicted: Counts | None, reasoning: int | None = None
) -> dict[str, Any]:
    """OpenAI's `usage`.

    predicted: the counts of the prediction's tokens, if the request had one. `completion_tokens` are those written.
    reasoning: those of them that are reasoning, if the model may reason.
    """
    found: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    details = {} if reasoning is None else {"reasoning_tokens": reasoning}
    if predicted is not None:
        details |= {
            "accepted_prediction_tokens": predicted.predicted_accepted,
            "rejected_prediction_tokens": predicted.predicted_rejected,
        }
    return found | ({"completion_tokens_details": details} if details else {})


def usage_of(done: Sequence[Done], choices: int, shown: Shown) -> dict[str, Any]:
    """The usage of a whole answer. choices: of each prompt, which is counted once."""
    firsts = [each.output.stats for each in done[::choices]]
    predicted = total([each.counts for each in done]) if shown.predicted else None
    return usage(
        sum(stats.prompt_tokens for stats in firsts),
        sum(each.output.stats.tokens for each in done),
        sum(stats.cached_tokens for stats in firsts),
        predicted,
        total([each.counts for each in done]).reasoning,
    )


def total(counts: Sequence[Counts]) -> Counts:
    """The counts of several choices together."""
    sum_ = Counts()
    for each in counts:
        sum_.tokens += each.tokens
        if each.reasoning is not None:
            sum_.reasoning = (sum_.reasoning or 0) + each.reasoning
        sum_.accepted += each.accepted
        sum_.drafted += each.drafted
        sum_.predicted_accepted += each.predicted_accepted
        sum_.predicted_rejected += each.predicted_rejected
    return sum_


def metrics(done: Sequence[Done], shown: Shown) -> dict[str, Any]:
    """`metrics` of one choice or of several together."""
    stats = [each.output.stats for each in done]
    counts = total([each.counts for each in done])
    tokens = sum(each.tokens for each in stats)
    first = min(each.seconds_to_first_token for each in stats)
    whole = max(each.total_seconds for each in stats)
    return {
        "time_to_first_token_ms": _ms(first),
        "generation_time_ms": _ms(whole - first),
        "queue_time_ms": _ms(max(each.queue_seconds for each in stats)),
        "mean_itl_ms": _ms(_ratio(whole - first, max(each.tokens for each in stats) - 1)),
        "tokens_per_second": round(_ratio(tokens, whole), 3),
        "speculative_decoding": _speculative_decoding(counts, shown),
        "headstart": _ours(done),
    }


def timings(done: Sequence[Done]) -> dict[str, Any]:
    """llama.cpp's `timings`. `draft_n` counts drafted tokens that were judged: not those behind a refused one.

    `saved_ms` is ours: what speculation saved against plain steps measured on this machine, with its interval, and the
    tokens that it speaks of; null where no plain step was measured. Of several choices, that which took longest counts.
    """
    saved = max(done, key=lambda each: each.output.stats.total_seconds).output.saved
    stats = [each.output.stats for each in done]
    cached = sum(each.cached_tokens for each in stats)
    prompt = sum(each.prompt_tokens for each in stats) - cached
    predicted = sum(each.tokens for each in stats)
    reading = 1000 * max(0.0, min(each.seconds_to_first_token - each.queue_seconds for each in stats))
    writing = 1000 * max(each.total_seconds - each.seconds_to_first_token for each in stats)
    return {
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": round(reading, 3),
        "prompt_per_token_ms": round(_ratio(reading, prompt), 3),
        "prompt_per_second": round(_ratio(1000 * prompt, reading), 3),
        "predicted_n": predicted,
        "predicted_ms": round(writing, 3),
        "predicted_per_token_ms": round(_ratio(writing, predicted), 3),
        "predicted_per_second": round(_ratio(1000 * predicted, writing), 3),
        "draft_n": sum(sum(each.drafted_per_position) for each in stats),
        "draft_n_accepted": sum(sum(each.accepted_per_position) for each in stats),
        "saved_ms": None if saved is None else round(1000 * saved.seconds, 3),
        "saved_ms_low": None if saved is None else round(1000 * saved.low, 3),
        "saved_ms_high": None if saved is None else round(1000 * saved.high, 3),
        "saved_n": 0 if saved is None else saved.tokens,
    }


def _speculative_decoding(counts: Counts, shown: Shown) -> dict[str, Any]:
    steps, accepted, drafted = len(counts.accepted), sum(counts.accepted), sum(counts.drafted)
    found: dict[str, Any] = {
        "mean_acceptance_length": round(1 + _ratio(accepted, steps), 4),
        "draft_acceptance_rate": round(_ratio(accepted, drafted), 4),
        "acceptance_histogram": counts.histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": max(counts.drafted, default=0),
    }
    if shown.metrics == "detailed":
        found |= {"per_step_accepted": counts.accepted, "per_step_drafted": counts.drafted}
    return found


def _ours(done: Sequence[Done]) -> dict[str, Any]:
    stats = [each.output.stats for each in done]
    forwards = sum(each.target_forwards for each in stats)
    tested = _by_position([each.drafted_per_position for each in stats])
    kept = _by_position([each.accepted_per_position for each in stats])
    speculation = stats[0].speculation
    reason = public_words(speculation.reason, speculation.drafter)
    seconds = asdict(sum((each.seconds for each in stats[1:]), stats[0].seconds))
    sources: Counter[str] = Counter()
    for each in stats:
        for name, count in each.accepted_by_source.items():
            sources[public_name(name)] += count
    return {
        "tokens_per_forward": round(_ratio(sum(each.tokens for each in stats), forwards), 4),
        "target_forwards": forwards,
        "prefill_forwards": sum(each.prefill_forwards for each in stats),
        "tested_per_position": tested,
        "accepted_per_position": kept,
        "conditional_acceptance": [round(_ratio(a, t), 4) for a, t in zip(kept, tested, strict=True)],
        "seconds": {part: round(value, 6) for part, value in seconds.items()},
        "drafter": public_name(speculation.drafter),
        "sources": dict(+sources),  # without those of which nothing was accepted
        "ahead": _ahead([each.ahead for each in stats if each.ahead is not None]),
        "speculating": speculation.on,
        "off_reason": None if speculation.on else reason,
        "last_budget": reason if speculation.on else None,
        "not_guessing": public_words(speculation.not_guessing, speculation.drafter) or None,
        "finish_reason": done[0].output.finish_reason if len(done) == 1 else None,
    }


def _ahead(stats: Sequence[AheadStats]) -> dict[str, Any] | None:
    """The figures of drafting ahead; null where nothing was drafted ahead."""
    if not stats:
        return None
    found = sum(stats, AheadStats())
    return {
        **picked(found, "drafts", "hits", "misses", "waits"),
        "hit_rate": round(found.hit_rate, 4),
        "seconds_on_hits": round(found.seconds_on_hits, 6),
        "seconds_on_misses": round(found.seconds_on_misses, 6),
        "rounds_per_depth": list(found.rounds_per_depth),
        "hits_per_depth": list(found.hits_per_depth),
    }


def _by_position(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


def _ratio(number: float, by: float) -> float:
    return number / by if by > 0 else 0.0


def _ms(seconds: float) -> float:
    return round(1000 * max(seconds, 0.0), 3)
