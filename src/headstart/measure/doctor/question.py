"""The question of an examination: the target, how it runs, the prompts, and the time there is for an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.base.options import values_of
from headstart.base.prompt_sets import PromptItem
from headstart.drafters.ahead import Ahead
from headstart.drafters.building import PREFIX
from headstart.engine.engine import Engine
from headstart.loading.load import Target
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.memory import LEAST, Memory, check
from headstart.measure.doctor.options import DoctorOptions
from headstart.model import int4, loading
from headstart.model.memory import free_bytes
from headstart.pacing import Pacing
from headstart.types import Sampling

SLOTS = 4
"""Requests at once for which costs are measured; profiles of costs are the same for more."""

LEAST_COPIED = 100_000_000
"""Bytes of weights from which on most of a step goes into reading them, so that a copy on 4 bits may be quicker."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The target, how it is loaded, and how it is to run."""

    target: str = loading.BUNDLED
    target_options: TargetOptions = field(default_factory=TargetOptions)
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    """Drafts, their lengths and pacing are what the doctor tries; the rest holds."""

    def open(self) -> tuple[Target, Memory]:
        """The target, and whether it fits as the options say; if it does not, its context is shorter.

        Raises what `headstart.Target` raises, and `NotEnoughMemory` where no useful context is left.
        """
        target = self._target(self.target_options.max_length)
        asked, slots = target.checkpoint, self.engine_options.max_batch_size
        rows = self.engine_options.prefill_chunk + slots
        need = asked.need(slots, self.target_options.quantize, rows)
        memory = Memory(free_bytes(target.device), (need,), slots, asked.length)
        if memory.fits:
            return target, memory
        if memory.most_length < min(LEAST, asked.length):
            check(memory)
        return self._target(min(asked.length, memory.most_length)), memory

    def engine(
        self,
        target: Target,
        candidate: Candidate | None = None,
        pacing: str | Pacing = "fixed",
        *,
        budget: int | None = None,
        always_ahead: bool = False,
    ) -> Engine:
        """With these drafters, or with none. budget: nodes of each member of a list, where it matters. always_ahead:
        those that are to draft ahead do so even where that is slower.

        With pacing "adaptive", costs that were never measured are, and are kept: the next load takes them.

        Raises what `headstart.Target.engine` raises for a drafter.
        """
        drafters: Any = None if candidate is None else candidate.drafters
        if drafters is not None and always_ahead:
            drafters = [
                Ahead(each.removeprefix(PREFIX), always=True) if each.startswith(PREFIX) else each for each in drafters
            ]
        return target.engine(
            drafters,
            pacing=pacing,
            rule=self.engine_options.rule,
            draft_tree=self.engine_options.draft_tree,
            max_batch_size=min(SLOTS, self.engine_options.max_batch_size),
            num_speculative_tokens=budget,
        )

    def _target(self, max_length: int | Literal["auto"] | None) -> Target:
        return Target(self.target, **{**values_of(self.target_options), "max_length": max_length})


def may_copy(target: Target) -> bool:
    """Whether the target's own copy on 4 bits is a draft to look at: it can run here, and has less to read."""
    given, ours = target.options, target.checkpoint
    rounded = given.quantize == "int4" or bool(ours.blocks(given.quantize))
    return int4.can_run(target.device) and not rounded and ours.weight_bytes >= LEAST_COPIED


def described(engine: Engine, memory: Memory) -> dict[str, Any]:
    """What the target runs as, for records."""
    names = ("target", "rule", "dtype", "quantize", "decoder", "device", "threads", "vocab_size")
    return {name: engine.describe()[name] for name in names} | {"max_length": memory.length}


Progress = Callable[[str, float], None]
"""Called with what is being done, and with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Question(DoctorOptions):
    """What to examine: a target, on these prompts, sampled like this."""

    setup: Setup
    items: tuple[PromptItem, ...]
    sampling: Sampling


class Clock:
    """It starts when it is made. What is measured end to end after the examination has time of its own."""

    def __init__(self, question: Question, progress: Progress) -> None:
        self._begin = time.monotonic()
        self._progress = progress
        self._all = question.seconds
        self._further = question.seconds if question.measure else 0.0

    @property
    def spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds of the examination, or of what extended it; negative once the time is over."""
        return self._all - self.spent

    def extend(self, seconds: float) -> None:
        """So much from now on, for what is measured end to end."""
        self._all, self._further = self.spent + seconds, 0.0

    def report(self, what: str) -> None:
        """What is done from now on."""
        self._progress(what, 1 - (max(0.0, self.left) + self._further) / (self._all + self._further))
