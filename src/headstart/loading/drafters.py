"""From the drafters a user wants to drafters that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headstart.base.errors import InvalidOption
from headstart.drafters import BuildContext, Drafter, NoDrafter, module_of
from headstart.drafters.ahead import Ahead
from headstart.drafters.cascade import Cascade
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import SELF_INT4, DrafterSpec
from headstart.model.tokens.tokenizers import differences


def build(
    wanted: Sequence[DrafterSpec],
    context: BuildContext,
    drafts: Mapping[str, Checkpoint],
    *,
    ahead: bool = False,
    threads: int | None = None,
) -> Drafter:
    """The drafter, or several as one; `NoDrafter` for plain decoding.

    context: what all of them are built with. drafts: the draft models, by name. ahead: whether all that can draft ahead
    of the target are to. threads: of those, see `Ahead`.

    Raises:
        InvalidOption: none of them can draft ahead, and that was asked for.
    """
    context = replace(context, apart=ahead)
    members = [_build(each, context, drafts.get(each.name), last=each is wanted[-1]) for each in wanted]
    if ahead:
        members = [Ahead(each, threads=threads) if each.can_foresee else each for each in members]
    if (ahead or threads is not None) and not any(isinstance(each, Ahead) for each in members):
        names = ", ".join(each.name for each in members) or "plain decoding"
        raise InvalidOption(
            f"{names} cannot draft ahead of the target",
            hint="draft models, early exit and trained exits can: name one as drafter, or leave ahead and "
            "draft_threads out",
        )
    if not members:
        return NoDrafter()
    return members[0] if len(members) == 1 else Cascade(members)


def _build(wanted: DrafterSpec, context: BuildContext, draft: Checkpoint | None, *, last: bool) -> Drafter:
    if wanted.drafter is not None:
        return wanted.drafter
    kind = wanted.kind
    apart = context.apart or wanted.ahead is not None
    context = replace(context, name=wanted.name, source=wanted.source, last=last, apart=apart)
    if draft is not None:
        own = wanted.name == SELF_INT4
        model = draft.runner("int4" if own else context.quantize or "none")
        context = replace(
            context, name=wanted.name if own else draft.label, draft=model, draft_tokenizer=draft.tokenizer
        )
        ours, theirs = context.target_tokenizer, draft.tokenizer
        if ours is not None and theirs is not None and differences(ours, theirs):
            kind = "translated"
    made: Drafter = module_of(kind).build(context)
    return made if wanted.ahead is None else wanted.ahead.around(made)
