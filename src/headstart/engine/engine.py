"""`Engine`: the public face of a target, a drafter and the requests being served. What a step does is in `loop`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, overload

import torch

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_number
from headstart.drafters import Drafter, NoDrafter, capabilities
from headstart.engine.guarded_drafter import GuardedDrafter, attach
from headstart.engine.guards import GuardedPacing, Recorder
from headstart.engine.judging import HostJudge, Judge
from headstart.engine.loop import StepLoop
from headstart.engine.prompts import Prompt, Prompts, encode_after, encode_chat, is_one, one_for_each
from headstart.engine.request import Request
from headstart.engine.scheduler import Scheduler
from headstart.engine.trace.format import TOP
from headstart.engine.trace.recording import Recording
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing, Pacing
from headstart.rule.noise import Purpose
from headstart.types import (
    Chunk,
    Drafting,
    Output,
    Rule,
    Sampling,
    Speculation,
    Step,
)


class Engine:
    """A target, a drafter, and the requests being served. Not thread-safe: one thread steps it.

    `headstart.load` and `headstart.Target.engine` make one from names; this is for parts that exist already.

    Args:
        target: the model whose distribution is kept.
        tokenizer: of transformers, or None if prompts are token ids and no text is wanted.
        drafter: guesses tokens; None is plain decoding. It is attached here, unless `cache` is given.
        rule: "exact" keeps the distribution at the highest acceptance; "coupled" also gives one text per seed, whatever
            the drafter.
        num_speculative_tokens: K, the nodes of a draft where no pacing is given; None takes the drafter's own default.
        pacing: decides how much each request drafts in each step; None always takes K.
        judge: computes distributions and applies the rule; None does so on the host.
        max_batch_size: requests that run at once; more of them wait.
        prefill_chunk: prompt tokens read per step, over all requests.
        prefix_cache: whether a slot keeps its text when its request ends, so that one that begins alike need not read
            that again. On a forward that is width-invariant no text changes by that.
        cache: of the target, with `max_batch_size` slots, to which the drafter is attached already; None makes one.
        reason: why this drafter, or why none.
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
        judge: Judge | None = None,
        max_batch_size: int = 8,
        prefill_chunk: int = 512,
        eos_token_ids: frozenset[int] = frozenset(),
        prefix_cache: bool = False,
        cache: Slots | None = None,
        target_name: str = "target",
        reason: str = "",
    ) -> None:
        check_choice("rule", rule, get_args(Rule))
        check_number("max_batch_size", max_batch_size, low=1, integer=True)
        check_number("prefill_chunk", prefill_chunk, low=1, integer=True)
        self.target = target
        self.tokenizer = tokenizer
        self.drafter: Drafter = NoDrafter() if drafter is None else drafter
        self.rule: Rule = rule
        self.target_name = target_name
        self.eos_token_ids = eos_token_ids
        self.cache = target.new_cache(max_batch_size) if cache is None else cache
        if cache is None:
            attach(self.drafter, target, self.cache)
        self._guarded = guarded = GuardedDrafter(self.drafter, target)
        self.reason = reason or ("asked for" if guarded.sources else "no drafter was asked for")
        self.cache.keeps_texts = prefix_cache
        self.scheduler = Scheduler(
            self.cache,
            prefill_chunk=prefill_chunk,
            # Under rule "coupled" a drafter that draws uses the very noise the target will use
            purpose=Purpose.TOKEN if rule == "coupled" else Purpose.DRAFT,
            # Point masses, and the noise of rule "coupled", give a seed one text whatever the drafts
            drafts_matter=rule == "exact" and guarded.draws,
            states_matter=bool(guarded.taps),
        )
        fixed = FixedPacing(guarded.default_budget if num_speculative_tokens is None else num_speculative_tokens)
        self._loop = StepLoop(
            target,
            self.cache,
            self.scheduler,
            guarded,
            GuardedPacing(fixed if pacing is None else pacing),
            HostJudge(rule) if judge is None else judge,
        )
        self._prompts = Prompts(target, tokenizer, eos_token_ids)

    # -- the public face ------------------------------------------------------------------------------------------

    @property
    def drafter_name(self) -> str:
        return self._guarded.name

    @property
    def pacing(self) -> Pacing:
        return self._loop.pacing.pacing

    @contextmanager
    def paced(self, pacing: Pacing) -> Iterator[None]:
        """Meanwhile this pacing decides how much is drafted. No request may be running."""
        if self.scheduler.requests():
            raise InvalidOption("a pacing cannot be exchanged while requests run", hint="finish or cancel them first")
        before, self._loop.pacing = self._loop.pacing, GuardedPacing(pacing)
        try:
            yield
        finally:
            self._loop.pacing = before

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt, checked as those of a request are.

        Raises:
            InvalidPrompt: it is empty, no prompt at all, or names tokens outside the vocabulary.
            ContextExceeded: it leaves no room for a new token.
        """
        return self._prompts.encode(prompt)

    def encode_after(self, prompt: Prompt, text: str) -> tuple[int, ...]:
        """The token ids of a text that a model writes after this prompt: for `Drafting.prediction`.

        Raises:
            InvalidPrompt, ContextExceeded: see `encode`.
        """
        return encode_after(self.tokenizer, self.encode(prompt), text)

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: Prompt, sampling: Sampling | None = None, drafting: Drafting | None = None
    ) -> Output: ...

    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | Sequence[Sampling] | None = None,
        drafting: Drafting | Sequence[Drafting] | None = None,
    ) -> list[Output]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: Sampling | Sequence[Sampling] | None = None,
        drafting: Drafting | Sequence[Drafting] | None = None,
    ) -> Output | list[Output]:
        """Complete one prompt, or a list of prompts as one ragged batch with one Sampling or one for each.

        A prompt is text, token ids, or a conversation (see `chat`). drafting: how it may be drafted for, once or for
        each.

        A request whose logits are not finite ends with finish_reason "error"; the others go on. Everything else
        that is wrong with a prompt raises before anything is generated.
        """
        single = is_one(prompts)
        batch: Sequence[Any] = [prompts] if single else prompts
        samplings = one_for_each(sampling, len(batch), Sampling())
        draftings = one_for_each(drafting, len(batch), Drafting())
        # All are checked before the first is queued: a mistake in one loses nothing
        requests = [self._request(*each) for each in zip(batch, samplings, draftings, strict=True)]
        self.scheduler.waiting.extend(requests)
        try:
            while any(request.finish_reason is None for request in requests):
                self.step()
        finally:
            for request in requests:
                self.cancel(request)
        outputs = [request.finish() for request in requests]
        return outputs[0] if single else outputs

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        sampling: Sampling | None = None,
        drafting: Drafting | None = None,
    ) -> Output:
        """Answer a conversation, sent through the model's chat template. `stream` takes one, too.

        messages: {"role": "user", "content": "..."}, the last one not the assistant's.

        Raises:
            InvalidPrompt: a message is malformed, or the model has no chat template.
        """
        return self.generate(encode_chat(self.tokenizer, messages), sampling, drafting)

    def stream(
        self, prompt: Prompt, sampling: Sampling | None = None, drafting: Drafting | None = None
    ) -> Iterator[Chunk]:
        """Complete one prompt, or answer a conversation, yielding each step's text as soon as it is final. Closing the
        iterator cancels."""
        return self._drain(self.submit(prompt, sampling, drafting))

    def _drain(self, request: Request) -> Iterator[Chunk]:
        try:
            while request.finish_reason is None or request.chunks:
                while request.chunks:
                    yield request.chunks.popleft()
                if request.finish_reason is None:
                    self.step()
        finally:
            self.cancel(request)

    def submit(self, prompt: Prompt, sampling: Sampling | None = None, drafting: Drafting | None = None) -> Request:
        """Queue a request; it runs as `step` is called.

        Raises:
            InvalidPrompt, ContextExceeded: see `encode`.
            InvalidOption: an option does not fit the model, or `drafting` names a source that is not there.
        """
        (one,), (drafted,) = one_for_each(sampling, 1, Sampling()), one_for_each(drafting, 1, Drafting())
        request = self._request(prompt, one, drafted)
        self.scheduler.waiting.append(request)
        return request

    def _request(self, prompt: Prompt, sampling: Sampling, drafting: Drafting) -> Request:
        return self._prompts.request(prompt, sampling, self._speculation(drafting), drafting)

    def _speculation(self, drafting: Drafting) -> Speculation:
        """How a request with these wishes begins."""
        known = self._guarded.sources
        unknown = next((name for name in drafting.sources or () if name not in known), None)
        if unknown is not None:
            raise InvalidOption(
                f"sources names {unknown!r}, and nothing here drafts by that name",
                hint=f"this engine has {', '.join(map(repr, known)) or 'no drafter'}",
            )
        name = self._guarded.name
        if not known:
            return Speculation(False, name, self.reason)
        if not drafting.enabled or drafting.max_draft_tokens == 0 or drafting.sources == ():
            return Speculation(False, name, "the request asked for no drafts")
        return Speculation(True, name)

    def step(self) -> list[Step]:
        """Advance the running requests by one target forward; returns one event for each that had a part in it."""
        return self._loop.step()

    def cancel(self, request: Request) -> None:
        """End a request where it stands, keeping what it has; nothing happens if it has ended."""
        if request.finish_reason is None:
            self._loop.end(request, "cancelled")

    def subscribe(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """Have `listener` called with every Step; returns a function that ends it."""
        return self._loop.listeners.add(listener)

    @contextmanager
    def trace(
        self, path: str | Path | None = None, *, top: int = TOP, command: str = "", note: str = ""
    ) -> Iterator[Recording]:
        """Meanwhile every step of every request is recorded, requests that run already included: what was drafted, the
        distributions p and q, the uniform draws and weights of the rule, times and budgets. No text changes by it;
        steps take longer.

            with engine.trace("run.jsonl"):
                engine.generate("def add(a, b):")

        path: the file, one JSON object a line; docs/guides/read-a-trace.md says what they hold, and
            `headstart.engine.trace.reader.read_trace` reads it. None keeps the trace in memory: the `Recording` that
            the block is given has its `lines`, its `requests`, and the whole of it from `read()`.
        top: how many of the likeliest tokens of each distribution are recorded.
        command, note: for the header of the trace.

        A request that has not ended when the block does has no last line. A recording that fails, because the disk is
        full, ends there; `Recording.failure` says why, and the requests go on.

        Raises:
            InvalidOption: the file cannot be written, or an option is out of its range.
        """
        recording = Recording(
            path,
            engine=self.describe(),
            drafters=capabilities.parts(self.drafter),
            rule=self.rule,
            tokenizer=self.tokenizer,
            top=top,
            command=command,
            note=note,
        )
        remove = self.record(recording.observe)
        try:
            yield recording
        finally:
            remove()
            recording.close()

    def record(self, recorder: Recorder) -> Callable[[], None]:
        """Have `recorder` called with what every step made of each request, and with the request; returns a function
        that ends it. It must change neither, and is called no more once it raises."""
        return self._loop.recorders.add(recorder)

    def plain(self) -> Engine:
        """A second engine on the same weights, without a drafter and with a cache of its own, to compare with."""
        return Engine(
            self.target,
            self.tokenizer,
            rule=self.rule,
            max_batch_size=len(self.cache.lengths),
            prefill_chunk=self.scheduler.prefill_chunk,
            eos_token_ids=self.eos_token_ids,
            target_name=self.target_name,
        )

    def describe(self) -> dict[str, Any]:
        """What runs here: names, rule, dtype, device, sizes. "not_guessing" says in a sentence why nothing is guessed
        now, and is None where something is, or nothing has run yet."""
        return {
            "target": self.target_name,
            "drafter": self.drafter_name,
            "chosen": self.reason,
            "rule": self.rule,
            "pacing": self.pacing.name,
            "not_guessing": self._loop.pacing.idle or None,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "quantize": self.target.quantize,
            "weights": self.target.weights_in_words,
            "drafter_weights": {
                part.name: words
                for part in capabilities.parts(self.drafter)
                if (words := capabilities.weights_in_words(part))
            },
            "decoder": self.target.decoder,
            "width_invariant": self.target.width_invariant,
            "device": str(self.target.device),
            "threads": torch.get_num_threads(),
            "vocab_size": self.target.vocab_size,
            "max_length": self.target.max_length,
            "max_batch_size": len(self.cache.lengths),
            "prefill_chunk": self.scheduler.prefill_chunk,
            "prefix_cache": self.cache.keeps_texts,
        }
