"""From the drafters a user wants to drafters that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headstart.drafters import BuildContext, Drafter, NoDrafter, module_of
from headstart.drafters.cascade import Cascade
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import DrafterSpec
from headstart.model.tokens.tokenizers import differences


def build(wanted: Sequence[DrafterSpec], context: BuildContext, drafts: Mapping[str, Checkpoint]) -> Drafter:
    """The drafter, or several as one; `NoDrafter` for plain decoding.

    context: what all of them are built with. drafts: the draft models, by name.
    """
    members = [_build(each, context, drafts.get(each.name), last=each is wanted[-1]) for each in wanted]
    if not members:
        return NoDrafter()
    return members[0] if len(members) == 1 else Cascade(members)


def _build(wanted: DrafterSpec, context: BuildContext, draft: Checkpoint | None, *, last: bool) -> Drafter:
    if wanted.drafter is not None:
        return wanted.drafter
    kind = wanted.kind
    context = replace(context, name=wanted.name, source=wanted.source, last=last)
    if draft is not None:
        model = draft.runner(context.quantize)
        context = replace(context, name=draft.label, draft=model, draft_tokenizer=draft.tokenizer)
        ours, theirs = context.target_tokenizer, draft.tokenizer
        if ours is not None and theirs is not None and differences(ours, theirs):
            kind = "translated"
    made: Any = module_of(kind).build(context)
    return made  # type: ignore[no-any-return]
