"""The places that sampled texts pass through, each with its exact law: what bets are made on.

A place is one prefix of one ask. Its law is kept over C = M + 2 classes: the M likeliest tokens, likeliest first, all
others together, and those of probability 0. With up to `WHOLE` tokens in the vocabulary nothing is lumped together;
else lumping hides differences among tokens that are all unlikely, and makes nothing look different that is not.

Beside p a place has scores: for each class, how strongly it has a property that some known bug favours or shuns. All
of them are known before the place's token is drawn. Shapes: J scores, n positions of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ContextExceeded, NonFiniteLogits
from headstart.insight.audit.subject import Ask, Law, Reference
from headstart.types import Sampling

WHOLE = 512
"""Vocabularies up to this size are kept token by token."""
KEPT = 128
"""The likeliest tokens that are kept of a larger one."""
RECENT = 2
"""The tokens that count as the last few of an output."""
BUCKETS = 509
"""Token ids are learnt about modulo this prime: all apart in a small vocabulary, a hash in a large one."""
COLDEST = 4.0
"""Nats below the likeliest token from which on all tokens have the same score for being likely."""

SCORES = (
    ("likelier", "log-probability"),
    ("likelier", "the likeliest"),
    ("repeats", "in the output"),
    ("repeats", f"in its last {RECENT} tokens"),
    ("ends", "ends the text"),
    ("guesses", "likelier under the draft"),
    ("lag", "likelier one row before"),
    ("lag", "likelier one row after"),
)
"""(strategy, property) of each score."""
_AFTER = len(SCORES) - 1
OUTPUT_SCORE = 2
DRAFT_SCORE = 5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class Place:
    """One prefix: `ask` and the `tokens` after its prompt. mass: the probability that a text begins like this.

    ids: [M] tokens by falling probability. p: [C]. scores: [J, C]. possible: bits of the tokens with p > 0, where
    neither all have that nor only kept ones do.
    """

    number: int
    ask: int
    tokens: tuple[int, ...]
    mass: float
    ids: Ints
    p: Floats
    scores: NDArray[np.float32]
    possible: NDArray[np.uint8] | None
    _class: dict[int, int]
    _after: Floats | None = None

    @property
    def rest(self) -> int:
        """The class of all tokens that are possible and not kept."""
        return len(self.ids)

    @property
    def impossible(self) -> int:
        return len(self.ids) + 1

    def class_of(self, token: int) -> int:
        kept = self._class.get(token)
        if kept is not None:
            return kept if self.p[kept] > 0 else self.impossible
        if self.p[self.rest] == 0 or token < 0:
            return self.impossible
        if self.possible is None:
            return self.rest
        byte = token >> 3
        inside = byte < len(self.possible) and (int(self.possible[byte]) >> (7 - (token & 7))) & 1
        return self.rest if inside else self.impossible

    def add_after(self, law: Law, weight: float) -> None:
        """Take in the law after one of this place's tokens, of probability `weight`."""
        seen = weight * _lumped(law, self.ids)
        self._after = seen if self._after is None else self._after + seen

    def scores_now(self) -> NDArray[np.float32]:
        """[J, C] with what is known by now of the laws one row on."""
        if self._after is None:
            return self.scores
        found = self.scores.copy()
        found[_AFTER] = _preference(self._after / self._after.sum(), self.p)
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Positions that are bet on together, in the order of drawing: n of them, none knowing another's token.

    places: [n] numbers of the places. p: [n, C]. scores: [n, J, C]. buckets: [n, C] of token ids, the last two
    classes having one of their own. drawn: [n] classes.
    """

    places: Sequence[Place]
    p: Floats
    scores: NDArray[np.float32]
    buckets: Ints
    drawn: Ints

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, places: Sequence[Place], tokens: Sequence[int]) -> Block:
        ids = np.stack([place.ids for place in places])
        lumped = np.full((len(places), 2), BUCKETS)
        return cls(
            places,
            np.stack([place.p for place in places]),
            np.stack([place.scores_now() for place in places]),
            np.concatenate([ids % BUCKETS, lumped], axis=1),
            np.array([place.class_of(token) for place, token in zip(places, tokens, strict=True)]),
        )


@dataclass(eq=False)
class Places:
    """Every prefix met so far. Each is asked of the reference once.

    suspect: a law that the subject may lean towards, such as its draft's; one that has none for a prefix gives None.
    """

    reference: Reference
    asks: Sequence[Ask]
    suspect: Reference | None = None
    all: list[Place] = field(default_factory=list)
    _found: list[dict[tuple[int, ...], Place]] = field(init=False)
    _new: list[tuple[Place, Law, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._found = [{} for _ in self.asks]

    def find(self, ask: int, tokens: tuple[int, ...]) -> Place | None:
        return self._found[ask].get(tokens)

    def along(self, ask: int, tokens: tuple[int, ...]) -> list[Place]:
        """The places of these tokens: [i] is where tokens[i] was drawn."""
        known = self._found[ask]
        missing = [i for i in range(len(tokens)) if tokens[:i] not in known]
        if missing:
            self._read(ask, tokens, missing[0])
        return [known[tokens[:i]] for i in range(len(tokens))]

    def settle(self) -> None:
        """The block is over: what its texts showed of later rows may now be used."""
        for parent, law, weight in self._new:
            if weight > 0:
                parent.add_after(law, weight)
        self._new.clear()

    def _guessed(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Law | None:
        """The suspect's laws; None where it has none: a draft's context may be shorter than the target's."""
        if self.suspect is None:
            return None
        try:
            return self.suspect.laws(prompt, tokens, sampling)
        except ContextExceeded:
            return None

    def _read(self, ask: int, tokens: tuple[int, ...], begin: int) -> None:
        prompt, sampling = self.asks[ask].prompt, self.asks[ask].sampling
        read = tokens[:-1]
        laws = self.reference.laws(prompt, read, sampling)
        guesses = self._guessed(prompt, read, sampling)
        ends = np.array(sorted(self.reference.stop_ids(sampling)), dtype=np.int64)
        for i in range(begin, len(tokens)):
            parent = self._found[ask][tokens[: i - 1]] if i else None
            law = np.asarray(laws[i], dtype=np.float64)
            if not np.isfinite(law).all():
                raise NonFiniteLogits(
                    f"the reference has no law after {len(prompt) + i} tokens: its logits are not finite",
                    hint="check the checkpoint, or use a dtype with more range (float32)",
                )
            law = law / law.sum()
            before = None if parent is None else np.asarray(laws[i - 1], dtype=np.float64)
            drawn = 1.0 if parent is None or before is None else parent.mass * float(before[tokens[i - 1]])
            guess = None if guesses is None else np.asarray(guesses[i], dtype=np.float64)
            place = _place(len(self.all), ask, tokens[:i], drawn, law, before, guess, ends)
            self.all.append(place)
            self._found[ask][tokens[:i]] = place
            if parent is not None and before is not None:
                self._new.append((parent, law, float(before[tokens[i - 1]])))


