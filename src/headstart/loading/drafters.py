"""From the drafters a user wants to drafters that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.base.errors import CONTAINED, DrafterFailed, HeadstartError, IncompatibleTokenizer, InvalidOption
from headstart.drafters import BuildContext, Drafter, Foresees, NoDrafter, capabilities
from headstart.drafters.building import definition_of
from headstart.drafters.cascade import Cascade
from headstart.engine.guarded_drafter import attach
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import SELF_INT4, STACK, DrafterSpec
from headstart.model.tokens.tokenizers import differences

if TYPE_CHECKING:
    from headstart.model.cache import Slots
    from headstart.model.runner import ModelRunner
    from headstart.pacing import Pacing

Pace = Callable[[str, "ModelRunner", "Slots", Drafter], "Pacing"]
"""From the name of a stack, its model, a cache of that and what drafts for it to the pacing of that drafter."""


def build(
    wanted: Sequence[DrafterSpec],
    context: BuildContext,
    drafts: Mapping[str, Checkpoint],
    pace: Pace,
    *,
    ahead: bool = False,
    threads: int | None = None,
) -> Drafter:
    """The drafter, or several as one; `NoDrafter` for plain decoding.

    context: what all of them are built with. drafts: the draft models, by name. pace: of the models of stacks. ahead:
    whether all that can draft ahead of the target are to. threads: of those, see `headstart.Ahead`.

    Raises:
        InvalidOption: `ahead` or `threads` is given, and none of them can draft ahead.
    """
    context = replace(context, apart=ahead)
    members = _members(wanted, context, drafts, pace)
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


def _members(
    wanted: Sequence[DrafterSpec], context: BuildContext, drafts: Mapping[str, Checkpoint], pace: Pace
) -> list[Drafter]:
    return [_build(each, replace(context, last=each is wanted[-1]), drafts, pace) for each in wanted]


def _build(wanted: DrafterSpec, context: BuildContext, drafts: Mapping[str, Checkpoint], pace: Pace) -> Drafter:
    if wanted.kind == STACK:
        made = _stacked(wanted, context, drafts, pace)
    else:
        made = wanted.drafter or _made(wanted, context, drafts.get(wanted.name))
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
            context, name=wanted.name if own else draft.label, draft=model, draft_tokenizer=draft.tokenizer, copy=own
        )
        ours, theirs = context.target_tokenizer, draft.tokenizer
        if ours is not None and theirs is not None and differences(ours, theirs):
            kind = "translated"
    return _built(kind, context)


def _stacked(wanted: DrafterSpec, context: BuildContext, drafts: Mapping[str, Checkpoint], pace: Pace) -> Drafter:
    """A model with drafters of its own, which are built as if it were the target.

    Raises:
        IncompatibleTokenizer: its tokens are not the target's.
        InvalidOption: it has more of them, and a drafter that draws.
    """
    from headstart.engine.stacked import StackedDrafter  # few drafters are stacks

    checkpoint, own = drafts[str(wanted.source)], wanted.source == SELF_INT4
    ours, theirs = context.target_tokenizer, checkpoint.tokenizer
    other = differences(ours, theirs) if ours is not None and theirs is not None else ()
    if other:
        raise IncompatibleTokenizer(
            f"drafter={wanted.name!r}: {wanted.source} has other tokens than the target",
            hint="a model with other tokens can draft, but not with a drafter of its own: name it alone",
            differences=other,
        )
    model = checkpoint.runner("int4" if own else context.quantize or "none")
    cache = model.new_cache(context.slots)
    inside = replace(
        context,
        target=model,
        target_source=context.target_source if own else checkpoint.source,
        budget=None,
        residual=None,
        store=None,
    )
    drafter = Cascade(_members(wanted.inner, inside, drafts, pace))
    if model.vocab_size > context.target.vocab_size and any(map(capabilities.draws, capabilities.parts(drafter))):
        raise InvalidOption(
            f"drafter={wanted.name!r}: {wanted.source} has {model.vocab_size} tokens, and the target "
            f"{context.target.vocab_size}, so none that is drawn can draft for it",
            hint="let 'ngram' or 'suffix' draft for it, or name it alone",
        )
    attach(drafter, model, cache)
    pacing = pace(wanted.name, model, cache, drafter)
    return StackedDrafter(
        model,
        cache,
        drafter,
        pacing,
        name=wanted.name,
        vocab_size=context.target.vocab_size,
        budget=context.budget,
        copy=own and not context.apart,
        same_model=own,
    )


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
