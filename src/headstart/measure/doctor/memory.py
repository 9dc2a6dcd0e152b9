"""Does it fit: weights and caches of target and draft against the memory that is free, and what would fit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from headstart.base.as_json import picked
from headstart.base.errors import NotEnoughMemory
from headstart.base.words import counted
from headstart.loading.choice import SELF_INT4, DrafterSpec, choose, weights_of_kind
from headstart.loading.load import Target
from headstart.measure.doctor.candidates import Candidate, Compatibility, compare
from headstart.model import loading
from headstart.model.memory import MemoryNeed, free_bytes

GIB = 2**30
_COPIES = Compatibility("none", "it copies the target's own tokens")
_ATTENDING = ("eagle", "dflash")
"""Kinds of heads that keep keys and values."""
_HEAD = Compatibility("own", "a head drafts the target's tokens")
LEAST = 64
"""Tokens of context without which nothing can be measured."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is free and what is needed, in bytes."""

    free: int
    needs: tuple[MemoryNeed, ...]
    """The target's, then the draft's."""
    slots: int
    """Requests at once that the caches are for."""
    length: int
    """Tokens of each request that the caches are for."""

    @property
    def total(self) -> int:
        return sum(need.total for need in self.needs)

    @property
    def weights(self) -> int:
        return sum(need.weights for need in self.needs)

    @property
    def rows(self) -> int:
        return sum(need.rows for need in self.needs)

    @property
    def headroom(self) -> int:
        """What would be left, or (below 0) what is missing."""
        return self.free - self.total

    @property
    def fits(self) -> bool:
        return self.headroom >= 0

    @property
    def most_length(self) -> int:
        """Tokens of context that would fit with so many requests at once; 0 if the weights alone do not, or with the
        recurrent states."""
        return self._most(self.length, sum(need.states for need in self.needs))

    @property
    def most_slots(self) -> int:
        """Requests at once that would fit with so long a context."""
        return self._most(self.slots)

    def _most(self, asked: int, fixed: int = 0) -> int:
        left, each = (
            self.free - self.weights - self.rows - fixed,
            (sum(need.cache for need in self.needs) - fixed) / asked,
        )
        if left < 0:
            return 0
        return asked if left >= asked * each else int(left / each)

    @property
    def words(self) -> str:
        parts = "; ".join(
            f"{need.name}: weights {in_gib(need.weights)}, cache {in_gib(need.cache)}"
            + (f", rows of a forward {in_gib(need.rows)}" if need.rows else "")
            for need in self.needs
        )
        context = f"{counted(self.slots, 'request')} of {counted(self.length, 'token')}"
        if self.fits:
            return f"fits: {in_gib(self.total)} of {in_gib(self.free)} free, for {context} ({parts})"
        need = f"{in_gib(self.total)} needed, {in_gib(self.free)} free"
        return f"does not fit: {need}, for {context} ({parts}); {self.remedy}"

    @property
    def remedy(self) -> str:
        """What would fit instead."""
        if max(self.most_length, self.most_slots * self.length) < LEAST:
            return "the weights leave no room for a cache"
        options = [f"--max-model-len {self.most_length}"] if self.most_length >= LEAST else []
        if self.most_slots >= 1:
            options.append(f"--max-batch-size {self.most_slots}")
        return f"{' or '.join(options)} would fit"

    def record(self) -> dict[str, Any]:
        names = {"max_batch_size": "slots", "max_length": "length", "most_batch_size": "most_slots"}
        return picked(self, "free", "needs", "headroom", "fits", "most_length", **names)


def check(memory: Memory) -> None:
    """Raise `NotEnoughMemory`, with what would fit, unless it fits."""
    if not memory.fits:
        names = " and ".join(need.name for need in memory.needs)
        raise NotEnoughMemory(f"{names} {memory.words}", hint=f"{memory.remedy}, or take a smaller model")


def in_gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"


def inspect(target: Target, memory: Memory, candidate: Candidate) -> tuple[Compatibility, Memory | None]:
    """Tokens and memory of a candidate, its weights still on disk; no memory for one without weights.

    memory: the target's.

    Raises:
        HeadstartError: it cannot draft for this target, or does not fit.
    """
    compatibility, needs = _COPIES, []
    for wanted in choose(target.source, list(candidate.drafters)).whole:
        if wanted.model:
            draft = target.draft(wanted.model)
            compatibility = compare(target.checkpoint, draft)
            own = wanted.model == SELF_INT4
            need = draft.need(memory.slots, "int4" if own else "auto")
            needs.append(replace(need, name=f"{SELF_INT4} while it is made") if own else need)
        elif weights_of_kind(wanted.kind) == "head":
            compatibility = _HEAD
            needs.append(_head(target, memory.slots, wanted))
    if not needs:
        return compatibility, None
    length = target.checkpoint.length if memory.fits else LEAST
    found = Memory(free_bytes(target.device), tuple(needs), memory.slots, length)
    check(found)
    return compatibility, found


def _head(target: Target, slots: int, wanted: DrafterSpec) -> MemoryNeed:
    """Its files; a head with attention also has a cache, about that of as many layers of the target's."""
    folder = loading.fetch(str(wanted.source))
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    cache = 0
    if wanted.kind in _ATTENDING:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        layers = int({**raw, **(raw.get("transformer_layer_config") or {})}.get("num_hidden_layers") or 1)
        cache = layers * target.checkpoint.need(slots, None).cache // max(1, target.runner.layers)
    return MemoryNeed(wanted.name, size, cache)
