"""From the drafters a user wants to drafters that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headstart.base.errors import CONTAINED, DrafterFailed, HeadstartError, InvalidOption
from headstart.drafters import BuildContext, Drafter, Foresees, NoDrafter, capabilities
from headstart.drafters.building import definition_of
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
    of the target are to. threads: of those, see `headstart.Ahead`.

    Raises:
        InvalidOption: `ahead` or `threads` is given, and none of them can draft ahead.
    """
    context = replace(context, apart=ahead)
    members = [_build(each, context, drafts.get(each.name), last=each is wanted[-1]) for each in wanted]
    if ahead:
        members = [_around("ahead", each, context, threads) if isinstance(each, Foresees) else each for each in members]
    if (ahead or threads is not None) and all(capabilities.in_turn(each) is each for each in members):
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
    made = wanted.drafter or _made(wanted, replace(context, last=last), draft)
    if wanted.around is not None:
        return wanted.around.around(made)
    return _around(wanted.wrapper, made, context, None) if wanted.wrapper else made


def _made(wanted: DrafterSpec, context: BuildContext, draft: Checkpoint | None) -> Drafter:
    """The drafter that is named there, without what is put around it."""
    kind = wanted.kind
    apart = context.apart or bool(wanted.wrapper)
    context = replace(context, name=wanted.name, source=wanted.source, apart=apart)
    if draft is not None:
        own = wanted.name == SELF_INT4
        model = draft.runner("int4" if own else context.quantize or "none")
        context = replace(
            context, name=wanted.name if own else draft.label, draft=model, draft_tokenizer=draft.tokenizer
        )
        ours, theirs = context.target_tokenizer, draft.tokenizer
        if ours is not None and theirs is not None and differences(ours, theirs):
            kind = "translated"
    return _built(kind, context)


def _around(kind: str, inner: Drafter, context: BuildContext, threads: int | None) -> Drafter:
    return _built(kind, replace(context, inner=inner, threads=threads))


def _built(kind: str, context: BuildContext) -> Drafter:
    """A drafter of this kind.

    Raises:
        DrafterFailed: its `build` raises what is no error of headstart's, or returns what is no drafter.
    """
    definition = definition_of(kind)
    try:
        made = definition.build(context)
    except HeadstartError:
        raise
    except CONTAINED as error:
        raise DrafterFailed(
            f"drafter={kind!r} cannot be built: {type(error).__name__}: {error}",
            hint="repair the drafter or use another one; the cause of this error has its traceback",
        ) from error
    if not isinstance(made, Drafter):
        raise DrafterFailed(
            f"drafter={kind!r} built what is no drafter: {made!r}",
            hint="let its build(context) return an object of a subclass of headstart.drafters.Drafter",
        )
    return made
