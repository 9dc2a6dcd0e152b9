"""What an engine should accept of this drafter: measured with headstart's own engine, one prompt after the other.

Engines draft chains of a fixed length, so chains of a fixed length are measured, with the drafters of
`headstart.fleet.parity`: of Medusa heads each head's likeliest token alone, n-grams by vLLM's rule, and weights that
are not quantised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import headstart
from headstart.base.prompt_sets import PromptItem
from headstart.drafters.dflash import DFlashDrafter
from headstart.engine.engine import Engine
from headstart.engine.in_turn import run_once
from headstart.engine.prompts import templated
from headstart.fleet.export.files.engines import LOOKUP
from headstart.fleet.export.manifest import DrafterKind, Expected, Figure, PositionRecord, PromptsRecord
from headstart.fleet.parity.drafters import drafter_of
from headstart.fleet.parity.plan import Plan
from headstart.pacing import FixedPacing
from headstart.theory.statistics import Interval, bootstrap, proportion
from headstart.types import Sampling, Stats

LEVEL = 0.95
_SOME = 4
"""Prompts from which on the scatter between them is an estimate."""

Tick = Callable[[int, int], None]
"""Called with the number of prompts that are done, and with that of all."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """What is measured with, as token ids. chat: whether any of them went through a chat template."""

    ids: tuple[tuple[int, ...], ...]
    source: str
    chat: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.ids, separators=(",", ":")).encode()).hexdigest()

    def lines(self) -> str:
        """As JSONL, which `read_prompt_set` reads."""
        return "".join(json.dumps({"prompt": list(ids)}) + "\n" for ids in self.ids)

    def record(self) -> PromptsRecord:
        return PromptsRecord(len(self.ids), self.sha256, self.source)


class Measurement:
    """What was counted in the completions of P prompts with drafts of one length."""

    def __init__(self, prompts: Sequence[Stats]) -> None:
        self._whole = np.array([(one.tokens, one.target_forwards) for one in prompts], dtype=float)
        depth = max((len(one.drafted_per_position) for one in prompts), default=0)
        self._positions = np.zeros((depth, len(prompts), 2))  # accepted and tested
        for number, one in enumerate(prompts):
            both = np.array([one.accepted_per_position, one.drafted_per_position], dtype=float).T
            self._positions[: len(both), number] = both

    def acceptance(self) -> list[float]:
        """By position, conditional on all positions before it; only positions that were ever tested."""
        return [_ratio(counts) for counts in self._positions]

    def tokens_per_forward(self) -> Interval:
        """G / (G - A); its interval is over prompts, since the rounds of one text are alike."""
        if len(self._whole) < _SOME:
            return Interval(_ratio(self._whole))
        return bootstrap(self._whole, _ratio, level=LEVEL, scale="log")

    def by_position(self) -> list[PositionRecord]:
        """With intervals over rounds, or over prompts where those are wider."""
        found = []
        for position, counts in enumerate(self._positions, start=1):
            kept, tested = (int(count) for count in counts.sum(0))
            ends = proportion(kept, tested, LEVEL)
            low, high = ends.low, ends.high
            if len(counts) >= _SOME:
                wide = bootstrap(counts, _ratio, level=LEVEL)
                if wide.known:
                    low, high = max(0.0, min(low, wide.low)), min(1.0, max(high, wide.high))
            found.append(PositionRecord(position, tested, kept, kept / tested, low, high))
        return found


class Bench:
    """The engine that measures. The weights are read once, however many draft lengths are tried.

    kind, drafter: as in the manifest; drafter is the exported folder or a hub id, None where nothing is loaded.
    longest: the greatest draft length that will be measured. parallel: the drafter guesses all tokens in one forward.
    """

    def __init__(
        self,
        target: str,
        kind: DrafterKind,
        drafter: str | None,
        dtype: str,
        sampling: Sampling,
        *,
        longest: int,
        parallel: bool = False,
    ) -> None:
        model = headstart.Target(target, dtype=dtype)
        self._sampling = sampling
        taken: Any = kind
        if kind == "dflash" or kind == "dspark":
            taken = DFlashDrafter.load(
                str(drafter), model.runner, target_folder=model.checkpoint.source, slots=1, budget=longest, tree="none"
            )
        elif kind != "suffix":
            plan = Plan(
                target=target, kind=kind, depth=longest, drafter=drafter, dtype=dtype, parallel=parallel, lookup=LOOKUP
            )
            taken = drafter_of(plan, model)
        self._engine: Engine = model.engine(
            taken, rule="exact", pacing="fixed", num_speculative_tokens=longest, max_batch_size=1
        )  # as the server accepts

    @property
    def dtype(self) -> str:
        """Of the target as it ran here."""
        return str(self._engine.describe()["dtype"])

    def prompts(self, items: Sequence[PromptItem], source: str) -> Prompts:
        """As the engine reads them.

        Raises:
            InvalidPrompt, ContextExceeded: one of them cannot be run.
        """
        ready = [templated(self._engine.tokenizer, item) for item in items]
        ids = tuple(self._engine.encode(item.prompt) for item in ready)
        return Prompts(ids, source, any(item.form == "template" for item in ready))

    def measure(self, prompts: Prompts, depth: int, tick: Tick) -> Measurement:
        """Complete every prompt with drafts of this length.

        Raises:
            HeadstartError: the drafter gave up.
        """
        stats = []
        with self._engine.paced(FixedPacing(depth)):
            for number, ids in enumerate(prompts.ids):
                tick(number, len(prompts.ids))
                run = run_once("export", self._engine, list(ids), self._seeded(number))
                state = run.output.stats.speculation
                if not state.on and state.error is not None:
                    raise state.error
                stats.append(run.output.stats)
        tick(len(prompts.ids), len(prompts.ids))
        return Measurement(stats)

    def _seeded(self, number: int) -> Sampling:
        return replace(self._sampling, seed=number)


def expected(prompts: Prompts, found: Measurement, sampling: Sampling) -> Expected:
    """For the manifest."""
    whole = found.tokens_per_forward()
    ends = (whole.low, whole.high) if whole.known else (None, None)
    return Expected(
        prompts=prompts.record(),
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        chat=prompts.chat,
        tokens_per_forward=Figure(whole.value, ends[0], ends[1], LEVEL),
        by_position=tuple(found.by_position()),
    )


def _ratio(units: Any) -> float:
    first, second = np.asarray(units).sum(0)
    return float(first / second) if second else float("nan")
