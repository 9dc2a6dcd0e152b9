"""From the drafters a user wants to drafters that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.drafters import BuildContext, Drafter, NoDrafter, module_of
from headstart.drafters.cascade import Cascade
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import DrafterSpec
from headstart.model.runner import ModelRunner
from headstart.model.tokens.tokenizers import differences


@dataclass(frozen=True, slots=True)
class Shared:
    """What all drafters of an engine are built with; see `BuildContext`."""

    target: Checkpoint
    runner: ModelRunner
    slots: int
    budget: int | None
    tree: str | None
    quantize: str | None
    store: SuffixStore | None


def build(wanted: Sequence[DrafterSpec], shared: Shared, drafts: Mapping[str, Checkpoint]) -> Drafter:
    """The drafter, or several as one; `NoDrafter` for plain decoding. drafts: the draft models, by name."""
    members = [_build(each, shared, drafts.get(each.name), last=each is wanted[-1]) for each in wanted]
    if not members:
        return NoDrafter()
    return members[0] if len(members) == 1 else Cascade(members)


def _build(wanted: DrafterSpec, shared: Shared, draft: Checkpoint | None, *, last: bool) -> Drafter:
    if wanted.drafter is not None:
        return wanted.drafter
    kind, model = wanted.kind, None
    if draft is not None:
        model = draft.runner(shared.quantize)
        if _translates(shared.target, draft):
            kind = "translated"
    context = BuildContext(
        name=wanted.name if draft is None else draft.label,
        source=wanted.source,
        target=shared.runner,
        target_source=shared.target.source,
        target_tokenizer=shared.target.tokenizer,
        sample=shared.target.some_text(),
        slots=shared.slots,
        last=last,
        budget=shared.budget,
        tree=shared.tree,
        quantize=shared.quantize,
        store=shared.store,
        draft=model,
        draft_tokenizer=None if draft is None else draft.tokenizer,
    )
    made: Any = module_of(kind).build(context)
    return made  # type: ignore[no-any-return]


def _translates(target: Checkpoint, draft: Checkpoint) -> bool:
    """Whether the draft has a tokenizer of its own, so that its guesses are translated."""
    ours, theirs = target.tokenizer, draft.tokenizer
    return ours is not None and theirs is not None and bool(differences(ours, theirs))
