"""Conversations of several turns: each turn is a prompt, with the model's own answers before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.base.prompt_sets import PromptItem
from headstart.engine.prompts import has_chat_template, templated
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


def every_turn(engine: Engine, items: Sequence[PromptItem], sampling: Sampling) -> list[PromptItem]:
    """The items as they are sent, in order; behind each conversation's first turn come its later ones.

    engine: writes the answers; one without a drafter, so that no drafter remembers them. A conversation ends early
    where it fills the context. Without a chat template there are first turns only.

    Raises:
        InvalidPrompt: see `headstart.engine.prompts.encode_chat`.
        NonFiniteLogits: an answer could not be generated.
    """
    turns = [[templated(engine.tokenizer, item)] for item in items]
    going = {number: item.chat for number, item in enumerate(items) if item.chat is not None}
    if not has_chat_template(engine.tokenizer):
        going = {}
    while True:
        going = {n: chat for n, chat in going.items() if chat.later and _fits(engine, turns[n][-1])}
        if not going:
            return [item for one in turns for item in one if item is one[0] or _fits(engine, item)]
        outputs = engine.generate([turns[n][-1].prompt for n in going], sampling)
        for n, output in zip(list(going), outputs, strict=True):
            if output.error is not None:
                raise output.error
            going[n] = going[n].answered(output.text)
            later = replace(items[n], name=f"{items[n].name}, turn {len(turns[n]) + 1}", chat=going[n])
            turns[n].append(templated(engine.tokenizer, later))


def _fits(engine: Engine, item: PromptItem) -> bool:
    return len(item.prompt) < engine.target.max_length
