"""The prefixes that sampled texts pass through, each with its exact distribution: what bets are made on.

A distribution is kept over C = M + 2 classes: the M likeliest tokens, likeliest first, all others together, and those
of probability 0. With up to `WHOLE` tokens in the vocabulary nothing is lumped together; else lumping hides differences
among tokens that are all unlikely, and makes nothing look different that is not.

Beside its distribution p a prefix has scores: for each class, how strongly it has a property that some known bug
favours or shuns. All of them are known before the next token is drawn. Shapes: J scores, n positions of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import ContextExceeded, NonFiniteLogits
from headstart.measure.audit.subject import Ask, Distribution, Reference

WHOLE = 512
"""Vocabularies of up to this many tokens are kept token by token."""
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
LIKELIER_SCORE, LIKELIEST_SCORE, OUTPUT_SCORE, RECENT_SCORE = range(4)
END_SCORE, DRAFT_SCORE, BEFORE_SCORE, AFTER_SCORE = range(4, 8)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class Prefix:
    """The tokens emitted so far after the prompt of one ask, and the distribution of the next.

    number: counts the prefixes of an audit
    mass: the probability that a text begins like this
    ids: [M] tokens by falling probability
    p: [C] the distribution
    scores: [J, C]
    possible: bits of the tokens with p > 0, where neither all tokens have that nor only kept ones
    """

    number: int
    mass: float
    ids: Ints
    p: Floats
    scores: NDArray[np.float32]
    possible: NDArray[np.uint8] | None
    _class: dict[int, int] = field(init=False)
    _after: Floats | None = None

    def __post_init__(self) -> None:
        self._class = {int(token): i for i, token in enumerate(self.ids)}

    @property
    def rest(self) -> int:
        """The class of all tokens that are possible and not kept."""
        return len(self.ids)

    @property
    def impossible(self) -> int:
        """The class of all tokens of probability 0."""
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

    def add_after(self, distribution: Distribution, weight: float) -> None:
        """Take in the distribution after one of the next tokens, which has the probability `weight`."""
        seen = weight * _lumped(distribution, self.ids)
        self._after = seen if self._after is None else self._after + seen

    def scores_now(self) -> NDArray[np.float32]:
        """[J, C] with what is known by now of the distributions one row on."""
        if self._after is None:
            return self.scores
        found = self.scores.copy()
        found[AFTER_SCORE] = _preference(self._after / self._after.sum(), self.p)
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Positions that are bet on together, in the order of drawing: n of them, none knowing another's token.

    prefixes: [n] those the tokens were drawn after
    p: [n, C] their distributions
    scores: [n, J, C]
    buckets: [n, C] of token ids, the last two classes having one of their own
    drawn: [n] the classes of the tokens
    """

    prefixes: Sequence[Prefix]
    p: Floats
    scores: NDArray[np.float32]
    buckets: Ints
    drawn: Ints

    def __len__(self) -> int:
        return len(self.prefixes)

    @classmethod
    def of(cls, prefixes: Sequence[Prefix], tokens: Sequence[int]) -> Block:
        ids = np.stack([prefix.ids for prefix in prefixes])
        lumped = np.full((len(prefixes), 2), BUCKETS)
        return cls(
            prefixes,
            np.stack([prefix.p for prefix in prefixes]),
            np.stack([prefix.scores_now() for prefix in prefixes]),
            np.concatenate([ids % BUCKETS, lumped], axis=1),
            np.array([prefix.class_of(token) for prefix, token in zip(prefixes, tokens, strict=True)]),
        )


