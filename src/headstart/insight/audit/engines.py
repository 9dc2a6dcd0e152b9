"""headstart's own engines as the subject of an audit, and their weights as its reference.

The reference reads a whole text in one forward, so that every position's law is the target's, whatever was drafted
there; the processors see at each position exactly what stood before it. Nothing of drafting or the rule is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from headstart.drafters.draft_model import DraftModel
from headstart.engine.engine import Engine
from headstart.errors import ContextExceeded
from headstart.insight.audit.subject import Ask, Completion, Law, Reference
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.law import LawRow, LawState, law
from headstart.rule.noise import Noise, Purpose
from headstart.types import Output, Sampling

CHUNK = 512
"""Tokens of a prompt read per forward."""


class EngineSubject:
    """Any `Engine`. Completion i of an audit has the i-th seed of a sequence that `seed` begins; no two are alike."""

    def __init__(self, engine: Engine, *, seed: int = 0, name: str = "") -> None:
        self._engine = engine
        self._seeds = Noise(seed)
        self._drawn = 0
        self.name = name or f"{engine.target_name} with drafter {engine.drafter_name}"

    def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
        return self.sample_batch([Ask(tuple(prompt), sampling)] * count)

    def sample_batch(self, asks: Sequence[Ask]) -> list[Completion]:
        """Requests in one ragged batch, the neighbours changing as they end.

        Raises:
            NonFiniteLogits: a request ended with an error.
        """
        if not asks:
            return []
        outputs = self._engine.generate(
            [list(ask.prompt) for ask in asks], [replace(ask.sampling, seed=self._next_seed()) for ask in asks]
        )
        return [_completion(output) for output in outputs]

    def describe(self) -> dict[str, Any]:
        return {"kind": "engine", "name": self.name, **self._engine.describe()}

    def _next_seed(self) -> int:
        self._drawn += 1
        return int(self._seeds.uniform(self._drawn, Purpose.TOKEN) * 2**53)


def _completion(output: Output) -> Completion:
    if output.error is not None:
        raise output.error
    return Completion(output.tokens, output.finish_reason, output.text, output.logprobs)


class EngineReference:
    """The law of one model, by teacher forcing. A prompt that is asked about again is not read again.

    vocab_size: width of the laws, if not the model's own. rows: tokens of a text per forward, all of them if None; how
    far laws move with it is numeric noise (see `numeric_noise`).
    """

    def __init__(
        self,
        runner: ModelRunner,
        eos_token_ids: frozenset[int],
        *,
        name: str,
        vocab_size: int = 0,
        rows: int | None = None,
    ) -> None:
        self._runner = runner
        self._rows = rows
        self._eos = eos_token_ids
        self._name = name
        self._vocab_size = vocab_size or runner.vocab_size
        self._cache = runner.new_cache(1)
        self._slot = self._cache.acquire()
        self._read: tuple[int, ...] = ()

    @classmethod
    def of(cls, engine: Engine, *, rows: int | None = None) -> EngineReference:
        """The engine's own target."""
        return cls(engine.target, engine.eos_token_ids, name=engine.target_name, rows=rows)

    @classmethod
    def of_draft(cls, engine: Engine) -> EngineReference | None:
        """The law q of the engine's guesses, where its drafter is a draft LM that shares the target's tokens."""
        drafter = engine.drafter
        if type(drafter) is not DraftModel:
            return None
        return cls(drafter.runner, engine.eos_token_ids, name=drafter.name, vocab_size=engine.target.vocab_size)

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._eos)

    def laws(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Law:
        """[n + 1, V] float32.

        Raises:
            ContextExceeded: prompt and tokens do not fit into the model's context.
        """
        logits = self._logits(tuple(prompt), tuple(tokens))
        state = LawState(sampling, prompt, self._vocab_size, self.stop_ids(sampling))
        rows = [LawRow(state, tuple(tokens[:i])) for i in range(len(tokens) + 1)]
        found: Law = law(logits, rows).cpu().numpy()
        return found

    def describe(self) -> dict[str, Any]:
        runner = self._runner
        return {
            "kind": "weights",
            "name": self._name,
            "dtype": str(runner.dtype).removeprefix("torch."),
            "quantize": runner.quantize,
            "decoder": runner.decoder,
            "device": str(runner.device),
        }

    def _logits(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
        if len(prompt) + len(tokens) > self._runner.max_length:
            raise ContextExceeded(
                f"{len(prompt) + len(tokens)} tokens do not fit into the reference's {self._runner.max_length}",
                hint="use shorter prompts or completions",
            )
        self._read_prompt(prompt[:-1])
        feed = (prompt[-1], *tokens)
        step = self._rows or len(feed)
        parts = []
        for begin in range(0, len(feed), step):
            part = feed[begin : begin + step]
            parts.append(self._runner.forward([Segment(self._slot, part, judged=len(part))], self._cache).logits)
            self._cache.keep(self._slot, len(part))
        self._cache.rewind(self._slot, len(prompt) - 1)
        logits = torch.cat(parts)
        missing = self._vocab_size - logits.shape[-1]
        return F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:, : self._vocab_size]

    def _read_prompt(self, prompt: tuple[int, ...]) -> None:
        """Have the slot hold exactly these tokens."""
        if prompt == self._read:
            return
        self._cache.rewind(self._slot, 0)
        for begin in range(0, len(prompt), CHUNK):
            chunk = prompt[begin : begin + CHUNK]
            self._runner.forward([Segment(self._slot, chunk)], self._cache)
            self._cache.keep(self._slot, len(chunk))
        self._read = prompt


def numeric_noise(first: Reference, second: Reference, texts: Sequence[tuple[Ask, Sequence[int]]]) -> float:
    """The largest total variation between two references' laws at any position of these texts: what a tolerance has to
    cover. For references of the same weights it is the noise of arithmetic."""
    largest = 0.0
    for ask, tokens in texts:
        laws = [reference.laws(ask.prompt, tokens, ask.sampling) for reference in (first, second)]
        largest = max(largest, float(np.abs(laws[0] - laws[1]).sum(-1).max() / 2))
    return largest
