"""The step loop: schedule, propose, one target forward, verify, commit. Only commit changes anything.

A step serves a ragged batch: every request has its own sampling, draft and accepted length, and joins or leaves
between steps. The engine knows no drafter by name and has no mode: plain decoding is a draft without nodes.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from headstart.drafters import DraftContext, Drafter, Observation
from headstart.errors import (
    ContextExceeded,
    DrafterFailed,
    HeadstartError,
    InvalidOption,
    InvalidPrompt,
    NonFiniteLogits,
)
from headstart.law import LawRow, LawState, law, token_logprobs
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.noise import Purpose
from headstart.options import check_number
from headstart.pacing import FixedPacing, Pacing
from headstart.request import Request
from headstart.scheduler import Plan, PlanRow, Scheduler
from headstart.types import (
    Chunk,
    Draft,
    FinishReason,
    Output,
    Rule,
    Sampling,
    Seconds,
    Speculation,
    Step,
    TokenLogprob,
    Verdict,
)
from headstart.verify import verify

Prompt = str | Sequence[int]


class Engine:
    """A target, perhaps a drafter, and the requests being served. Not thread-safe: one thread steps it.

    Args:
        target: the model whose law is kept.
        tokenizer: of transformers, or None if prompts are token ids and no text is wanted.
        drafter: guesses tokens, or None for plain decoding; `reason` then says why there is none.
        rule: "exact" keeps the law at the highest acceptance; "coupled" also gives one text per seed, whatever
            the drafter.
        num_speculative_tokens: K, the most nodes a draft may have; None takes the drafter's own default.
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
        max_batch_size: int = 8,
        prefill_chunk: int = 512,
        eos_token_ids: frozenset[int] = frozenset(),
        target_name: str = "target",
        reason: str = "no drafter was asked for",
    ) -> None:
        if rule not in ("exact", "coupled"):
            raise InvalidOption(f"rule={rule!r} does not exist", hint="it is 'exact' or 'coupled'")
        check_number("max_batch_size", max_batch_size, low=1, integer=True)
        check_number("prefill_chunk", prefill_chunk, low=1, integer=True)
        self.target = target
        self.tokenizer = tokenizer
        self.drafter = drafter
        self.rule: Rule = rule
        self.target_name = target_name
        self.eos_token_ids = eos_token_ids
        self.cache = target.new_cache(max_batch_size)
        self.scheduler = Scheduler(self.cache, prefill_chunk=prefill_chunk)
        default = drafter.default_budget if drafter is not None else 0
        k = default if num_speculative_tokens is None else num_speculative_tokens
        self.pacing: Pacing = FixedPacing(k)
        self._idle = Speculation(False, self.drafter_name, reason) if drafter is None else None
        self._options = {"max_batch_size": max_batch_size, "prefill_chunk": prefill_chunk}
        self._listeners: list[Callable[[Step], None]] = []
        self._numbers = itertools.count()

    # -- the public face ------------------------------------------------------------------------------------------

    @property
    def drafter_name(self) -> str:
        return self.drafter.name if self.drafter is not None else "none"

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
        single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
        batch: Sequence[Any] = [prompts] if single else prompts
        samplings = _broadcast(sampling, len(batch))
        # All are checked before the first is queued: a mistake in one loses nothing
        requests = [self._new_request(prompt, each) for prompt, each in zip(batch, samplings, strict=True)]
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
        request = self._new_request(prompt, Sampling() if sampling is None else sampling)
        self.scheduler.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """End a request where it stands, keeping what it has; nothing happens if it has ended."""
        if request.finish_reason is None:
            request.finish_reason = "cancelled"
            self._end(request)

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
            "rule": self.rule,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "device": str(self.target.device),
            "threads": torch.get_num_threads(),
            "vocab_size": self.target.vocab_size,
            "max_length": self.target.max_length,
            **self._options,
        }

    # -- the step loop --------------------------------------------------------------------------------------------

    def step(self) -> list[Step]:
        """Advance every running request by one target forward; returns one event for each."""
        clock = _Clock()
        self.scheduler.admit()
        plan = self.scheduler.plan(self.pacing)
        if not plan.rows:
            return []
        drafts = self._propose(plan)
        clock.lap("draft")
        if self.drafter is not None:
            self.target.taps = self.drafter.taps
        forward = self.target.forward(
            [_segment(row, draft) for row, draft in zip(plan.rows, drafts, strict=True)], self.cache
        )
        clock.lap("verify")
        judged = _split(plan, drafts, forward.logits)
        laws = law(forward.logits, judged.rows) if judged.rows else forward.logits
        clock.lap("law")
        results = [
            self._judge(row, draft, forward.logits[span], laws[span])
            for row, draft, span in zip(plan.rows, drafts, judged.spans, strict=True)
        ]
        seconds = clock.lap("commit").seconds
        offset = 0
        steps = []
        for row, draft, result in zip(plan.rows, drafts, results, strict=True):
            rows = slice(offset, offset + len(row.feed) + len(draft))
            offset = rows.stop
            hidden = {layer: states[rows] for layer, states in forward.hidden.items()}
            steps.append(self._commit(row, draft, result, hidden, len(plan.rows), seconds))
        return steps

    def _propose(self, plan: Plan) -> list[Draft]:
        """Drafts for the rows that have a budget; if the drafter fails, their requests go on without it."""
        wanted = [row for row in plan.rows if row.budget > 0]
        drafts: dict[int, Draft] = {}
        if wanted and self.drafter is not None:
            try:
                proposed = self.drafter.propose([self._context(row) for row in wanted])
                drafts = {
                    row.request.number: _checked(draft, row, self.target.vocab_size)
                    for row, draft in zip(wanted, proposed, strict=True)
                }
            except Exception as error:  # a drafter may fail in any way; the target's text must not suffer
                self._drafter_failed([row.request for row in wanted], error)
        return [drafts.get(row.request.number, Draft()) for row in plan.rows]

    def _judge(self, row: PlanRow, draft: Draft, logits: Tensor, p: Tensor) -> _Result | HeadstartError | None:
        """Apply the rule to one row: its new tokens, an error if its logits are not finite, None for a prefill."""
        if not row.judged:
            return None
        if bool(p[:, 0].isnan().any()):
            return NonFiniteLogits(
                f"the target gave NaN or infinite logits after {len(row.request.tokens)} tokens",
                hint="check the checkpoint, or use a dtype with more range (float32)",
            )
        request = row.request
        q = None if draft.q is None else draft.q.cpu().numpy()
        verdict = verify(draft, p.cpu().numpy(), q, request.noise, len(request.tokens), self.rule)
        tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
        logprobs = None
        if request.sampling.logprobs is not None:
            judges = [0, *(node + 1 for node in verdict.path)]
            logprobs = token_logprobs(
                logits[judges],
                p[judges],
                tokens,
                top=request.sampling.logprobs,
                mode=request.sampling.logprobs_mode,
            )
        return _Result(verdict, tokens, logprobs)

    def _commit(
        self,
        row: PlanRow,
        draft: Draft,
        result: _Result | HeadstartError | None,
        hidden: dict[int, Tensor],
        batch: int,
        seconds: Seconds,
    ) -> Step:
        """The only mutation: cache, request, then everyone who wants to know."""
        request = row.request
        position = len(request.tokens)
        path: tuple[int, ...] = ()
        emitted: tuple[int, ...] = ()
        logprobs: tuple[TokenLogprob, ...] | None = None
        if isinstance(result, HeadstartError):
            request.error, request.finish_reason = result, "error"
        elif result is not None:
            path = result.verdict.path
            emitted = request.extend(result.tokens)
            logprobs = None if result.logprobs is None else tuple(result.logprobs[: len(emitted)])
        self.cache.keep(row.slot, len(row.feed), path)
        step = Step(
            request=request.number,
            index=request.steps,
            position=position,
            draft=draft,
            path=path,
            tokens=emitted,
            logprobs=logprobs,
            rows=len(row.feed) + len(draft),
            batch=batch,
            seconds=seconds,
            finish_reason=request.finish_reason,
            speculation=request.speculation,
        )
        kept = [*range(len(row.feed)), *(len(row.feed) + node for node in path)]
        fed = (*row.feed, *draft.tokens)
        self._publish(request, step, tuple(fed[i] for i in kept), {i: states[kept] for i, states in hidden.items()})
        if request.finish_reason is not None:
            self._leave(request)
        return step

    # -- around a step --------------------------------------------------------------------------------------------

    def _new_request(self, prompt: Prompt, sampling: Sampling) -> Request:
        ids = self._encode(prompt)
        if sampling.stop and self.tokenizer is None:
            raise InvalidOption("stop strings need a tokenizer", hint="use stop_token_ids, or load one with the model")
        stop_ids = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self.eos_token_ids)
        return Request(
            next(self._numbers),
            ids,
            sampling,
            seed=secrets.randbits(63) if sampling.seed is None else sampling.seed,
            law=LawState(sampling, ids, self.target.vocab_size, stop_ids, self.target.device),
            stop_ids=stop_ids,
            limit=self.target.max_length,
            speculation=self._idle or Speculation(True, self.drafter_name),
            decode=self._decode,
        )

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InvalidPrompt("this model has no tokenizer", hint="give the prompt as token ids")
            ids = tuple(self.tokenizer(prompt)["input_ids"])
        else:
            ids = tuple(int(token) for token in prompt)
        if not ids:
            raise InvalidPrompt("the prompt is empty", hint="give at least one token to continue from")
        outside = [token for token in ids if not 0 <= token < self.target.vocab_size]
        if outside:
            raise InvalidPrompt(
                f"token id {outside[0]} is not in the vocabulary",
                hint=f"this target has the ids 0 to {self.target.vocab_size - 1}",
            )
        if len(ids) >= self.target.max_length:
            raise ContextExceeded(
                f"the prompt has {len(ids)} tokens and the context holds {self.target.max_length}",
                hint="shorten the prompt, or raise max_length up to what the model was built for",
            )
        return ids

    def _decode(self, ids: list[int]) -> str:
        if self.tokenizer is None or not ids:
            return ""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _context(self, row: PlanRow) -> DraftContext:
        purpose = Purpose.TOKEN if self.rule == "coupled" else Purpose.DRAFT
        request = row.request
        return DraftContext(request.number, request.tokens, row.budget, request.law, request.noise, purpose)

    def _drafter_failed(self, requests: Sequence[Request], error: Exception) -> None:
        reason = f"the drafter raised {type(error).__name__}: {error}"
        failure = DrafterFailed(reason, hint="the text is the target's own; report the drafter's traceback")
        failure.__cause__ = error
        for request in requests:
            request.stop_speculating(reason, failure)

    def _publish(self, request: Request, step: Step, tokens: tuple[int, ...], hidden: dict[int, Tensor]) -> None:
        if self.drafter is not None and request.speculation.on:
            try:
                self.drafter.observe(Observation(step, tokens, hidden))
            except Exception as error:  # as in _propose
                self._drafter_failed([request], error)
        self.pacing.observe(step)
        request.record(step)
        for listener in self._listeners:
            listener(step)

    def _leave(self, request: Request) -> None:
        self.scheduler.remove(request)
        if self.drafter is not None:
            try:
                self.drafter.release(request.number)
            except Exception as error:  # as in _propose
                self._drafter_failed([request], error)

    def _end(self, request: Request) -> None:
        """Close a request between steps, with an event of its own."""
        reason: FinishReason | None = request.finish_reason
        step = Step(
            request=request.number,
            index=request.steps,
            position=len(request.tokens),
            draft=Draft(),
            path=(),
            tokens=(),
            logprobs=None,
            rows=0,
            batch=0,
            seconds=Seconds(),
            finish_reason=reason,
            speculation=request.speculation,
        )
        self._publish(request, step, (), {})
        self._leave(request)


