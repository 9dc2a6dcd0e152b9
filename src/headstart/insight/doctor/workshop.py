"""One target in memory, and engines with one candidate after the other on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headstart.engine.engine import Engine
from headstart.insight.doctor.candidates import Candidate
from headstart.insight.doctor.compatibility import HEAD, WEIGHTLESS, Compatibility, compare
from headstart.insight.doctor.memory import LEAST, Memory, check
from headstart.loading.choice import HEADS, DrafterSpec, choose
from headstart.loading.load import Target
from headstart.model import loading
from headstart.model.memory import MemoryNeed, free_bytes
from headstart.pacing import Pacing
from headstart.types import Rule

SLOTS = 4
"""Requests at once for which costs are measured; profiles of costs are the same for more."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How the target is loaded; names and meanings are those of `headstart.load`."""

    target: str = loading.BUNDLED
    device: str = "auto"
    dtype: str = "auto"
    quantize: str | None = None
    rule: Rule = "exact"
    draft_tree: str = "auto"
    max_batch_size: int = 8
    max_length: int | None = None
    trust_remote_code: bool = False


class Workshop:
    """Raises what `headstart.Target` raises; a cache that does not fit is made smaller, see `memory`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        asked = self._target(setup.max_length)
        self.memory = Memory(
            free_bytes(asked.device),
            (asked.checkpoint.need(setup.max_batch_size),),
            setup.max_batch_size,
            asked.checkpoint.length,
        )
        length = asked.checkpoint.length
        if not self.memory.fits:
            if self.memory.most_length < min(LEAST, length):
                check(self.memory)
            asked = self._target(min(length, self.memory.most_length))
        self.target = asked
        self.ours = asked.checkpoint
        self.slots = min(SLOTS, setup.max_batch_size)

    def _target(self, max_length: int | None) -> Target:
        setup = self.setup
        return Target(
            setup.target,
            device=setup.device,
            dtype=setup.dtype,
            quantize=setup.quantize,
            max_length=max_length,
            trust_remote_code=setup.trust_remote_code,
        )

    @cached_property
    def plain(self) -> Engine:
        """The target alone. The same engine each time."""
        return self.target.engine(None, rule=self.setup.rule, max_batch_size=self.slots)

    def look(self, candidate: Candidate) -> tuple[Compatibility, Memory | None]:
        """Tokens and memory of a candidate, its weights still on disk; no memory for one without weights.

        Raises:
            HeadstartError: it cannot draft for this target, or does not fit.
        """
        found, needs = WEIGHTLESS, []
        for wanted in choose(self.setup.target, list(candidate.drafters)).drafters:
            if wanted.kind == "draft":
                theirs = self.target.draft(wanted.name)
                found = compare(self.ours, theirs)
                needs.append(theirs.need(self.memory.slots))
            elif wanted.kind in HEADS:
                found = HEAD
                needs.append(self._head(wanted))
        if not needs:
            return found, None
        length = self.ours.length if self.memory.fits else LEAST
        memory = Memory(free_bytes(self.target.device), tuple(needs), self.memory.slots, length)
        check(memory)
        return found, memory

    def engine(self, candidate: Candidate, pacing: str | Pacing = "fixed", *, budget: int | None = None) -> Engine:
        """With these drafters. budget: nodes of each member of a list, where it matters.

        With pacing "adaptive", costs that were never measured are, and are kept: the next load takes them.

        Raises what `headstart.Target.engine` raises for a drafter.
        """
        return self.target.engine(
            candidate.drafters,
            pacing=pacing,
            rule=self.setup.rule,
            draft_tree=self.setup.draft_tree,
            max_batch_size=self.slots,
            num_speculative_tokens=budget,
        )

    def _head(self, wanted: DrafterSpec) -> MemoryNeed:
        """Its file; an EAGLE head also has the cache of one layer of the target's shape."""
        size = sum(file.stat().st_size for file in loading.fetch(str(wanted.source)).glob("*.safetensors"))
        layers = max(1, self.target.runner.layers)
        cache = self.ours.need(self.memory.slots).cache // layers if wanted.kind == "eagle" else 0
        return MemoryNeed(wanted.name, size, cache)


def described(workshop: Workshop) -> dict[str, Any]:
    """What the target runs as, for records."""
    engine = workshop.plain
    names = ("target", "rule", "dtype", "quantize", "decoder", "device", "threads", "vocab_size")
    return {name: engine.describe()[name] for name in names} | {"max_length": workshop.memory.length}
