"""The one assembly of an engine: `assemble` makes it from parts, `Assembly` from what a user chose by name."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, get_args

import torch

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_number
from headstart.drafters import BuildContext, Drafter, NoDrafter
from headstart.drafters.growing.grow import Residual
from headstart.engine.engine import Engine
from headstart.engine.guarded_drafter import GuardedDrafter, attach
from headstart.engine.judging import HostJudge, Judge
from headstart.engine.parts import EngineParts
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import SELF_INT4, Choice
from headstart.loading.drafters import build
from headstart.loading.options import DraftTree, EngineOptions
from headstart.loading.pacing import make_pacing
from headstart.model.memory import WORTH_RELEASING, MemoryNeed, free_bytes, preflight, release_files
from headstart.model.runner import ModelRunner
from headstart.pacing import Pacing
from headstart.types import EngineRule

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headstart.drafters.matching.text_index import TextIndex
    from headstart.engine.trace.recording import Recording
    from headstart.model.cache import Slots

_STEP = 256
"""Tokens by which contexts that fit into memory differ."""
_SHARE = 0.8
"""Of the free memory, what weights and caches may take then. The rest is for what steps compute, and for heads."""


def assemble(
    target: ModelRunner,
    tokenizer: Any = None,
    drafter: Drafter | None = None,
    *,
    rule: EngineRule = "auto",
    num_speculative_tokens: int | None = None,
    pacing: str | Pacing | None = None,
    facts: Mapping[str, Any] | None = None,
    judge: Judge | None = None,
    max_batch_size: int = 8,
    prefill_chunk: int = 512,
    eos_token_ids: frozenset[int] = frozenset(),
    prefix_cache: bool = False,
    target_name: str = "target",
    reason: str = "",
) -> Engine:
    """An engine from parts that exist already. `headstart.load` and `headstart.Target.engine` make one from names.

    Args:
        target: the model whose distribution is kept.
        tokenizer: of transformers, or None if prompts are token ids and no text is wanted.
        drafter: guesses tokens; None is plain decoding. It is attached here to the target and to a new cache.
        rule: "exact" keeps the distribution at the highest acceptance; "coupled" also gives one text per seed, whatever
            the drafter; "auto" judges requests with a seed by "coupled" and all others by "exact".
        num_speculative_tokens: K, the most nodes of a draft; None takes the drafter's own default, or leaves it to
            adaptive pacing.
        pacing: decides how much each request drafts in each step; "adaptive" measures the models unless a profile of
            them is found, "fixed" and None always take K.
        facts: what the costs of these models depend on, for the profile of adaptive pacing; None keeps no profile.
        judge: computes distributions and applies the rule; None does so on the host.
        max_batch_size: requests that run at once; more of them wait.
        prefill_chunk: the most prompt tokens read per step, over all requests.
        prefix_cache: whether a slot keeps its text when its request ends, so that one that begins alike need not read
            that again. On a forward that is width-invariant no text changes by that.
        reason: why this drafter, or why none.

    Raises:
        InvalidOption: an option is out of its range, or the drafter wants layers that the target has not.
        DrafterFailed: the drafter raises when it is attached.
    """
    check_choice("rule", rule, get_args(EngineRule))
    check_number("max_batch_size", max_batch_size, low=1, integer=True)
    check_number("prefill_chunk", prefill_chunk, low=1, integer=True)
    drafter = NoDrafter() if drafter is None else drafter
    cache = target.new_cache(max_batch_size)
    attach(drafter, target, cache)
    guarded = GuardedDrafter(drafter, target)
    pacing = make_pacing("fixed" if pacing is None else pacing, target, cache, drafter, num_speculative_tokens, facts)
    cache.keeps_texts = prefix_cache  # after what pacing has measured on the cache
    given: dict[str, Any] = {
        "rule": rule,
        "max_batch_size": max_batch_size,
        "prefill_chunk": prefill_chunk,
        "eos_token_ids": eos_token_ids,
        "target_name": target_name,
    }
    parts = EngineParts(
        target=target,
        cache=cache,
        drafter=guarded,
        pacing=pacing,
        judge=HostJudge() if judge is None else judge,
        rule=rule,
        tokenizer=tokenizer,
        eos_token_ids=eos_token_ids,
        prefill_chunk=prefill_chunk,
        target_name=target_name,
        reason=reason or ("asked for" if guarded.sources else "no drafter was asked for"),
        traced=_traced,
        plain=partial(assemble, target, tokenizer, **given),
    )
    return Engine(parts)


def _traced(engine: Engine, path: str | Path | None, **options: Any) -> AbstractContextManager[Recording]:
    """What `Engine.trace` runs. The recorder is imported with the first trace, since few engines are traced."""
    from headstart.engine.trace.recording import recorded

    return recorded(engine, path, **options)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the costs of models depend on, by which a profile of them is found again. A change of these names or of what
    they hold makes every stored profile a stranger's."""

    models: dict[str, dict[str, Any]]
    """The configs of the target, "", and of the draft models, by name."""
    drafters: list[str]
    ahead: list[Any]
    """Whether drafts are made ahead, on how many threads, and where."""
    tree: DraftTree
    quantize: list[str | None]
    """Of the target, of the drafters, and of keys and values where those are."""
    blocks: list[tuple[str, ...]]
    """The codes that the target and each draft model run on."""
    decoder: str
    """That of the target."""
    headstart: str
    """The version."""


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """An engine that a user has described by names, all of its checkpoints opened and no weight read yet."""

    target: Checkpoint
    quantize: str | None
    """Of the target."""
    device: torch.device
    """Of the target."""
    choice: Choice
    drafts: Mapping[str, Checkpoint]
    """The draft models, by name."""
    draft_device: torch.device
    options: EngineOptions
    index: TextIndex | None = None
    """Texts that all requests share, for drafters that copy."""
    fitting: bool = False
    """Whether contexts take as many tokens as fit into memory."""

    @property
    def tree(self) -> DraftTree:
        return self.choice.tree if self.options.draft_tree == "auto" else self.options.draft_tree

    @property
    def k(self) -> int | None:
        """The most nodes of a draft, where the user or the choice says."""
        k = self.options.num_speculative_tokens
        return self.choice.k if k is None and self.options.pacing == "fixed" and self.choice.drafters else k

    def needs(self) -> dict[torch.device, list[MemoryNeed]]:
        """By device, the weights that are still to be read, the caches that are to be made and what a forward takes for
        its rows: they must fit, all together. Draft models are often on the target's own device. Models of a
        device run one after the other and in the same memory, so that only the widest rows count; a drafter that
        drafts ahead has a thread and memory of its own."""
        slots = self.options.max_batch_size
        rows = self.options.prefill_chunk + slots
        found = defaultdict(list, {self.device: [self.target.need(slots, self.quantize, rows)]})
        for name, draft in self.drafts.items():
            rounded = "int4" if name == SELF_INT4 else self.options.draft_quantize or "none"
            need = draft.need(slots, rounded, rows)
            found[self.draft_device].append(need)
            again = self.choice.models.count(name) - 1  # its weights are read once, but each has a cache of its own
            if again > 0:
                found[self.draft_device].append(MemoryNeed(need.name, 0, again * need.cache, again * need.states))
        if self.options.ahead:
            return found
        return defaultdict(list, {device: _widest_rows(needs) for device, needs in found.items()})

    def _fit(self) -> None:
        """Give contexts as many tokens as fit, in steps; where nothing fits, the least, of which the user is told."""
        free = {device: _SHARE * free_bytes(device) for device in self.needs()}
        checkpoints = (self.target, *(draft for draft in self.drafts.values() if not draft.is_read))

        def fits(steps: int) -> bool:
            for each in checkpoints:
                each.shorten(steps * _STEP)
            return all(sum(need.total for need in wanted) <= free[device] for device, wanted in self.needs().items())

        most = -(-self.target.limit // _STEP)
        fits(max(1, bisect(range(1, most + 1), False, key=lambda steps: not fits(steps))))

    def context(self, runner: ModelRunner) -> BuildContext:
        """What drafters are built with. runner: the target's."""
        given = self.options
        return BuildContext(
            target=runner,
            target_source=self.target.source,
            target_tokenizer=self.target.tokenizer,
            sample=self.target.some_text(),
            slots=given.max_batch_size,
            budget=self.k,
            tree=None if self.tree == "auto" else self.tree,
            residual=None if given.draft_residual is None else Residual(given.draft_residual),
            quantize=None if given.draft_quantize == "none" else given.draft_quantize,
            store=given.suffix_store,
            index=self.index,
        )

    def facts(self, runner: ModelRunner) -> Facts | None:
        """None where a drafter is an object of the user's own, about which nothing is known. runner: the target's."""
        if any(each.drafter is not None for each in self.choice.whole):
            return None
        given = self.options
        return Facts(
            models={name: model.config.to_dict() for name, model in {"": self.target, **self.drafts}.items()},
            drafters=[each.label for each in self.choice.drafters],
            ahead=[given.ahead, given.draft_threads, str(given.draft_device)],
            tree=self.tree,
            quantize=[self.quantize, given.draft_quantize, *(["int8 keys"] * (runner.cache_dtype == torch.int8))],
            blocks=[
                self.target.blocks(self.quantize),
                *(draft.blocks(given.draft_quantize or "none") for draft in self.drafts.values()),
            ],
            decoder=runner.decoder,
            headstart=version("headstart"),
        )

    def _paced(self, facts: Facts | None, name: str, model: ModelRunner, cache: Slots, drafter: Drafter) -> Pacing:
        """The pacing of a model in a stack of this name, for its drafter: of the kind of the engine's own, where that
        has a name. The number of tokens that the user chooses is that of the stack's draft."""
        kind = self.options.pacing if isinstance(self.options.pacing, str) else "adaptive"
        known = None if facts is None else {**asdict(facts), "stack": name}
        return make_pacing(kind, model, cache, drafter, None, known)

    def engine(self) -> Engine:
        """Read the weights that are still to be read, and make the engine.

        Raises:
            NotEnoughMemory: weights and caches do not fit.
        """
        if self.fitting and not self.target.is_read:
            self._fit()
        for device, wanted in self.needs().items():
            preflight(wanted, device)
        given, runner = self.options, self.target.runner(self.quantize)
        facts = self.facts(runner)
        made = build(
            self.choice.drafters,
            self.context(runner),
            self.drafts,
            partial(self._paced, facts),
            ahead=given.ahead,
            threads=given.draft_threads,
        )
        engine = assemble(
            runner,
            self.target.tokenizer,
            made,
            rule=given.rule,
            num_speculative_tokens=self.k,
            pacing=given.pacing,
            facts=None if facts is None else asdict(facts),
            max_batch_size=given.max_batch_size,
            prefill_chunk=given.prefill_chunk,
            prefix_cache=given.prefix_cache,
            eos_token_ids=self.target.eos_token_ids,
            target_name=self.target.label,
            reason=self.choice.reason,
        )
        if runner.memory() >= WORTH_RELEASING:
            release_files()  # what drafters have read, and what was needed for a moment only
        return engine


def _widest_rows(needs: list[MemoryNeed]) -> list[MemoryNeed]:
    """The same, but for the rows of all but the first with the widest."""
    widest = max(needs, key=lambda need: need.rows)
    return [need if need is widest else replace(need, rows=0) for need in needs]


def check_store(given: object) -> None:
    """Check the option `suffix_store` of `EngineOptions`.

    Raises:
        InvalidOption: it is neither a store, "auto" nor None.
    """
    if given is None or given == "auto":
        return
    from headstart.drafters.matching.suffix_store import SuffixStore

    if isinstance(given, SuffixStore):
        return
    raise InvalidOption(
        f"suffix_store={given!r} is not a SuffixStore",
        hint="SuffixStore.load(path) reads one from a file; 'auto' begins with an empty one, None has none",
    )
