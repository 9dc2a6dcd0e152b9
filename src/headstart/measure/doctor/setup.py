"""The target under examination: how it is loaded, whether it fits, and what each candidate would need beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.base.options import values_of
from headstart.drafters.ahead import Ahead
from headstart.drafters.building import PREFIX
from headstart.engine.engine import Engine
from headstart.loading.choice import SELF_INT4, DrafterSpec, choose, weights_of_kind
from headstart.loading.load import Target
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.doctor.candidates import Candidate, Compatibility, compare
from headstart.measure.doctor.memory import LEAST, Memory, check
from headstart.model import int4, loading
from headstart.model.memory import MemoryNeed, free_bytes
from headstart.pacing import Pacing

_COPIES = Compatibility("none", "it copies the target's own tokens")
_ATTENDING = ("eagle", "dflash")
"""Kinds of heads that keep keys and values."""
_HEAD = Compatibility("own", "a head drafts the target's tokens")
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
        """The target, and whether it fits as it was asked for; if it does not, its context is shorter.

        Raises what `headstart.Target` raises, and `NotEnoughMemory` where no useful context is left.
        """
        target = self._target(self.target_options.max_length)
        asked, slots = target.checkpoint, self.engine_options.max_batch_size
        memory = Memory(
            free_bytes(target.device), (asked.need(slots, self.target_options.quantize),), slots, asked.length
        )
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

    def _target(self, max_length: int | None) -> Target:
        return Target(self.target, **{**values_of(self.target_options), "max_length": max_length})


def may_copy(target: Target) -> bool:
    """Whether the target's own copy on 4 bits is a draft to look at: it can run here, and has less to read."""
    given, ours = target.options, target.checkpoint
    rounded = given.quantize == "int4" or bool(ours.blocks(given.quantize))
    return int4.can_run(target.device) and not rounded and ours.weight_bytes >= LEAST_COPIED


def inspect(target: Target, memory: Memory, candidate: Candidate) -> tuple[Compatibility, Memory | None]:
    """Tokens and memory of a candidate, its weights still on disk; no memory for one without weights.

    memory: the target's.

    Raises:
        HeadstartError: it cannot draft for this target, or does not fit.
    """
    compatibility, needs = _COPIES, []
    for wanted in choose(target.source, list(candidate.drafters)).drafters:
        if wanted.kind == "draft":
            draft = target.draft(wanted.name)
            compatibility = compare(target.checkpoint, draft)
            own = wanted.name == SELF_INT4
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


def described(engine: Engine, memory: Memory) -> dict[str, Any]:
    """What the target runs as, for records."""
    names = ("target", "rule", "dtype", "quantize", "decoder", "device", "threads", "vocab_size")
    return {name: engine.describe()[name] for name in names} | {"max_length": memory.length}


def _head(target: Target, slots: int, wanted: DrafterSpec) -> MemoryNeed:
    """Its files; a head with attention also has a cache, about that of as many layers of the target's."""
    folder = loading.fetch(str(wanted.source))
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    cache = 0
    if wanted.kind in _ATTENDING:
        raw = json.loads((folder / "config.json").read_text())
        layers = int({**raw, **(raw.get("transformer_layer_config") or {})}.get("num_hidden_layers") or 1)
        cache = layers * target.checkpoint.need(slots, None).cache // max(1, target.runner.layers)
    return MemoryNeed(wanted.name, size, cache)
