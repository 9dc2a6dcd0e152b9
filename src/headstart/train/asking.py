"""Prompts that a chat model writes itself: given its template up to where the user's words begin, it writes them.

Source: Magpie (arXiv:2406.08464). What a model was tuned on is what it asks, so these prompts are of the kind that its
drafter will meet; and no data is needed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.train.openings import ALL
from headstart.types import Output, Sampling

SENTINEL = "zqxsentinelxqz"
TEMPERATURES = (0.7, 0.85, 1.0)
TOP_P = 0.95
SHORTEST = 8  # characters of a prompt that is asked
_HINT = "give prompts as data, and --generations for the target's answers"


@dataclass(frozen=True, slots=True)
class UserTurn:
    """How a chat template wraps what the user says in a first message."""

    before: str
    """Everything up to where the user's words begin."""
    stop_ids: tuple[int, ...]
    """The special token that ends the turn, if one does."""
    stop: tuple[str, ...]
    """The text that ends it, where no special token does."""

    @classmethod
    def of(cls, tokenizer: Any) -> UserTurn:
        """That of a tokenizer's template: a made-up message is rendered, and what stands around it is taken.

        Raises:
            InvalidOption: there is no template, it refuses a message, or it does not pass the message through as it is
                or mark where it ends.
        """
        if not tokenizer.chat_template:
            raise InvalidOption("self_prompts needs a chat template, and this target has none", hint=_HINT)
        answered, bare = (_rendered(tokenizer, SENTINEL, prompted=prompted) for prompted in (True, False))
        if answered.count(SENTINEL) != 1 or bare.count(SENTINEL) != 1:
            raise InvalidOption("the chat template does not pass a message through as it stands", hint=_HINT)
        before, _, after = answered.partition(SENTINEL)
        end = bare.partition(SENTINEL)[2].strip() or after.strip()
        if not end:
            raise InvalidOption("the chat template does not mark where the user's message ends", hint=_HINT)
        ids = tokenizer(end, add_special_tokens=False)["input_ids"]
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        stop_ids = tuple(token for token in ids if token in special)[:1]
        return cls(before, stop_ids, () if stop_ids else (end.splitlines()[0],))


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt that is to be written."""

    opening: str
    ids: tuple[int, ...]
    sampling: Sampling


def question(turn: UserTurn, tokenizer: Any, number: int, *, seed: int, tokens: int) -> Question:
    """The number-th prompt of a run with this seed; nothing else decides what it will be."""
    chance = random.Random(f"{seed} asks {number}")
    opening = chance.choice(ALL)
    sampling = Sampling(
        max_tokens=tokens,
        temperature=chance.choice(TEMPERATURES),
        top_p=TOP_P,
        seed=chance.getrandbits(31),
        stop=turn.stop,
        stop_token_ids=turn.stop_ids,
    )
    ids = tokenizer(turn.before + opening, add_special_tokens=False)["input_ids"]
    return Question(opening, tuple(ids), sampling)


def asked(question: Question, written: Output) -> str | None:
    """What the user says; None where it was cut off by its length, failed, or is too short to be a prompt."""
    if written.finish_reason != "stop":
        return None
    text = (question.opening + written.text).strip()
    return text if len(text) >= SHORTEST else None


def chat_ids(message: str, tokenizer: Any) -> list[int]:
    """The token ids of a first message, up to where the answer begins."""
    ids: list[int] = tokenizer(_rendered(tokenizer, message, prompted=True), add_special_tokens=False)["input_ids"]
    return ids


def _rendered(tokenizer: Any, message: str, *, prompted: bool) -> str:
    try:
        rendered: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=prompted
        )
    except Exception as error:  # a template is a program of the model's makers, and raises what it likes
        raise InvalidOption(f"the chat template refuses a single message: {error}", hint=_HINT) from error
    return rendered
