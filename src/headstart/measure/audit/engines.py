"""headstart's own engines as the subject of an audit, and their weights as its reference.

The reference reads a whole text in one forward, so that every position's distribution is the target's, whatever was
drafted there; the processors see at each position exactly the tokens before it. Nothing of drafting or the rule is
involved.

How far rounding moves logits here distinguishes a near-tie from a bug, and noise from a wrong distribution. The same
rows are computed again in another way, and what changes is the measure. For headstart's own engine the other way is
another width of the forward, which is what speculation changes (its row kernels change nothing at all). For another
engine it is also another implementation of the same weights: transformers' own modules in that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import ContextExceeded
from headstart.drafters.draft_model import DraftModel
from headstart.engine.engine import Engine
from headstart.measure.audit.subject import Ask, Completion, Distribution
from headstart.model.loading import load_config, read_model, resolve
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.noise import Noise, Purpose
from headstart.types import Output, Rule, Sampling

CHUNK = 512
"""Tokens of a prompt read per forward."""
_SEEDS = 2**53
"""How many seeds there are for completions."""


class EngineSubject:
    """An `Engine` as the subject. Completion i has the i-th seed of a sequence that `seed` begins; no two are alike.

    An engine of rule "auto" judges requests with a seed and without by two rules. There a completion's seed decides its
    rule, so that about half are judged by each, and all of them are functions of `seed`."""

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
        prompts = [list(ask.prompt) for ask in asks]
        samplings = [replace(ask.sampling, seed=self._next_seed()) for ask in asks]
        with self._engine.ruled(_rule_of) if self._engine.rule == "auto" else nullcontext():
            outputs = self._engine.generate(prompts, samplings)
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
        return int(self._seeds.uniform(self._drawn, Purpose.TOKEN) * _SEEDS)


def _rule_of(sampling: Sampling) -> Rule:
    assert sampling.seed is not None, "every completion has one"
    return "coupled" if sampling.seed >= _SEEDS // 2 and not sampling.greedy else "exact"


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
        self._cache.keeps_texts = True  # a recurrent state is kept near the end of the prompt, which is gone back to
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
            "kv_cache_dtype": str(runner.cache_dtype).removeprefix("torch."),
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
        held = min(self._cache.lengths[self._slot], len(prompt)) if prompt == self._read else 0
        held = self._cache.rewind(self._slot, held)
        self._read = prompt
        for begin in range(held, len(prompt), CHUNK):
            chunk = prompt[begin : begin + CHUNK]
            self._runner.forward([Segment(self._slot, chunk)], self._cache)
            self._cache.keep(self._slot, len(chunk))


WIDTHS = (1, 2, 5, 9)
SAFETY = 2.0
"""Two engines may be off in opposite directions, and the largest change seen is not the largest there is."""
EXACT = 1e-6
"""Logits closer than this are tied: float32 is no finer."""
ROWS = 256

Logits = Callable[[Sequence[int]], Tensor]
"""Token ids -> [n, V] logits, row i after tokens[: i + 1]."""
Text = tuple[Sequence[int], Sequence[int]]
"""A prompt and tokens after it."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding alone can change.

    margin: the logit difference up to which two tokens are nearly tied, `SAFETY` times the largest change seen
    logprob: the same for a log-probability, in nats
    variation, variation_most: total variation between the distributions of a token, on average and at most
    rows: how many were looked at
    how: it was measured, in words
    """

    margin: float
    logprob: float
    variation: float
    variation_most: float
    rows: int
    how: str

    def near_tie(self, margin: float) -> bool:
        """Whether rounding could have decided between two tokens whose logits are this far apart."""
        return margin <= max(self.margin, EXACT)


def measure_rounding(
    reference: EngineReference,
    texts: Sequence[Text],
    sampling: Sampling,
    *,
    other: Logits | None = None,
    other_name: str = "",
) -> Rounding:
    """Compute up to `ROWS` rows of the texts again: in forwards of `WIDTHS` rows, and by `other` if there is one.

    sampling: whose distributions are compared (temperature 0 counts as 1; penalties are left out, rounding knows none).
    """
    plain = Sampling(
        temperature=sampling.temperature or 1.0, top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p
    )
    by_width, by_other = _Changes(plain), _Changes(plain)
    rows = 0
    for prompt, tokens in texts:
        if rows >= ROWS:
            break
        tokens = tokens[: ROWS - rows]
        base = reference.logits(prompt, tokens)
        rows += len(base)
        for width in WIDTHS:
            by_width.add(base, reference.logits(prompt, tokens, width))
        if other is not None:
            by_other.add(base, other([*prompt, *tokens])[len(prompt) - 1 :].to(base.device).float())
    how = f"{rows} rows computed again in forwards of {', '.join(map(str, WIDTHS))} rows: "
    how += "the same bits" if by_width.margin == 0 else f"margins change by up to {by_width.margin:.3g}"
    if other is not None:
        how += f"; by {other_name}: margins change by up to {by_other.margin:.3g}"
    return Rounding(
        margin=SAFETY * max(by_width.margin, by_other.margin),
        logprob=SAFETY * max(by_width.logprob, by_other.logprob),
        variation=max(by_width.mean_variation, by_other.mean_variation),
        variation_most=max((*by_width.variations, *by_other.variations), default=0.0),
        rows=rows,
        how=f"{how}. Near-tied are tokens up to {SAFETY:g} times the largest change apart",
    )


def transformers_logits(target: str, dtype: torch.dtype, device: torch.device) -> Logits:
    """The model as transformers runs it by itself: its modules, its attention, no cache. A second copy in memory."""
    source = resolve(target, "target")
    config = load_config(source, trust_remote_code=False)
    model = read_model(source, config, dtype).to(device).eval()

    @torch.inference_mode()
    def logits(tokens: Sequence[int]) -> Tensor:
        found: Tensor = model(torch.tensor([list(tokens)], device=device), use_cache=False).logits[0]
        return found

    return logits


class _Changes:
    """The largest changes seen so far, and every total variation."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self.margin = self.logprob = 0.0
        self.variations: list[float] = []

    def add(self, base: Tensor, again: Tensor) -> None:
        """base, again: [n, V] logits of the same rows. Margins are those of base's two likeliest tokens."""
        best = base.topk(2).indices
        ours, theirs = base.gather(1, best), again.gather(1, best)
        self.margin = max(self.margin, float((ours - theirs).diff().abs().max()))
        ours, theirs = (each.log_softmax(-1).gather(1, best[:, :1]) for each in (base, again))
        self.logprob = max(self.logprob, float((ours - theirs).abs().max()))
        state = SamplingState(self._sampling, (), base.shape[1], frozenset())
        rows = [SamplingRow(state)] * len(base)
        self.variations += ((distribution(base, rows) - distribution(again, rows)).abs().sum(-1) / 2).tolist()

    @property
    def mean_variation(self) -> float:
        return sum(self.variations) / len(self.variations) if self.variations else 0.0
