"""Prompts that a chat model writes itself: given its template up to where the user's words begin, it writes them.

Source: Magpie (arXiv:2406.08464). A model writes the questions that it was tuned on, so these prompts are of the kind
that its drafter will meet; and no data is needed.

Without an opening a chat model writes the questions that it was tuned on most; `OPENINGS` spread the prompts over what
people use one for. They are ours, generic on purpose, and each is cut where the model has everything still to choose.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.types import Output, Sampling

OPENINGS: dict[str, tuple[str, ...]] = {
    "open": ("",) * 12,
    "explain": ("Explain", "Explain why", "How does", "What is the difference between", "What happens when"),
    "code": (
        "Write a Python function that",
        "Write a program that",
        "Find the mistake in this code:\n\n",
        "Write an SQL query",
        "How do I write a test for",
    ),
    "translation": ("Translate into French:", "Translate into Spanish:", "Translate this into German:"),
    "summary": (
        "Summarise the following text",
        "What are the main points of this text?\n\n",
        "Shorten this paragraph:",
    ),
    "list": ("Give me five", "Make a list of", "Name three"),
    "maths": ("Calculate", "Solve", "A shop sells", "If a train"),
    "extraction": ("Extract the names and dates from", "Turn this into JSON:", "Sort the following into groups:"),
    "rewriting": ("Rewrite this politely:", "Correct the mistakes in", "Make this sentence shorter:"),
    "writing": ("Write a short story about", "Write an email", "Write a poem about", "Continue this story:"),
    "dialogue": ("Write a dialogue between", "Pretend that you are", "Let us play a game:"),
    "advice": ("How can I", "I would like to", "My friend", "What should I do if"),
    "facts": ("Who was", "When did", "Where is", "Why do"),
    "reading": ("Read the text and answer the question.\n\n", "True or false:"),
    "planning": ("Make a plan for", "Suggest", "Compare"),
}
"""By kind. The empty opening is repeated, so that it is about a fifth of all."""

ALL = tuple(opening for kind in OPENINGS.values() for opening in kind)


SENTINEL = "zqxsentinelxqz"
TEMPERATURES = (0.7, 0.85, 1.0)
TOP_P = 0.95
SHORTEST = 8  # characters of a prompt
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
        """That of a tokenizer's template: a made-up message is rendered, and what surrounds it is taken.

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
