"""One target in memory, and engines with one candidate after the other on it.

It puts an engine together as `headstart.load` does, so that what is measured is what the user gets; but the target's
weights are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from headstart.drafters import Drafter
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.engine.engine import Engine
from headstart.insight.doctor.candidates import Candidate
from headstart.insight.doctor.compatibility import HEAD, WEIGHTLESS, Compatibility, compare
from headstart.insight.doctor.memory import LEAST, Memory, check
from headstart.loading.checkpoint import Checkpoint, LoadPlan, check_quantize, find_device
from headstart.loading.choice import Choice, Wanted, choose
from headstart.loading.drafters import Means, make
from headstart.loading.pacing import make_pacing
from headstart.model import loading
from headstart.model.memory import MemoryNeed, free_bytes
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
    """Raises what `headstart.load` raises for the target; a cache that does not fit is made smaller, see `memory`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.device = find_device(setup.device)
        check_quantize("quantize", setup.quantize, self.device)
        self.wish = self._plan(setup.max_batch_size, setup.max_length)
        asked = Checkpoint(setup.target, "target", self.wish)
        self.memory = self._memory(asked)
        length = asked.length if self.memory.fits else min(asked.length, self.memory.most_length)
        if length < min(LEAST, asked.length):
            check(self.memory)
        self.plan = self._plan(min(SLOTS, setup.max_batch_size), length)
        self.ours = Checkpoint(setup.target, "target", self.plan)
        self.runner = self.ours.runner(setup.quantize)
        self._plain: Engine | None = None

    @property
    def plain(self) -> Engine:
        """The target alone. The same engine each time."""
        if self._plain is None:
            self._plain = self._engine(None, "no drafter was asked for")
        return self._plain

    def look(self, candidate: Candidate) -> tuple[Compatibility, Memory | None]:
        """Tokens and memory of a candidate, its weights still on disk; no memory for one without weights.

        Raises:
            HeadstartError: it cannot draft for this target, or does not fit.
        """
        found, needs = WEIGHTLESS, []
        for wanted in self._choice(candidate.drafters).drafters:
            if wanted.kind == "draft":
                theirs = Checkpoint(wanted.name, "draft", self.wish)
                found = compare(self.ours, theirs)
                needs.append(theirs.need)
            elif wanted.kind in ("medusa", "eagle"):
                found = HEAD
                needs.append(self._head(wanted))
        if not needs:
            return found, None
        memory = Memory(
            free_bytes(self.device), tuple(needs), self.wish.slots, self.ours.length if self.memory.fits else LEAST
        )
        check(memory)
        return found, memory

    def engine(self, candidate: Candidate, *, budget: int | None = None) -> Engine:
        """With these drafters and pacing "fixed". budget: nodes of each member of a list, where it matters.

        Raises what `headstart.load` raises for a drafter.
        """
        choice = self._choice(candidate.drafters)
        return self._engine(self._drafter(choice, self._drafts(choice), budget), choice.reason)

    def adaptive(self, candidate: Candidate) -> Engine:
        """The same as `headstart.load` makes it by default. Costs that were never measured are, and are kept: the
        next load takes them."""
        choice = self._choice(candidate.drafters)
        drafts = self._drafts(choice)
        made = self._drafter(choice, drafts, None)
        engine = self._engine(made, choice.reason)
        facts = {
            "models": {name: model.config.to_dict() for name, model in {"": self.ours, **drafts}.items()},
            "drafters": [each.name for each in choice.drafters],
            "tree": self.setup.draft_tree,
            "quantize": [self.setup.quantize, "auto"],
            "decoder": self.runner.decoder,
            "headstart": version("headstart"),
        }
        engine.pacing = make_pacing("adaptive", self.runner, engine.cache, made, None, facts)
        return engine

    def _choice(self, drafters: Sequence[str]) -> Choice:
        return choose(self.setup.target, list(drafters))

    def _drafts(self, choice: Choice) -> dict[str, Checkpoint]:
        return {
            each.name: Checkpoint(each.name, "draft", self.plan) for each in choice.drafters if each.kind == "draft"
        }

    def _drafter(self, choice: Choice, drafts: dict[str, Checkpoint], budget: int | None) -> Drafter:
        given = {"budget": budget, "tree": None if self.setup.draft_tree == "auto" else self.setup.draft_tree}
        options = {name: value for name, value in given.items() if value is not None}
        means = Means(self.ours, self.runner, drafts, self.plan.slots, "auto", SuffixStore(), options)
        made = make(choice.drafters, means)
        assert made is not None, "a candidate names a drafter"
        return made

    def _engine(self, drafter: Drafter | None, reason: str) -> Engine:
        return Engine(
            self.runner,
            self.ours.tokenizer,
            drafter,
            rule=self.setup.rule,
            max_batch_size=self.plan.slots,
            eos_token_ids=self.ours.eos_token_ids,
            target_name=self.ours.label,
            reason=reason,
        )

    def _plan(self, slots: int, length: int | None) -> LoadPlan:
        setup = self.setup
        return LoadPlan(setup.dtype, self.device, slots, length, setup.trust_remote_code)

    def _memory(self, asked: Checkpoint) -> Memory:
        return Memory(free_bytes(self.device), (asked.need,), self.wish.slots, asked.length)

    def _head(self, wanted: Wanted) -> MemoryNeed:
        """Its file; an EAGLE head also has the cache of one layer of the target's shape."""
        size = sum(file.stat().st_size for file in loading.fetch(str(wanted.source)).glob("*.safetensors"))
        layers = max(1, self.runner.layers)
        cache = self.ours.need.cache // layers if wanted.kind == "eagle" else 0
        return MemoryNeed(wanted.name, size, cache)


def described(workshop: Workshop) -> dict[str, Any]:
    """What the target runs as, for records."""
    engine = workshop.plain
    names = ("target", "rule", "dtype", "quantize", "decoder", "device", "threads", "vocab_size")
    return {name: engine.describe()[name] for name in names} | {"max_length": workshop.memory.length}
