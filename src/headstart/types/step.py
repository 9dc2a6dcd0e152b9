"""One engine step as everybody else sees it: the event, its times, and a piece of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from headstart.base.errors import HeadstartError
from headstart.types.draft import Budget, Draft

FinishReason = Literal["stop", "length", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of an emitted token under the target, and those of the likeliest tokens.

    token: the id of the emitted token.
    logprob: its log-probability, in nats.
    top: id to log-probability of the likeliest tokens, as many as `Sampling.logprobs` asked for.
    """

    token: int
    logprob: float
    top: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Wall-clock seconds of a step by part, in the order of the parts.

    plan: who runs, their rows, and how much each may draft (scheduler and pacing).
    draft: the drafter.
    verify: the target's forward.
    sample: from logits to distributions, and the rule.
    commit: what was decided is written into the cache and the requests, texts included. What comes after it, the events
        and whoever looks at them, is no part of a step.
    """

    plan: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    sample: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.plan + self.draft + self.verify + self.sample + self.commit

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            plan=self.plan + other.plan,
            draft=self.draft + other.draft,
            verify=self.verify + other.verify,
            sample=self.sample + other.sample,
            commit=self.commit + other.commit,
        )


PARTS = tuple(each.name for each in fields(Seconds))
"""The parts of a step's time, in their order."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Whether speculation was running for a request, with which drafter, and if not, why not.

    on: whether drafts could be made when the request ended.
    drafter: the name of the drafter, "none" if there was none.
    reason: why as much was drafted as in the last step; if `on` is False, why not.
    error: the error of a drafter that was switched off because it failed, else None.
    not_guessing: a sentence that says why nothing is guessed at the moment, "" if something is.
    """

    on: bool
    drafter: str
    reason: str = ""
    error: HeadstartError | None = None
    not_guessing: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One request's part in one engine step: the event behind streaming, stats, metrics and every viewer.

    request: the request's number.
    index: the number of the step, counted for this request from 0.
    position: the absolute position of the first token that this step can emit.
    draft: the draft that was judged.
    path: the nodes of it that were accepted.
    tokens: the emitted tokens, after stops were applied; empty while a long prompt is still being read.
        tokens[:accepted] came from the draft, and the next is the target's own. After it may come the end of the
        text, where a grammar lets nothing else come.
    logprobs: of the emitted tokens, where the request asked for them.
    rows: rows of the target's forward that were this request's.
    batch: requests in the forward.
    seconds: of the whole step, shared by its requests.
    finish_reason: why the request ended with this step; None where it did not.
    speculation: whether the request goes on speculating.
    budget: how much could be drafted, and why.
    began: when the step began, in seconds of `time.perf_counter`.
    experts: how many experts all rows of the forward met, layer by layer, each once; None where the model has none, or
        nothing counts them.
    """

    request: int
    index: int
    position: int
    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None
    rows: int
    batch: int
    seconds: Seconds
    finish_reason: FinishReason | None
    speculation: Speculation
    budget: Budget = Budget()
    began: float = 0.0
    experts: int | None = None

    @property
    def accepted(self) -> int:
        """How many of `tokens` come from the draft (a stop may have cut the accepted path short)."""
        return min(len(self.path), len(self.tokens))

    @property
    def forced(self) -> int:
        """How many of `tokens` come from the draft and were no guesses, since nothing else could come."""
        accepted = self.accepted
        return accepted - self.draft.guesses_in(self.path[:accepted])


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream.

    text: text that is final; "" while a stop string or a character may still be incomplete.
    tokens: the ids of the tokens that this step emitted.
    step: the step itself.
    """

    text: str
    tokens: tuple[int, ...]
    step: Step

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the request ended with this chunk; None before the last one."""
        return self.step.finish_reason