@dataclass(eq=False)
class Prefixes:
    """Every prefix met so far. The reference computes the distribution of each once.

    draft: a distribution that the subject may lean towards, such as its draft model's.
    """

    reference: Reference
    asks: Sequence[Ask]
    draft: Reference | None = None
    count: int = 0
    _found: list[dict[tuple[int, ...], Prefix]] = field(init=False)
    _new: list[tuple[Prefix, Distribution, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._found = [{} for _ in self.asks]

    def along(self, ask: int, tokens: tuple[int, ...]) -> list[Prefix]:
        """The prefixes of these tokens: [i] is what tokens[i] was drawn after.

        Raises:
            NonFiniteLogits: the reference has no distribution there.
        """
        known = self._found[ask]
        missing = [i for i in range(len(tokens)) if tokens[:i] not in known]
        if missing:
            self._read(ask, tokens, missing[0])
        return [known[tokens[:i]] for i in range(len(tokens))]

    def settle(self) -> None:
        """The block is over: what its texts showed of later rows may now be used."""
        for parent, distribution, weight in self._new:
            if weight > 0:
                parent.add_after(distribution, weight)
        self._new.clear()

    def _draft_distributions(self, prompt: Sequence[int], tokens: Sequence[int], ask: Ask) -> Distribution | None:
        """None where the draft has no distribution: its context may be shorter than the target's."""
        if self.draft is None:
            return None
        try:
            return self.draft.distributions(prompt, tokens, ask.sampling)
        except ContextExceeded:
            return None

    def _read(self, number: int, tokens: tuple[int, ...], begin: int) -> None:
        ask, known = self.asks[number], self._found[number]
        found = self.reference.distributions(ask.prompt, tokens[:-1], ask.sampling)
        distributions = np.asarray(found, dtype=np.float64)
        drafted = self._draft_distributions(ask.prompt, tokens[:-1], ask)
        ends = np.array(sorted(self.reference.stop_ids(ask.sampling)), dtype=np.int64)
        for i in range(begin, len(tokens)):
            if not np.isfinite(distributions[i]).all():
                raise NonFiniteLogits(
                    f"the reference has no distribution after {len(ask.prompt) + i} tokens: its logits are not finite",
                    hint="check the checkpoint, or use a dtype with more range (float32)",
                )
            distribution = distributions[i] / distributions[i].sum()
            mass, before = 1.0, distributions[i - 1] if i else None
            if before is not None:
                parent, weight = known[tokens[: i - 1]], float(before[tokens[i - 1]])
                mass = parent.mass * weight
                self._new.append((parent, distribution, weight))
            draft = None if drafted is None else np.asarray(drafted[i], dtype=np.float64)
            known[tokens[:i]] = _prefix(self.count, mass, tokens[:i], distribution, before, draft, ends)
            self.count += 1


def _prefix(
    number: int,
    mass: float,
    tokens: tuple[int, ...],
    distribution: Floats,
    before: Floats | None,
    draft: Floats | None,
    ends: Ints,
) -> Prefix:
    """A prefix with the distribution [V] after it, the distribution one row before and the draft's, where they are
    known."""
    ids = _kept(distribution, np.concatenate([ends, np.array(tokens, dtype=np.int64)]))
    p = _lumped(distribution, ids)
    scores = np.zeros((len(SCORES), len(p)), dtype=np.float32)
    scores[LIKELIER_SCORE] = np.maximum(each_log(p[None])[0] - np.log(p[: len(ids)].max()), -COLDEST)
    scores[LIKELIEST_SCORE, 0] = 1
    scores[OUTPUT_SCORE, : len(ids)] = np.isin(ids, tokens)
    scores[RECENT_SCORE, : len(ids)] = np.isin(ids, tokens[-RECENT:])
    scores[END_SCORE, : len(ids)] = np.isin(ids, ends)
    for score, other in ((DRAFT_SCORE, draft), (BEFORE_SCORE, before)):
        if other is not None:
            scores[score] = _preference(_lumped(other, ids), p)
    some_are_not = bool((distribution == 0).any()) and len(ids) < len(distribution) and p[len(ids)] > 0
    return Prefix(number, mass, ids, p, scores, np.packbits(distribution > 0) if some_are_not else None)


def each_log(p: Floats) -> Floats:
    """Log p [n, C] of a single token of each class; those lumped together count as the least likely one kept."""
    with np.errstate(divide="ignore"):
        logs = np.log(p)
    least = np.where(p[:, :-2] > 0, logs[:, :-2], np.inf).min(1)
    logs[:, -2] = np.where(p[:, -2] > 0, np.minimum(logs[:, -2], least), logs[:, -2])
    each: Floats = logs
    return each


def _kept(distribution: Floats, wanted: Ints) -> Ints:
    """The tokens that get a class of their own, by falling probability (equal ones by id); `wanted` first in line."""
    if len(distribution) <= WHOLE:
        return np.argsort(-distribution, kind="stable")
    wanted = np.unique(wanted[(wanted >= 0) & (wanted < len(distribution))])[: KEPT // 2]
    top = np.argpartition(-distribution, KEPT)[:KEPT]
    ranked = top[np.lexsort((top, -distribution[top]))]
    others = ranked[~np.isin(ranked, wanted)][: KEPT - len(wanted)]
    ids = np.concatenate([wanted, others])
    kept: Ints = ids[np.lexsort((ids, -distribution[ids]))]
    return kept


def _lumped(distribution: Distribution, ids: Ints) -> Floats:
    """A distribution [V] over the classes [C] of a prefix that keeps these tokens."""
    kept = np.asarray(distribution, dtype=np.float64)[ids]
    lumped = len(ids) < len(distribution) and kept.sum() < float(distribution.sum())
    rest = max(1.0 - float(kept.sum()), 0.0) if lumped else 0.0
    found: Floats = np.concatenate([kept, [rest, 0.0]])
    found /= found.sum()
    return found


def _preference(other: Floats, p: Floats) -> Floats:
    """other / (other + p): above a half for what the other distribution has more of; flat where both have nothing."""
    total = other + p
    share: Floats = np.divide(other, total, out=np.full_like(p, 0.5), where=total > 0)
    return share
