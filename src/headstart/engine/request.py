"""A running request: everything about it that changes. Only the engine's commit writes here."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.engine.detokenize import TextStream
from headstart.rule.noise import Noise
from headstart.theory.rounds import PositionCounts
from headstart.types import (
    AheadStats,
    Budget,
    Chunk,
    Drafting,
    FinishReason,
    Output,
    Rule,
    Sampling,
    Seconds,
    Speculation,
    Stats,
    Step,
    TokenLogprob,
)

if TYPE_CHECKING:
    from headstart.base.errors import HeadstartError
    from headstart.rule.distribution import SamplingState


class Request:
    """One prompt on its way to an `Output`.

    tokens: prompt and output; the last one is x0, the pending token, which is not yet in the cache.
    rule: what its drafts are judged by, until it ends.
    limit: the most tokens that the context holds.
    stop_ids: tokens that end the request when emitted (EOS and stop_token_ids).
    """

    def __init__(
        self,
        number: int,
        prompt: tuple[int, ...],
        sampling: Sampling,
        *,
        seed: int,
        rule: Rule,
        sampling_state: SamplingState,
        stop_ids: frozenset[int],
        limit: int,
        speculation: Speculation,
        drafting: Drafting,
        decode: Callable[[list[int]], str],
    ) -> None:
        self.number = number
        self.prompt = prompt
        self.sampling = sampling
        self.noise = Noise(seed)
        self.rule = rule
        self.sampling_state = sampling_state
        self.stop_ids = stop_ids
        self.limit = limit
        self.speculation = speculation
        self.drafting = drafting
        self.tokens = list(prompt)
        self.slot: int | None = None
        self.finish_reason: FinishReason | None = None
        self.error: HeadstartError | None = None
        self.chunks: deque[Chunk] = deque()
        self.text = TextStream(decode, prompt, sampling.stop)
        self._logprobs: list[TokenLogprob] = []
        self._tally = _Tally()
        self._submitted = time.perf_counter()
        self._admitted: float | None = None
        self._first: float | None = None
        self._last = self._submitted
        self._cached = 0

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.prompt) :])

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.prompt)

    @property
    def room(self) -> int:
        """The most draft tokens that could still be of use, one less than may still be emitted, and are allowed."""
        if not self.speculation.on:
            return 0
        useful, allowed = self.left - 1, self.drafting.max_draft_tokens
        return max(0, useful if allowed is None else min(useful, allowed))

    @property
    def left(self) -> int:
        """The most tokens that may still be emitted."""
        return min(self.sampling.max_tokens - self.generated, self.limit - len(self.tokens))

    @property
    def seeded(self) -> bool:
        """Whether the caller chose the seed of a text that depends on it."""
        return self.sampling.seed is not None and not self.sampling.greedy

    @property
    def steps(self) -> int:
        return self._tally.steps

    def admit(self, slot: int, cached: int) -> None:
        """It has a slot from now on, which holds the first `cached` tokens of its prompt already."""
        self.slot, self._cached = slot, cached
        self._admitted = time.perf_counter()

    def extend(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Append the tokens of a verdict up to the first that ends the request; returns those appended.

        A token in `stop_ids` ends it and stays out of the text; then a stop string, max_tokens and the context.
        """
        taken = 0
        for token in tokens:
            self.tokens.append(token)
            taken += 1
            if token in self.stop_ids or self._shows_stop(token):
                self.finish_reason = "stop"
            elif self.generated >= self.sampling.max_tokens or len(self.tokens) >= self.limit:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                break
        if not self.sampling.stop:
            ended = self.finish_reason == "stop"
            self.text.push(tokens[: taken - 1] if ended else tokens[:taken])
        self.sampling_state = self.sampling_state.after(tokens[:taken])
        return tuple(tokens[:taken])

    def _shows_stop(self, token: int) -> bool:
        if not self.sampling.stop:
            return False  # the text is decoded once per step then, not once per token
        self.text.push((token,))
        return self.generated >= self.sampling.min_tokens and self.text.stopped()

    def record(self, step: Step) -> None:
        """Count a step and turn it into a chunk of the stream."""
        self._last = time.perf_counter()
        if self._first is None and step.tokens:
            self._first = self._last
        self._tally.add(step)
        if step.logprobs is not None:
            self._logprobs += step.logprobs
        if step.finish_reason is not None:
            self.text.flush()
        piece = self.text.take(final=step.finish_reason is not None)
        if step.tokens or step.finish_reason is not None:
            self.chunks.append(Chunk(piece, step.tokens, step))

    def explain(self, budget: Budget) -> None:
        """Record why this much is being drafted, unless speculation has ended."""
        known = self.speculation
        if budget.reason and known.on and (budget.reason, budget.idle) != (known.reason, known.not_guessing):
            self.speculation = replace(known, reason=budget.reason, not_guessing=budget.idle)

    def stop_speculating(self, reason: str, error: HeadstartError) -> None:
        self.speculation = replace(self.speculation, on=False, reason=reason, error=error, not_guessing="")

    def finish(self) -> Output:
        """The result; the request has ended."""
        assert self.finish_reason is not None, "the request is still running"
        tally = self._tally
        first = self._last if self._first is None else self._first
        stats = Stats(
            tokens=self.generated,
            prompt_tokens=len(self.prompt),
            target_forwards=tally.forwards,
            prefill_forwards=tally.prefills,
            drafted=tally.drafted,
            accepted=tally.accepted,
            drafted_per_position=tuple(tally.positions.tested),
            accepted_per_position=tuple(tally.positions.accepted),
            seconds=tally.seconds,
            seconds_to_first_token=first - self._submitted,
            total_seconds=self._last - self._submitted,
            speculation=self.speculation,
            queue_seconds=(self._last if self._admitted is None else self._admitted) - self._submitted,
            cached_tokens=self._cached,
            accepted_by_source=dict(tally.accepted_by_source),
            refused_by_source=dict(tally.refused_by_source),
            ahead=tally.ahead,
            forced=tally.forced,
        )
        return Output(
            text=self.text.text,
            tokens=self.output,
            finish_reason=self.finish_reason,
            logprobs=None if self.sampling.logprobs is None else tuple(self._logprobs),
            stats=stats,
            prompt_tokens=self.prompt,
            seed=self.noise.seed,
            error=self.error,
            stop=self.text.stop,
        )


class _Tally:
    """Running counts behind `Stats`."""

    def __init__(self) -> None:
        self.steps = self.forwards = self.prefills = self.drafted = self.accepted = self.forced = 0
        self.positions = PositionCounts()
        self.accepted_by_source: Counter[str] = Counter()
        self.refused_by_source: Counter[str] = Counter()
        self.ahead: AheadStats | None = None
        self.seconds = Seconds()

    def add(self, step: Step) -> None:
        self.steps += 1
        self.seconds += step.seconds
        if not step.tokens:
            self.prefills += step.rows > 0
            return
        self.forwards += 1
        self.drafted += step.draft.guesses
        self.forced += step.forced
        accepted, right = step.accepted - step.forced, step.draft.guesses_in(step.path)
        self.accepted += accepted
        deepest = step.draft.guessed_levels
        self.positions.add(deepest, right)
        if deepest:
            self.accepted_by_source[step.draft.source] += accepted
            self.refused_by_source[step.draft.source] += right < deepest
        if step.draft.prepared is not None:
            self.ahead = (self.ahead or AheadStats()).counting(step.draft.prepared)
