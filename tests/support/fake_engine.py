"""A fake engine for the tests of the command line: instant, and it remembers what it was asked.

The test at the end holds it to the real engine's interface.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import headstart
from headstart.base.errors import HeadstartError
from headstart.types import Chunk, Draft, Output, Sampling, Seconds, Speculation, Stats, Step, TokenLogprob

SECONDS = Seconds(plan=0.05, draft=0.1, verify=0.6, sample=0.1, commit=0.1)


class FakeTokenizer:
    """One token per character."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


@dataclass
class FakeRequest:
    prompt: tuple[int, ...]
    sampling: Sampling
    reply: str
    speculating: bool
    error: HeadstartError | None = None
    steps: list[Step] = field(default_factory=list)
    chunks: deque[Chunk] = field(default_factory=deque)
    finish_reason: Any = None

    def finish(self) -> Output:
        tokens = tuple(token for step in self.steps for token in step.tokens)
        accepted = sum(step.accepted for step in self.steps)
        stats = Stats(
            tokens=len(tokens),
            prompt_tokens=len(self.prompt),
            target_forwards=len(self.steps),
            prefill_forwards=0,
            drafted=sum(len(step.draft) for step in self.steps),
            accepted=accepted,
            drafted_per_position=(len(self.steps),) if self.speculating else (),
            accepted_per_position=(accepted,) if self.speculating else (),
            seconds=SECONDS,
            seconds_to_first_token=0.25,
            total_seconds=1.0,
            speculation=Speculation(self.speculating, "fake" if self.speculating else "none", reason="as asked"),
        )
        logprobs = tuple(TokenLogprob(token, -0.5, {token: -0.5, 0: -1.5}) for token in tokens)
        return Output(
            text="".join(map(chr, tokens)),
            tokens=tokens,
            finish_reason=self.finish_reason,
            logprobs=None if self.sampling.logprobs is None else logprobs,
            stats=stats,
            prompt_tokens=self.prompt,
            seed=self.sampling.seed or 0,
            error=self.error,
        )


class FakeEngine:
    """Answers every prompt with `reply`, two characters a step (one of them guessed), or one a step if plain."""

    width_invariant = False
    reason = "asked for"

    def __init__(self, reply: str = " hello", *, speculating: bool = True, dtype: str = "float32") -> None:
        self.reply = reply
        self.speculating = speculating
        self.dtype = dtype
        self.plain_reply = reply
        self.tokenizer = FakeTokenizer()
        self.loaded_with: dict[str, Any] = {}
        self.requests: list[FakeRequest] = []
        self.fail_at_step: BaseException | None = None
        self.refuse: HeadstartError | None = None
        self.spoil: dict[int, HeadstartError] = {}
        self._listeners: list[Callable[[Step], None]] = []

    def load(self, *args: Any, **kwargs: Any) -> FakeEngine:
        """Stands in for `headstart.load`; binds the arguments as the real one would."""
        names = ("target", "drafter", "device", "dtype", "quantize", "rule")
        self.loaded_with = dict(zip(names, args, strict=False)) | kwargs
        return self

    def submit(self, prompt: Any, sampling: Sampling) -> FakeRequest:
        if self.refuse is not None:
            raise self.refuse
        ids = tuple(map(ord, prompt)) if isinstance(prompt, str) else tuple(prompt)
        error = self.spoil.get(len(self.requests))
        reply = "" if error else self.reply[: sampling.max_tokens]
        self.requests.append(FakeRequest(ids, sampling, reply, self.speculating, error))
        return self.requests[-1]

    def step(self) -> list[Step]:
        steps = []
        for number, request in enumerate(self.requests):
            if request.finish_reason is None:
                if request.steps and self.fail_at_step is not None:
                    raise self.fail_at_step
                steps.append(self._advance(number, request))
        return steps

    def _advance(self, number: int, request: FakeRequest) -> Step:
        done = sum(len(step.tokens) for step in request.steps)
        text = request.reply[done : done + 1 + self.speculating]
        if request.error is not None:
            request.finish_reason = "error"
        elif done + len(text) >= len(request.reply):
            request.finish_reason = "length"
        tokens = tuple(map(ord, text))
        step = Step(
            request=number,
            index=len(request.steps),
            position=len(request.prompt) + done,
            draft=Draft.chain(tokens[:1]) if self.speculating else Draft(),
            path=(0,) if self.speculating and tokens else (),
            tokens=tokens,
            logprobs=None,
            rows=2,
            batch=1,
            seconds=SECONDS,
            finish_reason=request.finish_reason,
            speculation=Speculation(self.speculating, "fake"),
        )
        request.steps.append(step)
        request.chunks.append(Chunk(text, tokens, step))
        for listener in self._listeners:
            listener(step)
        return step

    def cancel(self, request: FakeRequest) -> None:
        request.finish_reason = request.finish_reason or "cancelled"

    def generate(self, prompts: Any, sampling: Sampling) -> Any:
        if isinstance(prompts, list) and not isinstance(prompts[0], int):
            return [self.generate(each, sampling) for each in prompts]
        request = self.submit(prompts, sampling)
        while request.finish_reason is None:
            self.step()
        return request.finish()

    def subscribe(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def plain(self) -> FakeEngine:
        return FakeEngine(self.plain_reply, speculating=False, dtype=self.dtype)

    def describe(self) -> dict[str, Any]:
        return {
            "target": "fake-target",
            "drafter": "fake",
            "dtype": self.dtype,
            "device": "cpu",
            "threads": 2,
            "width_invariant": self.width_invariant,
        }


def test_the_fake_has_the_interface_of_the_real_engine() -> None:
    for name in ("submit", "step", "cancel", "generate", "subscribe", "plain", "describe"):
        real, fake = (list(inspect.signature(getattr(c, name)).parameters) for c in (headstart.Engine, FakeEngine))
        assert real == fake, name
