"""A finished request: its text, and what it counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headstart.base.errors import HeadstartError
from headstart.types.ahead import AheadStats
from headstart.types.step import FinishReason, Seconds, Speculation, TokenLogprob


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one request, as `Output.stats`.

    tokens: new tokens.
    prompt_tokens: tokens of the prompt.
    speculation: whether drafts were made at the end, and why or why not.
    target_forwards: forwards that judged a position of this request.
    prefill_forwards: forwards that only read a part of its prompt.
    drafted: draft tokens that were guessed.
    accepted: guesses that were accepted.
    drafted_per_position: [i] counts the drafts that reached depth i + 1 *and* whose tokens before it were all
        accepted, so that its fate is known.
    accepted_per_position: [i] counts those of them whose token at depth i + 1 was accepted. The ratio of the two
        is the conditional acceptance.
    seconds: by part of the steps it took part in.
    seconds_to_first_token: from the request's submission to its first token.
    total_seconds: from the request's submission to its end.
    queue_seconds: from the request's submission until it had a slot; they are part of both.
    cached_tokens: tokens of the prompt that the cache held already, so that they were not read again.
    accepted_by_source: of `accepted`, those of each drafter, by its name.
    refused_by_source: how often a guess of each drafter's was refused; what hung below it had no chance.
    forced: draft tokens that were emitted and were no guesses, since a grammar let nothing else come. They are in none
        of the counts above.
    ahead: what drafting ahead gained; None where no draft was made by a drafter that drafts ahead.
    """

    tokens: int
    prompt_tokens: int
    target_forwards: int
    prefill_forwards: int
    drafted: int
    accepted: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    seconds: Seconds
    seconds_to_first_token: float
    total_seconds: float
    speculation: Speculation
    queue_seconds: float = 0.0
    cached_tokens: int = 0
    accepted_by_source: Mapping[str, int] = field(default_factory=dict)
    refused_by_source: Mapping[str, int] = field(default_factory=dict)
    ahead: AheadStats | None = None
    forced: int = 0

    @property
    def tokens_per_forward(self) -> float:
        """tau: the tokens emitted per target forward; 1.0 is plain decoding."""
        return self.tokens / self.target_forwards if self.target_forwards else 0.0

    @property
    def tokens_per_second(self) -> float:
        """New tokens over `total_seconds`."""
        return self.tokens / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Saved:
    """The seconds that speculation saved one request, below 0 where drafts cost more, and the ends of their interval;
    `tokens` of the request's are counted. `headstart.serve.savings` says how they are found out."""

    seconds: float
    low: float
    high: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Output:
    """A finished request: what `Engine.generate` and `Engine.chat` return.

    text, tokens: what was generated, without the prompt.
    finish_reason: "stop" (an end token or a stop string), "length" (`max_tokens`, or the context is full), "cancelled",
        or "error".
    error: set if and only if finish_reason is "error"; the text up to there is kept.
    logprobs: one for each token, where `Sampling.logprobs` asked for them.
    stats: counts and times.
    prompt_tokens: the token ids of the prompt.
    seed: the seed that was used, also where none was given.
    stop: the stop string before which the text ended; None where it ended otherwise.
    saved: what speculation saved, where a server measured it; None elsewhere.

    A request that is sent again with this `seed` has the same text under rule "coupled", and under "auto", the default,
    where it had the seed the first time. Where it had none, "auto" has judged it by rule "exact" and judges it by
    "coupled" when it comes again with the seed: the text then differs, unless the drafter draws nothing, as those that
    copy, or the temperature is 0. Load the engine with rule "coupled" to have every text again. Under "exact" the
    lengths of the drafts must be the same, too (docs/concepts/pacing.md).
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] | None
    stats: Stats
    prompt_tokens: tuple[int, ...]
    seed: int
    error: HeadstartError | None = None
    stop: str | None = None
    saved: Saved | None = None
