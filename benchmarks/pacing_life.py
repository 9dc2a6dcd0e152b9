"""Who takes part in `pacing.py`: engines that share one target, and drafters that are bad in a known way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.drafters import Drafter, Row
from headstart.drafters.draft_model import DraftModel
from headstart.loading.assembly import assemble
from headstart.model.kept.config import real
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.pacing import Pacing, Plan
from headstart.types import Budget, Draft, Step

STRETCH = 100
GOOD = 0.95
PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch, completed: new tokens, wall-clock seconds, target forwards, draft tokens."""

    tokens: int
    seconds: float
    forwards: int
    drafted: int
    texts: tuple[tuple[int, ...], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine with a name."""

    name: str
    engine: hs.Engine

    def complete(self, prompts: Sequence[list[int]], new_tokens: int) -> Sample:
        sampling = hs.Sampling(max_tokens=new_tokens, ignore_eos=True)
        start = _clock(self.engine)
        outs = self.engine.generate(list(prompts), sampling)
        seconds = _clock(self.engine) - start
        for out in outs:
            if out.error is not None or out.stats.speculation.error is not None:
                raise RuntimeError(f"{self.name} did not run as asked") from (out.error or out.stats.speculation.error)
        return Sample(
            sum(len(out.tokens) for out in outs),
            seconds,
            max(out.stats.target_forwards for out in outs),
            sum(out.stats.drafted for out in outs),
            tuple(out.tokens for out in outs),
            outs[0].stats.speculation.reason,
        )


def _clock(engine: hs.Engine) -> float:
    if engine.target.device.type == "cuda":
        torch.cuda.synchronize(engine.target.device)
    return time.perf_counter()


def engine_on(target: ModelRunner, drafter: Drafter | None, pacing: Pacing | None, batch: int) -> hs.Engine:
    """An engine that shares the target's weights; without a drafter it is plain. No pacing: adaptive, measured now."""
    chosen = "adaptive" if pacing is None and drafter is not None else pacing
    return assemble(target, None, drafter, pacing=chosen, max_batch_size=batch)


def random_draft(target: ModelRunner, like: ModelRunner, slots: int) -> DraftModel:
    """The draft's architecture with weights of noise: as quick, and never right but by chance."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(real(like.config)).to(like.dtype)
    runner = ModelRunner(adopt(model.to(target.device)), max_length=target.max_length, quantize=like.quantize)
    return DraftModel(runner, name="random weights", vocab_size=target.vocab_size, slots=slots)


def own_draft(target: ModelRunner, slots: int) -> DraftModel:
    """The target drafts for itself: always right, at the price of the target."""
    return DraftModel(target, name="the target itself", vocab_size=target.vocab_size, slots=slots)


class SlowDraft(DraftModel):
    """The target drafts for itself, and reads everything twice: always right, and slower than the target."""

    def __init__(self, target: ModelRunner, slots: int) -> None:
        super().__init__(target, name="slower than the target", vocab_size=target.vocab_size, slots=slots)

    def _forward(self, feeds: Any) -> Any:
        self.runner.forward([Segment(row.slot, tuple(feed)) for row, feed in feeds], self.cache)
        return super()._forward(feeds)


class Teacher(Drafter):
    """Takes a real draft's time, but its guesses are right with probability 0.95 in every other stretch of 100 tokens
    and never in between: it knows the text."""

    def __init__(self, draft: DraftModel, vocab_size: int) -> None:
        self.name = "switching"
        self.default_budget = draft.default_budget
        self._draft = draft
        self._vocab_size = vocab_size
        self._rng = np.random.default_rng(0)
        self.prompt = 0
        self.text: Sequence[int] = ()

    @property
    def limit(self) -> int:
        return self._draft.limit

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        spent = self._draft.propose(contexts)
        return [self._replaced(c, draft) for c, draft in zip(contexts, spent, strict=True)]

    def _replaced(self, context: Row, draft: Draft) -> Draft:
        begin = len(context.tokens)
        tokens = list(self.text[begin : begin + len(draft)])
        for i in range(len(tokens)):
            good = (begin + i - self.prompt) // STRETCH % 2 == 0
            if not good or self._rng.random() > GOOD:
                tokens[i] = (tokens[i] + 1) % self._vocab_size
        return Draft.chain(tokens)

    def release(self, request: int) -> None:
        self._draft.release(request)


class StretchOracle(Pacing):
    """Knows where the guesses are right, and how many to ask for there."""

    name = "oracle"

    def __init__(self, k: int) -> None:
        self._begin: dict[int, int] = {}
        self._good, self._bad = Budget(k, f"K={k}, fixed"), Budget(0, "K=0")

    def plan(self, rows: Sequence[Row]) -> Plan:
        begins = [self._begin.setdefault(row.request, row.tokens) for row in rows]
        return Plan(
            [
                self._good if (row.tokens - begin) // STRETCH % 2 == 0 else self._bad
                for row, begin in zip(rows, begins, strict=True)
            ]
        )

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        pass

    def release(self, request: int) -> None:
        self._begin.pop(request, None)


def paired(
    contenders: Sequence[Contender],
    batches: Sequence[Sequence[list[int]]],
    new_tokens: int,
    rounds: int,
    prepare: Callable[[Sequence[list[int]]], None] = lambda _: None,
    watch: Callable[[range], Any] = iter,
) -> dict[str, list[list[Sample]]]:
    """samples[name][round][batch]; everyone takes each batch before the next, in a rotating order.

    One batch before that is not counted.
    """
    prepare(batches[0])
    for contender in contenders:
        contender.complete(batches[0], min(new_tokens, 32))
    found: dict[str, list[list[Sample]]] = {c.name: [[] for _ in range(rounds)] for c in contenders}
    for turn in watch(range(rounds * len(batches))):
        round_, number = divmod(turn, len(batches))
        prepare(batches[number])
        first = (round_ + number) % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            found[contender.name][round_].append(contender.complete(batches[number], new_tokens))
    return found
