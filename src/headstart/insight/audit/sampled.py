"""Does sampled text follow the law it should? The audit: draw, bet, and stop when sure of either answer.

All asks (prompts x samplings) are one process with one capital. Batches go through them in turn. Not lossless: the
bets against the reference's law have won 1/level, which a lossless subject sees with probability at most `level`.
Lossless within stated power: they have not, and of audits with laws off by the stated effect, in any of the ways
tried, at least the share `power` would have been caught by now. Undecided: neither, with all samples used. An audit
that accuses draws a few batches more, to say how far off the law is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headstart.errors import InvalidPrompt
from headstart.insight.audit.betting import Pool
from headstart.insight.audit.effects import LowerBound, distance_of
from headstart.insight.audit.findings import SampledResult, SampledSettings, Verdict, reasons
from headstart.insight.audit.laws import Block, Place, Places
from headstart.insight.audit.power import Power, Shadows, least
from headstart.insight.audit.subject import Ask, Completion, Reference, Subject, sample_all

__all__ = ["Progress", "SampledResult", "SampledSettings", "Verdict", "audit_sampling"]

_REMEMBERED = 8  # blocks
SIZING = 4
"""Batches from the one that accuses on, that one included."""
DEPTHS = (1, 2)
"""Of beginnings whose total variation is reported."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After each batch. evidence: capital so far; least: the least power so far, 0 if not known."""

    completions: int
    most: int
    evidence: float
    least: float


def audit_sampling(
    subject: Subject,
    reference: Reference,
    prompts: Sequence[Sequence[int]],
    settings: SampledSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    suspect: Reference | None = None,
) -> SampledResult:
    """Audit the subject's sampled text against the reference's laws.

    prompts: token ids. suspect: a law that the subject may lean towards, such as its draft model's; knowing it makes
    the audit sharper, and a wrong one does no harm.

    Raises:
        InvalidPrompt: there is none, or one is empty.
    """
    if not prompts or not all(prompts):
        raise InvalidPrompt("an audit needs prompts", hint="give at least one, of at least one token")
    settings = SampledSettings() if settings is None else settings
    audit = _Audit(subject, reference, prompts, settings, suspect)
    for progress in audit.batches():
        if on_progress is not None:
            on_progress(progress)
    return audit.result()


class _Audit:
    """One audit while it runs."""

    def __init__(
        self,
        subject: Subject,
        reference: Reference,
        prompts: Sequence[Sequence[int]],
        settings: SampledSettings,
        suspect: Reference | None,
    ) -> None:
        self._subject, self._reference, self._settings = subject, reference, settings
        self._asks = [
            Ask(tuple(prompt), replace(sampling, max_tokens=settings.max_tokens, seed=None))
            for prompt in prompts
            for sampling in settings.samplings
        ]
        self._places = Places(reference, self._asks, suspect)
        common: dict[str, Any] = {
            "tolerance": settings.tolerance,
            "expected": settings.max_samples / len(self._asks),
            "suspect": suspect is not None,
        }
        self._pool = Pool.of(1, **common)
        self._shadows = Shadows(
            settings.replicates,
            effect=settings.effect,
            level=settings.level,
            asked=settings.power,
            seed=settings.seed,
            **common,
        )
        self._bound = LowerBound(settings.level)
        self._texts: list[list[tuple[int, ...]]] = [[] for _ in self._asks]
        self._drawn = self._tokens = self._past_end = self._impossible = self._looks = 0
        self._most = 0.0
        self._blocks: list[Block] = []

    def batches(self) -> Iterator[Progress]:
        """Draw and bet until one of the verdicts is due."""
        settings = self._settings
        left = SIZING
        while self._drawn < settings.max_samples and left and not self._cleared:
            count = min(settings.batch, settings.max_samples - self._drawn)
            turn = [(self._drawn + i) % len(self._asks) for i in range(count)]
            completions = sample_all(self._subject, [self._asks[ask] for ask in turn])
            self._drawn += count
            self._take(turn, completions)
            weakest = least(self._powers())
            evidence = math.exp(min(self._log_evidence, 700))
            left -= self._accused
            yield Progress(self._drawn, settings.max_samples, evidence, weakest.share if weakest else 0.0)

    def _take(self, turn: Sequence[int], completions: Sequence[Completion]) -> None:
        places: list[Place] = []
        tokens: list[int] = []
        for ask, completion in zip(turn, completions, strict=True):
            text = self._up_to_end(ask, completion)
            if text:
                places += self._places.along(ask, text)
                tokens += text
                self._texts[ask].append(text)
        if places:
            block = Block.of(places, tokens)
            self._bound.add(block, self._pool.favoured(block))
            self._pool.bet(block, block.drawn[None])
            self._shadows.follow(block, self._drawn)
            self._looks += 1
            self._blocks = [*self._blocks, block][-_REMEMBERED:]
            self._tokens += len(block)
            self._impossible += int((block.drawn == block.p.shape[1] - 1).sum())
            self._most = max(self._most, self._log_evidence)
        self._places.settle()

    def _up_to_end(self, ask: int, completion: Completion) -> tuple[int, ...]:
        stops = self._reference.stop_ids(self._asks[ask].sampling)
        ends = [i for i, token in enumerate(completion.tokens) if token in stops]
        if not ends:
            return completion.tokens
        self._past_end += ends[0] + 1 < len(completion.tokens)
        return completion.tokens[: ends[0] + 1]

    @property
    def _log_evidence(self) -> float:
        return float(self._pool.total()[0])

    @property
    def _accused(self) -> bool:
        return self._past_end > 0 or self._most >= math.log(1 / self._settings.level)

    @property
    def _cleared(self) -> bool:
        weakest = least(self._powers())
        sure = weakest is not None and weakest.share >= self._settings.power
        return self._tokens > 0 and sure and not self._accused

    def _powers(self) -> list[Power]:
        return self._shadows.powers() if self._tokens else []

    def result(self) -> SampledResult:
        verdict: Verdict = "not lossless" if self._accused else "lossless" if self._cleared else "undecided"
        generator = np.random.default_rng(self._settings.seed)
        measured = [
            distance_of(self._places, ask, texts, depth, generator)
            for ask, texts in enumerate(self._texts)
            for depth in DEPTHS
        ]
        result = SampledResult(
            verdict=verdict,
            reasons=[],
            settings=self._settings,
            asks=self._asks,
            completions=self._drawn,
            tokens=self._tokens,
            places=len(self._places.all),
            evidence=math.exp(min(self._log_evidence, 700)),
            most_evidence=math.exp(min(self._most, 700)),
            strategies={name: math.exp(min(logs[0], 700)) for name, logs in self._pool.by_strategy().items()},
            bound=self._bound.value,
            leaning=self._bound.mean,
            distances=[each for each in measured if each is not None],
            powers=self._powers(),
            foreseen=None,
            past_end=self._past_end,
            impossible=self._impossible,
            subject=self._subject.describe(),
            reference=self._reference.describe(),
        )
        if verdict == "undecided" and result.needed is None and self._blocks:
            completions = math.ceil(self._drawn * len(self._blocks) / self._looks)
            result = replace(result, foreseen=self._shadows.foresee(self._blocks, completions))
        return replace(result, reasons=reasons(result))
