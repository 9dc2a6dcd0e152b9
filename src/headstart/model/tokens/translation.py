"""Between two vocabularies: which tokens of a draft and of its target write the same, and how drafts are translated.

One of three methods is chosen once for a pair of tokenizers, from best to worst:

"ids"           both have the same words under other numbers (or other special tokens only): tokens are renumbered.
"intersection"  most of what either writes are words of both: sampled drafts come from the draft's distribution over
                those alone (token-level intersection), greedy ones through text.
"text"          all drafts go through text: what the draft writes is tokenised again and proposed as point masses.

Source: lossless speculative decoding for heterogeneous vocabularies (Timor et al. 2025, arXiv:2502.05202).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headstart.model.tokens.vocabulary import Vocabulary

Method = Literal["ids", "intersection", "text"]

SAMPLE = """\
The first snow had fallen overnight, and by morning the roads around the village were quiet. "We should have left \
yesterday," she said, counting the 12 boxes again; nobody answered. It isn't clear that anything else would have helped.

def mean(values, default=0.0):
    # Return the average of a list of numbers.
    if not values:
        raise ValueError("no values were given")
    total = sum(float(value) for value in values)
    return {"mean": total / len(values), "count": len(values)}
"""
"""Prose and code on which two tokenizers are compared."""

COVERED = 0.8
"""The share of either's tokens of `SAMPLE` that the other must have for drafts over the intersection."""


@dataclass(frozen=True, eq=False)
class Translation:
    """What two vocabularies have in common.

    target: the target's vocabulary.
    draft: the draft's vocabulary.
    sizes: entries of the target's and of the draft's logits.
    to_draft: for every target token with a counterpart, the draft's token.
    to_target: the pairs of drafts over the intersection, draft to target: words of both, the first token where
        several write the same, and special tokens of the same text or use.
    intersection: how many of these pairs are words.
    covered: the share of a sample text's tokens that both have, by target and by draft, the lower of the two.
    ratio: draft tokens per target token, in that text.
    method: how drafts are translated.
    """

    target: Vocabulary
    draft: Vocabulary
    sizes: tuple[int, int]
    to_draft: Mapping[int, int]
    to_target: Mapping[int, int]
    intersection: int
    covered: float
    ratio: float
    method: Method

    @classmethod
    def between(
        cls,
        target: Any,
        draft: Any,
        *,
        target_vocab: int,
        draft_vocab: int,
        name: str = "the draft",
        method: Method | None = None,
    ) -> Translation:
        """Compare two tokenizers. target_vocab, draft_vocab: entries of the models' logits. method: None chooses.

        Raises `IncompatibleTokenizer` if one cannot be read as bytes; see `Vocabulary`.
        """
        ours, theirs = Vocabulary(target, name="the target"), Vocabulary(draft, name=name)
        here, there = _Words(ours, target_vocab), _Words(theirs, draft_vocab)
        to_draft = {token: there.token(*key) for token, key in here.keys.items() if key[0] in there}
        to_target = _pairs(here, there)
        words = len(to_target)
        to_draft.update(_marks(ours, theirs, target_vocab, draft_vocab))
        taken = set(to_target.values())
        for mark, counterpart in _marks(theirs, ours, draft_vocab, target_vocab).items():
            if counterpart not in taken:
                taken.add(counterpart)
                to_target[mark] = counterpart
        text = SAMPLE.encode()
        mine, other = ours.encode(text).ids, theirs.encode(text).ids
        covered = min(
            sum(token in to_draft for token in mine) / max(1, len(mine)),
            sum(token in to_target for token in other) / max(1, len(other)),
        )
        if method is None:
            same = _trained(ours, target_vocab) == _trained(theirs, draft_vocab)
            method = "ids" if same and words else "intersection" if covered >= COVERED else "text"
        sizes = target_vocab, draft_vocab
        ratio = len(other) / max(1, len(mine))
        return cls(ours, theirs, sizes, to_draft, to_target, words, covered, ratio, method)

    @property
    def share(self) -> float:
        """The part of the target's words that the draft has too."""
        return self.intersection / max(1, sum(word is not None for word in self.target.words[: self.sizes[0]]))

    def __str__(self) -> str:
        how = {
            "ids": "the same words under other ids, so drafts are renumbered",
            "intersection": "sampled drafts come from the shared ones, greedy drafts go through text",
            "text": "drafts go through text",
        }[self.method]
        return f"{self.intersection} tokens shared ({self.share:.0%} of the target's, {self.covered:.0%} in use): {how}"


class _Words:
    """The words of a vocabulary that its model has logits for, looked up from the other side.

    One word may have several tokens. A token that spells a raw byte is kept apart from one that was trained: where both
    vocabularies have both kinds, each is paired with its like.
    """

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        bytewise = vocabulary.bytewise
        self.keys = {i: (word, i in bytewise) for i, word in enumerate(vocabulary.words[:size]) if word is not None}
        self._first: dict[tuple[bytes, bool], int] = {}
        for i, key in self.keys.items():
            self._first.setdefault(key, i)

    def __contains__(self, word: bytes) -> bool:
        return (word, False) in self._first or (word, True) in self._first

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        """Every word once for each kind, trained ones first."""
        return iter(sorted(self._first, key=lambda key: key[1]))

    def token(self, word: bytes, bytewise: bool) -> int:
        """The first token of a word that is in the vocabulary, of this kind if there is one."""
        found = self._first.get((word, bytewise))
        return self._first[word, not bytewise] if found is None else found


def _pairs(here: _Words, there: _Words) -> dict[int, int]:
    """Draft to target: the words of both, no token of either twice."""
    pairs: dict[int, int] = {}
    taken = set[int]()
    for word, bytewise in there:
        if word in here and (token := here.token(word, bytewise)) not in taken:
            taken.add(token)
            pairs[there.token(word, bytewise)] = token
    return pairs


def _trained(vocabulary: Vocabulary, size: int) -> set[bytes]:
    """The words of the trained vocabulary, without tokens added later."""
    return {word for i, word in enumerate(vocabulary.words[:size]) if word is not None and i not in vocabulary.added}


def _marks(one: Vocabulary, other: Vocabulary, size: int, other_size: int) -> dict[int, int]:
    """Special tokens of one and their counterparts: of the same text, else of the same use."""
    found = {i: other.specials[text] for text, i in one.specials.items() if text in other.specials}
    for role in ("eos", "bos"):
        if role in one.roles and role in other.roles:
            found.setdefault(one.roles[role], other.roles[role])
    return {i: there for i, there in found.items() if i < size and there < other_size}
