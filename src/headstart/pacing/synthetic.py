"""Target forwards and drafts for requests that do not exist, so that both can be timed before the first prompt."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice

import torch

from headstart.base.errors import CONTAINED
from headstart.drafters import Drafter, Observation, Row, capabilities
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.pacing.constants import LONG_DRAFT, MOST_REQUESTS, TEXT_TOKENS
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step


class SyntheticForwards:
    """Target forwards on slots that hold a short text meanwhile.

    All tokens are other ones, in every slot and in every run: rows that are alike meet the same experts of a mixture,
    and those that a run has just read lie in the processor's cache.
    """

    def __init__(self, target: ModelRunner, cache: Slots, requests: int, text: int = TEXT_TOKENS) -> None:
        """text: tokens of the text that each slot holds."""
        self._target = target
        self._prefix = min(text, target.max_length // 2)
        self._cache = cache
        self.slots = [cache.acquire() for _ in range(requests)]
        self._tokens = varied_tokens(target.vocab_size, target.media_tokens)
        for slot in self.slots:
            target.forward([Segment(slot, self._next(self._prefix))], cache)
            cache.keep(slot, self._prefix)

    def run(self, requests: int, rows: int) -> None:
        room = min(self._target.max_length - self._prefix, self._cache.most_drafted + 1)
        guesses = min(rows, room) - 1
        segments = [
            Segment(slot, self._next(1), Draft.chain(self._next(guesses)), judged=guesses + 1)
            for slot in self.slots[:requests]
        ]
        logits = self._target.forward(segments, self._cache).logits
        logits.argmax(-1).cpu()  # as a greedy step looks at them, and so that a GPU has finished

    def _next(self, count: int) -> tuple[int, ...]:
        return tuple(islice(self._tokens, count))

    def experts(self, rows: int) -> int | None:
        """How many experts a forward of so many rows meets, all layers together; None where nothing counts them."""
        self.run(1, rows)
        return self._target.experts_touched

    @contextmanager
    def holding(self, lengths: Sequence[int]) -> Iterator[None]:
        """Meanwhile the first slots count as holding so many tokens, for drafters that draft on the target's cache."""
        for slot, length in zip(self.slots, lengths, strict=False):
            self._cache.pretend(slot, min(length, self._cache.capacity - 1))
        try:
            yield
        finally:
            for slot in self.slots:
                self._cache.pretend(slot, self._prefix)

    def seconds(self, rows: int) -> float:
        start = time.perf_counter()
        self.run(1, rows)
        return time.perf_counter() - start

    def release(self) -> None:
        for slot in self.slots:
            self._cache.release(slot)


class SyntheticDrafts:
    """Drafts of one drafter for requests that do not exist. Numbers below zero are nobody else's."""

    def __init__(self, drafter: Drafter, target: ModelRunner, index: int, forwards: SyntheticForwards) -> None:
        self._drafter = drafter
        self._forwards = forwards
        self._target = target
        self._vocab_size = target.vocab_size
        self._first = -1 - MOST_REQUESTS * index
        self._lengths: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    def run(self, requests: int, nodes: int, *, drawn: bool = False) -> None:
        """The next round of each, two tokens further on in its text, as after an accepted guess."""
        numbers = range(self._first, self._first - requests, -1)
        contexts = [self._context(number, nodes, drawn=drawn) for number in numbers]
        with self._forwards.holding([len(context.tokens) - 1 for context in contexts]):
            self._drafter.propose(contexts)

    def read(self) -> None:
        """The first round of a request: its whole text is new."""
        self.release()
        self._lengths[self._first] = TEXT_TOKENS
        context = self._context(self._first, 1)
        with self._forwards.holding([len(context.tokens) - 1]):
            self._drafter.propose([context])
        self.release()

    def _context(self, number: int, nodes: int, *, drawn: bool = False) -> Row:
        length = self._lengths[number] = self._lengths.get(number, TEXT_TOKENS) + 2
        tokens = synthetic_text(length, self._vocab_size)
        sampling = Sampling(temperature=1.0 if drawn else 0.0)
        state = SamplingState(sampling, (), self._vocab_size, frozenset())
        slot = self._forwards.slots[self._first - number]
        if capabilities.taps(self._drafter):
            self._show(number, tokens)
        return Row(number, tuple(tokens), state, Noise(0), slot=slot, budget=Budget(nodes))

    def _show(self, number: int, tokens: Sequence[int]) -> None:
        """What a step would have shown of the text since the last round, with made-up hidden states."""
        new = tuple(tokens[self._shown.get(number, 0) : -1])
        self._shown[number] = len(tokens) - 1
        width = self._target.config.get_text_config().hidden_size
        states = torch.ones(len(new), width, dtype=self._target.dtype, device=self._target.device)
        step = Step(
            number, 0, len(tokens), Draft(), (), (), None, len(new), 1, Seconds(), None, Speculation(True, "measured")
        )
        start = len(tokens) - 1 - len(new)
        self._drafter.observe(Observation(step, new, start, dict.fromkeys(capabilities.taps(self._drafter), states)))

    def release(self) -> None:
        """Let all requests go; the next round begins new ones."""
        for number in self._lengths:
            with suppress(*CONTAINED):  # a drafter's, whatever it is: the engine will find it out
                self._drafter.release(number)
        self._lengths.clear()
        self._shown.clear()


def varied_tokens(vocab_size: int, without: Collection[int] = ()) -> Iterator[int]:
    """Tokens from all over a vocabulary, the same ones each time: equal steps around it, which come back to none before
    all were met. without: those that no text may hold."""
    step = max(1, round(vocab_size / math.e))
    while math.gcd(step, vocab_size) > 1:
        step += 1
    return (token for i in count(1) if (token := i * step % vocab_size) not in without)


def synthetic_text(length: int, vocab_size: int) -> list[int]:
    """A text that repeats itself, so that every kind of drafter has something to say."""
    return [i % (LONG_DRAFT + 1) % vocab_size for i in range(length)]