class _Result:
    """What `_judge` found for one request."""

    __slots__ = ("logprobs", "tokens", "verdict")

    def __init__(self, verdict: Verdict, tokens: tuple[int, ...], logprobs: list[TokenLogprob] | None) -> None:
        self.verdict = verdict
        self.tokens = tokens
        self.logprobs = logprobs


class _Judged:
    """The judged rows of a forward: their laws' contexts, and each plan row's span of them."""

    __slots__ = ("rows", "spans")

    def __init__(self, rows: list[LawRow], spans: list[slice]) -> None:
        self.rows = rows
        self.spans = spans


class _Clock:
    """Splits a step's wall-clock time."""

    def __init__(self) -> None:
        self._laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> _Clock:
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now
        return self

    @property
    def seconds(self) -> Seconds:
        return Seconds(**self._laps)


def _segment(row: PlanRow, draft: Draft) -> Segment:
    return Segment(row.slot, row.feed, draft, judged=len(draft) + 1 if row.judged else 0)


def _split(plan: Plan, drafts: Sequence[Draft], logits: Tensor) -> _Judged:
    """For each judged row of the forward, the request's law state and the draft tokens above it."""
    rows: list[LawRow] = []
    spans: list[slice] = []
    for row, draft in zip(plan.rows, drafts, strict=True):
        begin = len(rows)
        if row.judged:
            state = row.request.law
            above: list[tuple[int, ...]] = [()]
            for token, parent in zip(draft.tokens, draft.parents, strict=True):
                above.append((*above[parent + 1], token))
            rows += [LawRow(state, tokens) for tokens in above]
        spans.append(slice(begin, len(rows)))
    assert not rows or len(rows) == logits.shape[0], "every judged row has logits"
    return _Judged(rows, spans)


def _checked(draft: Draft, row: PlanRow, vocab_size: int) -> Draft:
    """Hold a drafter to its contract; a breach counts as its failure."""
    if len(draft) > row.budget:
        raise ValueError(f"{len(draft)} nodes for a budget of {row.budget}")
    if any(not 0 <= token < vocab_size for token in draft.tokens):
        raise ValueError(f"a draft token is outside the vocabulary of {vocab_size}")
    if draft.q is not None and tuple(draft.q.shape) != (len(draft), vocab_size):
        raise ValueError(f"q is {tuple(draft.q.shape)}, not {(len(draft), vocab_size)}")
    return draft


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
