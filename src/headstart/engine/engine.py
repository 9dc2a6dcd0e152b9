"""`Engine`: the public face of a target, a drafter and the requests being served. What a step does is in `loop`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from headstart.base.errors import InvalidOption
from headstart.drafters import capabilities
from headstart.engine.chunks import Chunks
from headstart.engine.guards import GuardedPacing
from headstart.engine.intake import Intake, is_one
from headstart.engine.loop import StepLoop
from headstart.engine.parts import EngineParts
from headstart.engine.prompts import Prompt, encode_after, encode_chat
from headstart.engine.scheduler import Scheduler
from headstart.types import (
    Chunk,
    Drafting,
    EngineRule,
    Output,
    Rule,
    Sampling,
    Step,
    Structure,
)

if TYPE_CHECKING:
    from headstart.drafters import Drafter
    from headstart.engine.guards import Recorder
    from headstart.engine.judging import Judge
    from headstart.engine.request import Request
    from headstart.engine.scheduler import SlotView
    from headstart.engine.trace.recording import Recording
    from headstart.pacing import Pacing
    from headstart.rule.row import Row


class Engine:
    """Generates text with a target and a drafter. `headstart.load` and `headstart.Target.engine` make one.

    An engine is not thread-safe: one thread uses it at a time.

    Examples:
        >>> import headstart as hs
        >>> engine = hs.load("bundled", "ngram", dtype="float32")
        >>> outputs = engine.generate(["def add(a, b):", "class Stack:"], hs.Sampling(max_tokens=8))
        >>> [len(each.tokens) for each in outputs]
        [8, 8]
        >>> engine.describe()["drafter"]
        'ngram'
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self.target = parts.target
        self.tokenizer = parts.tokenizer
        self.drafter: Drafter = parts.drafter.drafter
        self.rule: EngineRule = parts.rule
        self.target_name = parts.target_name
        self.eos_token_ids = parts.eos_token_ids
        self.cache = parts.cache
        self.reason = parts.reason
        self._guarded = guarded = parts.drafter
        self.scheduler = Scheduler(
            self.cache,
            chunks=Chunks(parts.prefill_chunk, bounded=parts.target.width_invariant),
            drafts_matter=guarded.draws,
            states_matter=bool(guarded.taps),
        )
        pacing = GuardedPacing(parts.pacing)
        self._loop = StepLoop(self.target, self.cache, self.scheduler, guarded, pacing, parts.judge)
        self._intake = Intake(parts)

    # -- the public face ------------------------------------------------------------------------------------------

    @property
    def drafter_name(self) -> str:
        """The name of the drafter, such as "ngram + eagle3"."""
        return self._guarded.name

    @property
    def pacing(self) -> Pacing:
        """What decides how much is drafted in each step."""
        return self._loop.pacing.pacing

    @property
    def max_batch_size(self) -> int:
        """Requests that run at once: the slots of the cache."""
        return len(self.cache.lengths)

    @property
    def free_slots(self) -> int:
        """How many more requests could run now."""
        return self.cache.free_slots

    @property
    def waiting(self) -> Collection[Request]:
        """Requests without a slot, in order of arrival."""
        return self.scheduler.waiting

    @property
    def running(self) -> Sequence[Request]:
        """Requests with a slot, in order of admission."""
        return tuple(self.scheduler.running)

    def slots(self) -> Sequence[SlotView]:
        """What every slot holds, and who runs there; see `Scheduler.slots`."""
        return self.scheduler.slots()

    def forget_texts(self) -> bool:
        """Empty all slots, after a step that failed for example. False where a request has one still."""
        return self.scheduler.forget_texts()

    @contextmanager
    def paced(self, pacing: Pacing) -> Iterator[None]:
        """Meanwhile this pacing decides how much is drafted. No request may be running."""
        self._check_idle("a pacing")
        before, self._loop.pacing = self._loop.pacing, GuardedPacing(pacing)
        try:
            yield
        finally:
            self._loop.pacing = before

    @contextmanager
    def judged(self, by: Callable[[Judge], Judge]) -> Iterator[None]:
        """Meanwhile another judge decides which guesses are kept, made of the engine's own. No request may be running.
        Text is the target's only where the judge keeps to the rule."""
        self._check_idle("a judge")
        before = self._loop.judge
        self._loop.judge = by(before)
        try:
            yield
        finally:
            self._loop.judge = before

    @contextmanager
    def ruled(self, by: Callable[[Sampling], Rule]) -> Iterator[None]:
        """Meanwhile `by` says what each new request is judged by, in place of the engine's own rule. No request may be
        running."""
        self._check_idle("a rule")
        before, self._intake.rule_of = self._intake.rule_of, by
        try:
            yield
        finally:
            self._intake.rule_of = before

    def _check_idle(self, what: str) -> None:
        if self.scheduler.requests():
            raise InvalidOption(f"{what} cannot be exchanged while requests run", hint="finish or cancel them first")

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt, checked as those of a request are.

        Args:
            prompt: text, token ids, or a conversation.

        Raises:
            InvalidPrompt: it is empty, no prompt at all, or names tokens outside the vocabulary.
            ContextExceeded: it leaves no room for a new token.
        """
        return self._intake.encode(prompt)

    def prepare(self, structure: Structure) -> None:
        """Compile a grammar now, so that the request that follows it does not wait for that. Any thread may call it.

        Raises:
            InvalidGrammar: it has an error, is too costly, or nothing can be written by it.
            InvalidOption: llguidance is not installed, or cannot read this model's tokenizer.
        """
        self._intake.prepare(structure)

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
        """Continue one prompt, or a list of prompts together as one batch.

        Args:
            prompts: a prompt, or a list of prompts. A prompt is text, token ids, or a conversation (see `chat`).
            sampling: how tokens are drawn: one `Sampling` for all, or one for each prompt. Default: greedy, 256 tokens.
            drafting: how drafts may be made, once or for each prompt. Default: by the engine's drafter and pacing.

        Returns:
            An `Output` for one prompt, and a list of them, in order, for a list. A request whose logits are not finite
            has the finish_reason "error"; the others are not affected.

        Raises:
            InvalidPrompt: a prompt is empty, no prompt at all, or names tokens outside the vocabulary.
            ContextExceeded: a prompt leaves no space in the context for a new token.
            InvalidOption: an option does not go with the model.

        Nothing is generated where one of these is raised.

        Examples:
            >>> import headstart as hs
            >>> engine = hs.load("bundled", "ngram", dtype="float32")
            >>> out = engine.generate("def add(a, b):", hs.Sampling(max_tokens=16))
            >>> out.finish_reason, len(out.tokens), out.stats.tokens_per_forward >= 1
            ('length', 16, True)
        """
        single = is_one(prompts)
        batch: Sequence[Any] = [prompts] if single else prompts
        # All are checked before the first is queued: a mistake in one loses nothing
        requests = self._intake.requests(batch, sampling, drafting)
        self.scheduler.waiting.extend(requests)
        by_number = {request.number: request for request in requests}
        try:
            for request in requests:
                while request.finish_reason is None:
                    for step in self.step():  # not all requests in every step: there may be thousands
                        if step.request in by_number:
                            # Nobody reads them, and they hold the distributions of every draft
                            by_number[step.request].chunks.clear()
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
        """Answer a conversation, which goes through the model's chat template. `stream` takes one, too.

        Args:
            messages: dictionaries such as {"role": "user", "content": "Hi"}; the last one is not the assistant's.
            sampling: how tokens are drawn. Default: greedy, 256 tokens.
            drafting: how drafts may be made.

        Returns:
            The answer.

        Raises:
            InvalidPrompt: a message is malformed, or the model has no chat template.
            ContextExceeded: the conversation leaves no space in the context for a new token.

        Examples:
            >>> import headstart as hs
            >>> engine = hs.load("path/to/chat-model")
            >>> answer = engine.chat([{"role": "user", "content": "Why is the sky blue?"}], hs.Sampling(max_tokens=8))
            >>> len(answer.tokens)
            8
        """
        return self.generate(encode_chat(self.tokenizer, messages), sampling, drafting)

    def stream(
        self, prompt: Prompt, sampling: Sampling | None = None, drafting: Drafting | None = None
    ) -> Iterator[Chunk]:
        """Continue one prompt, or answer a conversation, and yield the text of each step as soon as it is final.

        Args:
            prompt: text, token ids, or a conversation.
            sampling: how tokens are drawn. Default: greedy, 256 tokens.
            drafting: how drafts may be made.

        Returns:
            An iterator over chunks. Closing it cancels the request.

        Raises:
            InvalidPrompt, ContextExceeded, InvalidOption: see `generate`.

        Examples:
            >>> import headstart as hs
            >>> engine = hs.load("bundled", "ngram", dtype="float32")
            >>> sampling = hs.Sampling(max_tokens=16)
            >>> text = "".join(chunk.text for chunk in engine.stream("class Stack:", sampling))
            >>> text == engine.generate("class Stack:", sampling).text
            True
        """
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
        (request,) = self._intake.requests([prompt], sampling, drafting)
        self.scheduler.waiting.append(request)
        return request

    def step(self) -> list[Step]:
        """Advance the running requests by one target forward; returns one event for each that had a part in it."""
        return self._loop.step()

    def time_plain_step(self) -> tuple[Sequence[Row], float] | None:
        """Between two steps: run one without drafts and keep nothing of it; no text and no later step changes by that.
        Returns its rows, and the seconds of its forward and its sampling. None where nothing runs, a prompt is being
        read, or a drafter works beside the target, which would make a plain step look slower than it is."""
        beside = any(capabilities.in_turn(part) is not part for part in capabilities.parts(self.drafter))
        return None if beside else self._loop.time_plain_step()

    def cancel(self, request: Request) -> None:
        """End a request now, keeping what it has; nothing happens if it has ended."""
        if request.finish_reason is None:
            self._loop.end(request, "cancelled")

    def subscribe(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """Have `listener` called with every Step; returns a function that ends it."""
        return self._loop.listeners.add(listener)

    def trace(
        self, path: str | Path | None = None, *, top: int | None = None, command: str = "", note: str = ""
    ) -> AbstractContextManager[Recording]:
        """Meanwhile every step of every request is recorded, requests that run already included: what was drafted, the
        distributions p and q, the uniform draws and weights of the rule, times and budgets. No text changes by it;
        steps take longer.

            with engine.trace("run.jsonl"):
                engine.generate("def add(a, b):")

        path: the file, one JSON object a line; docs/guides/read-a-trace.md says what they hold, and
            `headstart.engine.trace.reader.read_trace` reads it. None keeps the trace in memory: the `Recording` that
            the block is given has its `lines`, its `requests`, and the whole of it from `read()`.
        top: how many of the likeliest tokens of each distribution are recorded; None is 8.
        command, note: for the header of the trace.

        A request that has not ended when the block does has no last line. A recording that fails, because the disk is
        full, ends there; `Recording.failure` says why, and the requests go on.

        Raises:
            InvalidOption: the file cannot be written, or an option is out of its range.
        """
        return self._parts.traced(self, path, top=top, command=command, note=note)

    def record(self, recorder: Recorder) -> Callable[[], None]:
        """Call `recorder` after every step, with what the step made of each request, and with the request. It must not
        modify its arguments; if it raises, it is removed. Returns a function that removes it."""
        return self._loop.recorders.add(recorder)

    def plain(self) -> Engine:
        """A second engine on the same weights, without a drafter and with a cache of its own, to compare with."""
        return self._parts.plain()

    def describe(self) -> dict[str, Any]:
        """What runs here: the names of target and drafter and why they were chosen, rule, dtype, device and sizes.

        "not_guessing" says in a sentence why nothing is guessed now. It is None where something is guessed, or nothing
        has run yet. "spelling" is the default of grammars.
        """
        return {**self._parts.describe(self._loop.pacing), "spelling": self._intake.spelling}
