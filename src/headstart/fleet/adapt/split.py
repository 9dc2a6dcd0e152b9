"""Traffic to learn from and traffic to judge on, so that nothing that was learned is judged.

Three things would make a drafter look better on held-out traffic than it will be: the same exchange twice, an earlier
or later turn of the same conversation, and prompts that differ in a few words. Exact repeats are removed. A
conversation, that is, prompts of which one begins with the other, goes to one side as a whole, by the hash of its first
prompt: the side stays the same as a file grows. What is still like something held out is not learned from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.base.traffic import Exchange, Tokens

SHINGLE = 13
"""Tokens of a run that two prompts may have in common; n-grams of 13 are the usual ones in tests for contamination
(Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C)."""
ALIKE = 0.5
"""From this share of its runs on, a prompt is like one that is held out."""
COMMON = 0.1
"""Runs that stand in this share of the conversations are boilerplate, such as a system prompt, and are not compared."""
_SHORT = 16
"""A prompt below this length makes no conversation of those that begin with it."""
_LEAST_COMMON = 10

Runs = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """An exchange to judge on."""

    exchange: Exchange
    conversation: str
    """Names the conversation: 16 hexadecimal digits, from which nothing can be read."""


@dataclass(frozen=True, slots=True)
class Split:
    """Both sides.

    learnt: to learn from, in the order of the file.
    held_out: to judge on, each prompt once, in an order that depends on hashes alone.
    repeats: exchanges that were in the file before, or prompts that were held out already.
    alike: exchanges left out of `learnt` because their prompts are like held-out ones.
    """

    learnt: tuple[Exchange, ...]
    held_out: tuple[HeldOut, ...]
    repeats: int
    alike: int


def split(exchanges: Sequence[Exchange], share: float, *, salt: str = "") -> Split:
    """Hold out about this share of the conversations. salt: another one holds out others.

    Raises:
        InvalidOption: the share is not between 0 and 1.
    """
    check_number("held_out", share, above=0, high=0.9)
    distinct = list({(each.prompt, each.output): each for each in exchanges}.values())
    roots = [_digest(prompt, salt) for prompt in _first_prompts([each.prompt for each in distinct])]
    aside = [int(root, 16) < share * 16**16 for root in roots]
    held: dict[Tokens, HeldOut] = {}
    for each, root, out in zip(distinct, roots, aside, strict=True):
        if out:
            held[each.prompt] = HeldOut(each, root)  # the newest answer
    runs = _own_runs([each.prompt for each in distinct], roots)
    known = np.unique(np.concatenate([np.empty(0, np.uint64), *(r for r, out in zip(runs, aside, strict=True) if out)]))
    learnt = [
        each
        for each, own, out in zip(distinct, runs, aside, strict=True)
        if not out and np.isin(own, known).mean() < ALIKE
    ]
    ordered = sorted(held.values(), key=lambda one: (one.conversation, _digest(one.exchange.prompt, salt)))
    repeats = len(exchanges) - len(distinct) + sum(aside) - len(held)
    return Split(tuple(learnt), tuple(ordered), repeats, len(distinct) - sum(aside) - len(learnt))


def require(found: Split, least: int) -> None:
    """Raises:
    InvalidOption: there are not so many held-out conversations to judge on, or nothing to learn from.
    """
    conversations = len({one.conversation for one in found.held_out})
    if conversations < least:
        raise InvalidOption(
            f"{conversations} held-out conversations are too few to judge on: {least} are needed",
            hint="record more traffic, or hold out a larger share (--held-out)",
        )
    if not found.learnt:
        raise InvalidOption("nothing is left to learn from", hint="record more traffic, or hold out a smaller share")


def _first_prompts(prompts: Sequence[Tokens]) -> list[Tokens]:
    """For each prompt the first one of its conversation: the shortest that it begins with, in a chain of such."""
    found = list(prompts)
    chain: list[int] = []  # of prompts that begin with each other; what begins with one stands right behind it
    for i in sorted(range(len(prompts)), key=prompts.__getitem__):
        while chain and prompts[i][: len(prompts[chain[-1]])] != prompts[chain[-1]]:
            chain.pop()
        if chain:
            found[i] = found[chain[-1]]
        if len(prompts[i]) >= _SHORT:
            chain.append(i)
    return found


def _digest(prompt: Tokens, salt: str) -> str:
    text = f"{salt} {' '.join(map(str, prompt))}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own_runs(prompts: Sequence[Tokens], conversations: Sequence[str]) -> list[Runs]:
    """The hashes of each prompt's runs of tokens without boilerplate; of a prompt that is nothing else, all."""
    runs = [_runs(prompt) for prompt in prompts]
    by_conversation: dict[str, list[Runs]] = {}
    for own, conversation in zip(runs, conversations, strict=True):
        by_conversation.setdefault(conversation, []).append(own)
    each = [np.unique(np.concatenate(several)) for several in by_conversation.values()]
    values, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *each]), return_counts=True)
    common = values[counts >= max(_LEAST_COMMON, COMMON * len(each))]
    found = []
    for all_runs in runs:
        own = all_runs[~np.isin(all_runs, common)]
        found.append(own if len(own) else all_runs)
    return found


def _runs(prompt: Tokens) -> Runs:
    """Hashes [n] of the runs of 13 tokens of a prompt; a shorter prompt is one run."""
    tokens = np.asarray(prompt, dtype=np.uint64) + np.uint64(1)
    if len(tokens) < SHINGLE:
        tokens = np.pad(tokens, (0, SHINGLE - len(tokens)))
    hashed = np.lib.stride_tricks.sliding_window_view(tokens, SHINGLE) @ _FACTORS  # modulo 2**64
    return np.unique(hashed)


_FACTORS = np.random.default_rng(13).integers(0, 2**64, SHINGLE, dtype=np.uint64) | np.uint64(1)
