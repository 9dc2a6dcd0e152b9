"""The step loop: schedule, propose, one target forward, verify, commit. Only commit changes anything.

A step serves a ragged batch: every request has its own sampling, draft and accepted length, and joins or leaves
between steps. The engine knows no drafter by name and has no mode: plain decoding is a draft without nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from headstart.drafters import Drafter, Observation
from headstart.engine.drafting import NO_DRAFT, Drafting
from headstart.engine.judging import Judgement, judge, laws, said
from headstart.engine.prompts import Intake, Prompt
from headstart.engine.request import Request
from headstart.engine.scheduler import PlanRow, Scheduler
from headstart.errors import InvalidOption
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.options import check_number
from headstart.pacing import FixedPacing, Pacing
from headstart.types import Chunk, Draft, FinishReason, Output, Rule, Sampling, Seconds, Step


class Engine:
    """A target, perhaps a drafter, and the requests being served. Not thread-safe: one thread steps it.

    Args:
        target: the model whose law is kept.
        tokenizer: of transformers, or None if prompts are token ids and no text is wanted.
        drafter: guesses tokens, or None for plain decoding; `reason` says why this one, or why none.
        rule: "exact" keeps the law at the highest acceptance; "coupled" also gives one text per seed, whatever
            the drafter.
        num_speculative_tokens: K, the nodes of a draft where no pacing is given; None takes the drafter's own default.
        pacing: decides how much each request drafts in each step; None always takes K.
        max_batch_size: requests that run at once; more of them wait.
        prefill_chunk: prompt tokens read per step, over all requests.
    """

    def __init__(
        self,
        target: ModelRunner,
        tokenizer: Any = None,
        drafter: Drafter | None = None,
        *,
        rule: Rule = "exact",
        num_speculative_tokens: int | None = None,
        pacing: Pacing | None = None,
        max_batch_size: int = 8,
        prefill_chunk: int = 512,
        eos_token_ids: frozenset[int] = frozenset(),
        target_name: str = "target",
        reason: str = "",
    ) -> None:
        if rule not in ("exact", "coupled"):
            raise InvalidOption(f"rule={rule!r} does not exist", hint="it is 'exact' or 'coupled'")
        check_number("max_batch_size", max_batch_size, low=1, integer=True)
        check_number("prefill_chunk", prefill_chunk, low=1, integer=True)
        self.target = target
        self.tokenizer = tokenizer
        self.rule: Rule = rule
        self.target_name = target_name
        self.eos_token_ids = eos_token_ids
        self.cache = target.new_cache(max_batch_size)
        if drafter is not None:
            drafter.attach(target, self.cache)
        self.reason = reason or ("no drafter was asked for" if drafter is None else "asked for")
        self.drafting = Drafting(drafter, rule=rule, vocab_size=target.vocab_size, reason=self.reason)
        self.scheduler = Scheduler(self.cache, prefill_chunk=prefill_chunk, pin=self.drafting.pins)
        k = self.drafting.default_budget if num_speculative_tokens is None else num_speculative_tokens
        fixed = FixedPacing(k)  # also checks K
        self.pacing: Pacing = fixed if pacing is None else pacing
        self._options = {"max_batch_size": max_batch_size, "prefill_chunk": prefill_chunk}
        self._listeners: list[Callable[[Step], None]] = []
        self._intake = Intake(target, tokenizer, eos_token_ids)

    # -- the public face ------------------------------------------------------------------------------------------

    @property
    def drafter_name(self) -> str:
        return self.drafting.name

    @overload
    def generate(self, prompts: Prompt, sampling: Sampling | None = None) -> Output: ...  # type: ignore[overload-overlap]

    @overload
    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling | Sequence[Sampling] | None = None
    ) -> list[Output]: ...

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling: Sampling | Sequence[Sampling] | None = None
    ) -> Output | list[Output]:
        """Complete one prompt, or a list of prompts as one ragged batch with one Sampling or one for each.

        A request whose logits are not finite ends with finish_reason "error"; the others go on. Everything else
        that is wrong with a prompt raises before anything is generated.
        """
        single = _is_one(prompts)
        batch: Sequence[Any] = [prompts] if single else prompts
        samplings = _broadcast(sampling, len(batch))
        # All are checked before the first is queued: a mistake in one loses nothing
        requests = [
            self._intake.request(prompt, each, self.drafting.initial)
            for prompt, each in zip(batch, samplings, strict=True)
        ]
        self.scheduler.waiting.extend(requests)
        try:
            while any(request.finish_reason is None for request in requests):
                self.step()
        finally:
            for request in requests:
                self.cancel(request)
        outputs = [request.finish() for request in requests]
        return outputs[0] if single else outputs

    def stream(self, prompt: Prompt, sampling: Sampling | None = None) -> Iterator[Chunk]:
        """Complete one prompt, yielding each step's text as soon as it is final. Closing the iterator cancels."""
        return self._drain(self.submit(prompt, sampling))

    def _drain(self, request: Request) -> Iterator[Chunk]:
        try:
            while request.finish_reason is None or request.chunks:
                while request.chunks:
                    yield request.chunks.popleft()
                if request.finish_reason is None:
                    self.step()
        finally:
            self.cancel(request)

    def submit(self, prompt: Prompt, sampling: Sampling | None = None) -> Request:
        """Queue a request; it runs as `step` is called."""
        request = self._intake.request(prompt, sampling or Sampling(), self.drafting.initial)
        self.scheduler.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """End a request where it stands, keeping what it has; nothing happens if it has ended."""
        if request.finish_reason is None:
            self._end(request, "cancelled")

    def subscribe(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """Have `listener` called with every Step; returns a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def plain(self) -> Engine:
        """A second engine on the same weights, without a drafter and with a cache of its own, to compare with."""
        return Engine(
            self.target,
            self.tokenizer,
            rule=self.rule,
            eos_token_ids=self.eos_token_ids,
            target_name=self.target_name,
            max_batch_size=self._options["max_batch_size"],
            prefill_chunk=self._options["prefill_chunk"],
        )

    def describe(self) -> dict[str, Any]:
        """What runs here: names, rule, dtype, device, sizes."""
        return {
            "target": self.target_name,
            "drafter": self.drafter_name,
            "chosen": self.reason,
            "rule": self.rule,
            "pacing": self.pacing.name,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "quantize": self.target.quantize,
            "decoder": self.target.decoder,
            "width_invariant": self.target.width_invariant,
            "device": str(self.target.device),
            "threads": torch.get_num_threads(),
            "vocab_size": self.target.vocab_size,
            "max_length": self.target.max_length,
            **self._options,
        }

    # -- the step loop --------------------------------------------------------------------------------------------

    def step(self) -> list[Step]:
        """Advance the running requests by one target forward; returns one event for each that had a part in it."""
        clock = _Clock()
        self.scheduler.admit()
        plan = self.scheduler.plan(self.pacing)
        if not plan.rows:
            return []
        clock.lap("commit")  # scheduling and pacing; a drafter is not to be blamed for them
        drafts = self.drafting.propose(plan)
        clock.lap("draft")
        segments = [_segment(row, draft) for row, draft in zip(plan.rows, drafts, strict=True)]
        forward = self.target.forward(segments, self.cache, taps=self.drafting.taps)
        clock.lap("verify")
        p = laws(plan, drafts, forward.logits)
        clock.lap("law")
        judgements = judge(plan, drafts, forward.logits, p, self.rule)
        heard = said(plan, p) if self.drafting.reads else [()] * len(plan.rows)
        clock.lap("commit")
        return [
            self._commit(*each, len(plan.rows), clock.seconds)
            for each in zip(plan.rows, drafts, judgements, forward.hidden_of(segments), heard, strict=True)
        ]

    def _commit(
        self,
        row: PlanRow,
        draft: Draft,
        judgement: Judgement,
        hidden: dict[int, Tensor],
        heard: tuple[int, ...],
        batch: int,
        seconds: Seconds,
    ) -> Step:
        """The only mutation: cache, request, then everyone who wants to know."""
        request, feed = row.request, len(row.feed)
        position = len(request.tokens)
        self.cache.keep(row.slot, feed, judgement.path)
        request.explain(row.budget.reason)
        if judgement.error is not None:
            request.error, request.finish_reason = judgement.error, "error"
        emitted = request.extend(judgement.tokens)
        step = Step(
            request=request.number,
            index=request.steps,
            position=position,
            draft=draft,
            path=judgement.path,
            tokens=emitted,
            logprobs=None if judgement.logprobs is None else judgement.logprobs[: len(emitted)],
            rows=feed + len(draft),
            batch=batch,
            seconds=seconds,
            finish_reason=request.finish_reason,
            speculation=request.speculation,
            budget=row.budget,
        )
        kept = [*range(feed), *(feed + node for node in judgement.path)]
        cached = (*row.feed, *(draft.tokens[node] for node in judgement.path))
        self._publish(request, Observation(step, cached, {i: states[kept] for i, states in hidden.items()}, heard))
        return step

    # -- around a step --------------------------------------------------------------------------------------------

    def _publish(self, request: Request, observation: Observation) -> None:
        """Tell drafter, pacing, the request's own record and the listeners; let an ended request go."""
        step = observation.step
        self.drafting.observe(request, observation)
        self.pacing.observe(step)
        request.record(step)
        if request.finish_reason is not None:
            self.scheduler.remove(request)
            self.drafting.release(request)
            self.pacing.release(request.number)
        for listener in tuple(self._listeners):
            listener(step)

    def _end(self, request: Request, reason: FinishReason) -> None:
        """Close a request between steps, with an event of its own."""
        request.finish_reason = reason
        step = Step(
            request=request.number,
            index=request.steps,
            position=len(request.tokens),
            draft=NO_DRAFT,
            path=(),
            tokens=(),
            logprobs=None,
            rows=0,
            batch=0,
            seconds=Seconds(),
            finish_reason=reason,
            speculation=request.speculation,
        )
        self._publish(request, Observation(step, (), {}))


class _Clock:
    """Splits a step's wall-clock time."""

    def __init__(self) -> None:
        self._laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> Seconds:
        return Seconds(**self._laps)


def _segment(row: PlanRow, draft: Draft) -> Segment:
    return Segment(row.slot, row.feed, draft, judged=len(draft) + 1 if row.judged else 0)


def _is_one(prompts: Prompt | Sequence[Prompt]) -> bool:
    """One prompt is text or a flat sequence of ids (an empty one included: it is refused as an empty prompt).

    Arrays and tensors count as sequences.
    """
    if isinstance(prompts, str) or len(prompts) == 0:
        return True
    first = prompts[0]
    return not isinstance(first, (str, Sequence)) and getattr(first, "ndim", 0) == 0


def _broadcast(sampling: Sampling | Sequence[Sampling] | None, count: int) -> Sequence[Sampling]:
    if sampling is None:
        return [Sampling()] * count
    if isinstance(sampling, Sampling):
        return [sampling] * count
    if len(sampling) != count:
        raise InvalidOption(
            f"{len(sampling)} Samplings for {count} prompts", hint="give one Sampling, or one for each prompt"
        )
    return sampling
