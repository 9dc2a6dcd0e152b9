"""A draft model whose distributions are rational numbers and whose cache holds tokens, and noise that is enumerated:
for exact distributions of drafters that run as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.drafters import Observation
from headstart.drafters.ahead import Ahead, AheadDrafter, MakeWorker
from headstart.drafters.draft_model import DraftModel
from headstart.model.cache import Slots
from headstart.model.packed import Forward, Segment
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Purpose
from headstart.rule.row import Row
from headstart.rule.verify import traverse
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step
from support.enumeration import Oracle, RandomModel

PROMPT = (0,)
MOST = 21
"""The largest denominator of a distribution of `RandomModel`."""


class TokenCache(Slots):
    """Holds tokens where others hold keys and values: what is gathered wrongly is read wrongly."""

    def __init__(self, slots: int, capacity: int) -> None:
        super().__init__(slots, capacity)
        self.stored = [[-1] * capacity for _ in range(slots)]

    def read(self, layer: int, slot: int, end: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("it has no keys")

    def _gather(self, slot: int, base: int, path: Sequence[int]) -> None:
        stored = self.stored[slot]
        stored[base : base + len(path)] = [stored[base + node] for node in path]

    def copy_from(self, other: Slots, source: int, slot: int, length: int) -> None:
        assert isinstance(other, TokenCache)
        self.stored[slot][:length] = other.stored[source][:length]


class RationalRunner:
    """Stands in for a `ModelRunner`: its distribution after a text is that of a `RandomModel`."""

    device = torch.device("cpu")
    max_length = 40
    width_invariant = True

    def __init__(self, model: RandomModel, vocab: int) -> None:
        self._model = model
        self.vocab_size = vocab

    def new_cache(self, slots: int) -> TokenCache:
        return TokenCache(slots, self.max_length)

    def weights(self) -> Iterable[Tensor]:
        return ()

    def forward(self, segments: Sequence[Segment], cache: TokenCache) -> Forward:
        rows = []
        for segment in segments:
            begin, stored, draft = cache.lengths[segment.slot], cache.stored[segment.slot], segment.draft
            first = begin + len(segment.causal)
            fed = (*segment.causal, *draft.tokens[segment.held :])
            stored[begin + segment.held : begin + segment.held + len(fed)] = fed
            texts = [tuple(stored[: begin + i + 1]) for i in range(len(segment.causal))]
            for node in range(segment.held, len(draft)):
                texts.append((*stored[:first], *(stored[first + each] for each in draft.path(node))))
            rows += [self._model(text[len(PROMPT) :]) for text in texts[-segment.judged :]]
        return Forward(torch.tensor([[float(p) for p in row] for row in rows]).log())


class EnumeratedNoise:
    """Noise of which each place is one uniform number, drawn by the oracle no further than it matters. Two
    distributions drawn from at one place are drawn from with the same number, as a wrong place would make them."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._known: dict[Any, tuple[Fraction, Fraction]] = {}

    def draw(self, distribution: Any, position: int, purpose: Purpose, lane: int = 0) -> int:
        low, high = self._known.get((position, purpose, lane), (Fraction(0), Fraction(1)))
        ends = [Fraction(0)]
        for weight in distribution:
            ends.append(ends[-1] + rational(weight))
        assert ends[-1] == 1
        cells = [(max(low, a), min(high, b)) for a, b in pairwise(ends)]
        token = self._oracle.draw([max(b - a, Fraction(0)) for a, b in cells])
        self._known[position, purpose, lane] = cells[token]
        return token


def rational(number: Any) -> Fraction:
    return number if isinstance(number, Fraction) else Fraction(float(number)).limit_denominator(MOST)


def two_rounds(
    p: RandomModel, q: RandomModel, vocab: int, worker: Callable[[], MakeWorker], seen: list[bool], **options: Any
) -> Callable[[Oracle], tuple[int, ...]]:
    """The procedure of two rounds of `Ahead`, of two draft tokens and of one, judged by traversal verification."""

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        runner: Any = RationalRunner(q, vocab)
        noise: Any = EnumeratedNoise(oracle)
        model = DraftModel(runner, name="q", vocab_size=vocab, slots=1)
        drafter = AheadDrafter(Ahead(model, always=True, **options), worker())
        drafter.attach(runner, SimpleNamespace(keeps_texts=False))  # type: ignore[arg-type]
        distribution = SamplingState(Sampling(temperature=1.0), PROMPT, vocab, frozenset())
        text = PROMPT
        for nodes in (2, 1):
            row = Row(0, text, sampling_state=distribution, noise=noise, budget=Budget(nodes))
            (draft,) = drafter.propose([row])
            drafter._work._raise()  # a question of the oracle's, which the worker would keep for the next draft
            if draft.prepared is not None and len(text) > len(PROMPT):
                seen.append(draft.prepared.hit)
            new = judged(draft, p, text[len(PROMPT) :], oracle)
            text += new
            drafter.observe(Observation(step_of(draft, new)))
        drafter.release(0)
        return text[len(PROMPT) :]

    return procedure


def judged(draft: Draft, p: RandomModel, before: tuple[int, ...], oracle: Oracle) -> tuple[int, ...]:
    """What a round emits."""
    rows = [p((*before, *(draft.tokens[each] for each in draft.path(node)))) for node in range(-1, len(draft))]
    distributions = (
        [] if draft.q is None else [np.array([rational(x) for x in row], dtype=object) for row in draft.q.tolist()]
    )
    verdict = traverse(
        draft, rows, distributions,
        lambda chance, _: oracle.uniform(chance),
        lambda distribution, _: oracle.draw(distribution),
    )  # fmt: skip
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


def step_of(draft: Draft, tokens: tuple[int, ...]) -> Step:
    return Step(
        request=0, index=0, position=0, draft=draft, path=(), tokens=tokens, logprobs=None, rows=0, batch=1,
        seconds=Seconds(), finish_reason=None, speculation=Speculation(True, "q"),
    )  # fmt: skip
