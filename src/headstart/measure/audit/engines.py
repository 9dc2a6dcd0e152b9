"""headstart's own engines as the subject of an audit, and their weights as its reference.

The reference reads a whole text in one forward, so that every position's distribution is the target's, whatever was
drafted there; the processors see at each position exactly the tokens before it. Nothing of drafting or the rule is
involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from headstart.base.errors import ContextExceeded
from headstart.drafters.draft_model import DraftModel
from headstart.engine.engine import Engine
from headstart.measure.audit.subject import Ask, Completion, Distribution
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.noise import Noise, Purpose
from headstart.types import Output, Sampling

CHUNK = 512
"""Tokens of a prompt read per forward."""


class EngineSubject:
    """An `Engine` as the subject. Completion i has the i-th seed of a sequence that `seed` begins; no two are alike."""

    def __init__(self, engine: Engine, *, seed: int = 0, name: str = "") -> None:
        self._engine = engine
        self._seeds = Noise(seed)
        self._drawn = 0
        self.name = name or f"{engine.target_name} with drafter {engine.drafter_name}"

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
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

    def seeded(self, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """One completion with `sampling.seed` as it is.

        Raises:
            NonFiniteLogits: the request ended with an error.
        """
        return _completion(self._engine.generate(list(prompt), sampling))

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
    """The distribution of one model, by teacher forcing. The same prompt twice in a row is read once.

    vocab_size: width of the distributions, if it is not the model's own; tokens beyond the model's have probability 0.
    """

    def __init__(self, runner: ModelRunner, eos_token_ids: frozenset[int], *, name: str, vocab_size: int = 0) -> None:
        self._runner = runner
        self._eos = eos_token_ids
        self._name = name
        self._vocab_size = vocab_size or runner.vocab_size
        self._cache = runner.new_cache(1)
        self._slot = self._cache.acquire()
        self._read: tuple[int, ...] = ()

    @classmethod
    def of(cls, engine: Engine) -> EngineReference:
        """The engine's own target."""
        return cls(engine.target, engine.eos_token_ids, name=engine.target_name)

    @classmethod
    def of_draft(cls, engine: Engine) -> EngineReference | None:
        """The distribution q of the engine's draft tokens, where its drafter is a draft LM that shares the target's
        tokens."""
        drafter = engine.drafter
        if type(drafter) is not DraftModel:
            return None
        return cls(drafter.runner, engine.eos_token_ids, name=drafter.name, vocab_size=engine.target.vocab_size)

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._eos)

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Distribution:
        """[n + 1, V] float32.

        Raises:
            ContextExceeded: prompt and tokens do not fit into the model's context.
        """
        logits = self.logits(prompt, tokens)
        state = SamplingState(sampling, prompt, self._vocab_size, self.stop_ids(sampling))
        rows = [SamplingRow(state, tuple(tokens[:i])) for i in range(len(tokens) + 1)]
        found: Distribution = distribution(logits, rows).cpu().numpy()
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

    def logits(self, prompt: Sequence[int], tokens: Sequence[int], width: int = 0) -> torch.Tensor:
        """[n + 1, V] float32: the rows after the prompt and after each token, `width` of them per forward (0: all).

        Raises:
            ContextExceeded: prompt and tokens do not fit into the model's context.
        """
        if len(prompt) + len(tokens) > self._runner.max_length:
            raise ContextExceeded(
                f"{len(prompt) + len(tokens)} tokens do not fit into the reference's {self._runner.max_length}",
                hint="use shorter prompts or completions",
            )
        self._read_prompt(tuple(prompt[:-1]))
        feed = (prompt[-1], *tokens)
        step = width or len(feed)
        parts = []
        for begin in range(0, len(feed), step):
            part = feed[begin : begin + step]
            rows = self._runner.forward([Segment(self._slot, part, judged=len(part))], self._cache).logits
            parts.append(rows.float().clone())  # the next forward may write where these stand
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