def _place(
    number: int,
    ask: int,
    tokens: tuple[int, ...],
    mass: float,
    law: Floats,
    before: Floats | None,
    guess: Floats | None,
    ends: Ints,
) -> Place:
    ids = _kept(law, np.concatenate([ends, np.array(tokens, dtype=np.int64)]))
    p = _lumped(law, ids)
    some, enough = bool((law == 0).any()), len(ids) == len(law)
    scores = np.zeros((len(SCORES), len(p)), dtype=np.float32)
    scores[0] = np.maximum(each_log(p[None])[0] - np.log(p[: len(ids)].max()), -COLDEST)
    scores[1, 0] = 1
    scores[2, : len(ids)] = np.isin(ids, tokens)
    scores[3, : len(ids)] = np.isin(ids, tokens[-RECENT:])
    scores[4, : len(ids)] = np.isin(ids, ends)
    if guess is not None:
        scores[DRAFT_SCORE] = _preference(_lumped(guess, ids), p)
    if before is not None:
        scores[6] = _preference(_lumped(before, ids), p)
    return Place(
        number,
        ask,
        tokens,
        mass,
        ids,
        p,
        scores,
        np.packbits(law > 0) if some and not enough and p[len(ids)] > 0 else None,
        {int(token): i for i, token in enumerate(ids)},
    )


def each_log(p: Floats) -> Floats:
    """log p [n, C] of a single token of each class; those lumped together count as the least likely one kept."""
    with np.errstate(divide="ignore"):
        logs = np.log(p)
    least = np.where(p[:, :-2] > 0, logs[:, :-2], np.inf).min(1)
    logs[:, -2] = np.where(p[:, -2] > 0, np.minimum(logs[:, -2], least), logs[:, -2])
    each: Floats = logs
    return each


def _kept(law: Floats, wanted: Ints) -> Ints:
    """The tokens that get a class of their own, by falling probability (equal ones by id); `wanted` first in line."""
    if len(law) <= WHOLE:
        return np.argsort(-law, kind="stable")
    wanted = np.unique(wanted[(wanted >= 0) & (wanted < len(law))])[: KEPT // 2]
    top = np.argpartition(-law, KEPT)[:KEPT]
    ranked = top[np.lexsort((top, -law[top]))]
    others = ranked[~np.isin(ranked, wanted)][: KEPT - len(wanted)]
    ids = np.concatenate([wanted, others])
    kept: Ints = ids[np.lexsort((ids, -law[ids]))]
    return kept


def _lumped(law: Law, ids: Ints) -> Floats:
    """A law [V] over the classes [C] of a place."""
    kept = np.asarray(law, dtype=np.float64)[ids]
    rest = max(1.0 - float(kept.sum()), 0.0) if len(ids) < len(law) and kept.sum() < float(law.sum()) else 0.0
    found: Floats = np.concatenate([kept, [rest, 0.0]])
    found /= found.sum()
    return found


def _preference(other: Floats, p: Floats) -> Floats:
    """other / (other + p): above a half for what the other law has more of; flat where both have nothing."""
    total = other + p
    share: Floats = np.divide(other, total, out=np.full_like(p, 0.5), where=total > 0)
    return share
