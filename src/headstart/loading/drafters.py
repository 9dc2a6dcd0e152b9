"""From the drafters a user wants to drafters that run. The one place that knows them all."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from headstart.drafters import Drafter
from headstart.drafters.cascade import Cascade
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.lookahead import LookaheadDrafter
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.medusa import MedusaDrafter
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.drafters.translated import TranslatedDraft
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import Wanted
from headstart.model.runner import ModelRunner
from headstart.model.tokens.tokenizers import differences

SURE = 3
"""Tokens of match that are asked for where a drafter further back does better on a weaker match."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Means:
    """What drafters are made with. runner: the target's. drafts: draft models by name. options: of the user's, only
    those that were given: `budget`, `tree`."""

    target: Checkpoint
    runner: ModelRunner
    drafts: Mapping[str, Checkpoint]
    slots: int
    quantize: str | None
    store: SuffixStore | None
    options: Mapping[str, Any]


def make(wanted: Sequence[Wanted], means: Means) -> Drafter | None:
    """The drafter, or several as one; None for plain decoding."""
    members = [_make(each, means, last=each is wanted[-1]) for each in wanted]
    if not members:
        return None
    return members[0] if len(members) == 1 else Cascade(members)


def _make(wanted: Wanted, means: Means, *, last: bool) -> Drafter:
    budget = {name: value for name, value in means.options.items() if name == "budget"}
    match wanted.kind:
        case "ngram":
            return NgramDrafter(**budget) if last else NgramDrafter(longest=5, shortest=SURE, **budget)
        case "suffix":
            return SuffixDrafter(store=means.store, shortest=1 if last else SURE, **budget)
        case "early-exit":
            return EarlyExitDrafter(text=means.target.some_text(), **means.options)
        case "lookahead":
            return LookaheadDrafter(**budget)
        case "medusa":
            return MedusaDrafter.load(wanted.source, means.runner, quantize=means.quantize, name=wanted.name, **budget)
        case "eagle":
            return EagleDrafter.load(
                wanted.source,
                means.runner,
                target_folder=means.target.source,
                slots=means.slots,
                quantize=means.quantize,
                name=wanted.name,
                **means.options,
            )
        case "draft":
            return _draft_model(means.drafts[wanted.name], means)
        case _:
            assert_never(wanted.kind)


def _draft_model(draft: Checkpoint, means: Means) -> Drafter:
    """A draft LM; one with a tokenizer of its own has its guesses translated."""
    runner = draft.runner(means.quantize)
    common = {"name": draft.label, "vocab_size": means.runner.vocab_size, "slots": means.slots, **means.options}
    ours, theirs = means.target.tokenizer, draft.tokenizer
    if ours is None or theirs is None or not differences(ours, theirs):
        return DraftModel(runner, **common)
    common.pop("tree", None)
    made = TranslatedDraft(runner, target_tokenizer=ours, draft_tokenizer=theirs, **common)
    log.warning("draft %s has another tokenizer: %s", draft.label, made.translation)
    return made
