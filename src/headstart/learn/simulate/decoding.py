"""Decoding by simulation: plain and speculative, many independent streams in lockstep.

Greedy decoding is either of them with `greedy(model)`, a distribution like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.learn.simulate.contexts import forget, shared
from headstart.learn.simulate.costs import Run
from headstart.learn.simulate.distributions import Draws, Floats, Ints
from headstart.learn.simulate.lengths import MOST, FixedK, History, Lengths, Stopping, chosen
from headstart.learn.simulate.models import Model
from headstart.learn.simulate.rules import Round, Rule, named_rule, race


def plain(target: Model, tokens: int, *, streams: int = 1, prompt: Sequence[int] = (0,), seed: int = 0) -> Ints:
    """`tokens` tokens of each of `streams` independent streams, [streams, tokens], without a draft.

    The noise is that of rule "coupled", which gives this very text for the same seed.

    Raises:
        InvalidDistribution: the model gave something that is not a distribution.
        InvalidOption, InvalidPrompt: a count below 1, a prompt outside the vocabulary.
    """
    _check(streams, seed, tokens=tokens)
    contexts, p, _, start = shared(target, None, prompt)
    heads = np.full(streams, start, dtype=np.int64)
    draws = Draws(seed, streams, contexts.vocab)
    text = np.empty((streams, tokens), dtype=np.int64)
    for i in range(tokens):
        heads = forget(contexts, heads, p)
        p.require(heads)
        text[:, i] = race(p.rows(heads), draws.exponentials(0))
        draws.advance(1)
        heads = contexts.follow(heads, text[:, i])
    return text


def speculate(
    target: Model,
    draft: Model,
    *,
    k: int | Lengths = 5,
    rule: str | Rule = "chain",
    rounds: int | None = None,
    tokens: int | None = None,
    streams: int = 1024,
    prompt: Sequence[int] = (0,),
    seed: int = 0,
) -> Run:
    """Speculative decoding: draft k tokens, verify them, emit those kept and one more; again.

    Args:
        k: tokens drafted per round, or a rule that chooses (see `headstart.learn.simulate.lengths`).
        rule: "chain", "block", "point-mass", "coupled", or a `Rule` of your own.
        rounds: of each stream. Or:
        tokens: go on until every stream has as many; the run then holds the text, [streams, tokens].
        seed: the same arguments and seed give the same run.

    Raises:
        InvalidDistribution: a model gave something that is not a distribution; the hint names the context.
        InvalidOption, InvalidPrompt: an argument out of range.
    """
    if (rounds is None) == (tokens is None):
        raise InvalidOption("rounds and tokens: one of them is needed", hint="rounds=1000, or tokens=64")
    _check(streams, seed, rounds=rounds, tokens=tokens)
    lengths = FixedK(int(k)) if isinstance(k, Integral) and not isinstance(k, bool) else k
    if not callable(lengths):
        raise InvalidOption(f"k={k!r} is no draft length", hint="give a whole number, or a rule such as SimpleK()")
    play = _Play(target, draft, named_rule(rule), lengths, streams, prompt, seed, keep=tokens or 0)
    while play.rounds != rounds and (tokens is None or play.emitted.min() < tokens):
        play.round()
    return play.run()


class _Play:
    """The streams of one run, and what was counted so far."""

    def __init__(
        self,
        target: Model,
        draft: Model,
        rule: Rule,
        lengths: Lengths,
        streams: int,
        prompt: Sequence[int],
        seed: int,
        *,
        keep: int,
    ) -> None:
        self._contexts, self._p, q, start = shared(target, draft, prompt)
        assert q is not None, "there is a draft"
        self._q = q
        self._rule, self._lengths = rule, lengths
        self._heads = np.full(streams, start, dtype=np.int64)
        self._draws = Draws(seed, streams, self._contexts.vocab)
        self._history = History(streams, self._acceptance)
        self._draft_steps = np.zeros(streams, dtype=np.int64)
        self.rounds = 0
        self._verified = np.zeros((streams, MOST + 1), dtype=np.int64)
        self._counted = np.zeros((MOST + 1) ** 2, dtype=np.int64)
        self._text = np.zeros((streams, keep), dtype=np.int64)

    @property
    def emitted(self) -> Ints:
        """[B]: tokens so far."""
        return self._draws.position

    def round(self) -> None:
        """Draft, judge, commit."""
        self._heads = forget(self._contexts, self._heads, self._p, self._q)
        drafted = self._drafted()
        self._q.cover()
        for context in drafted.contexts:
            self._p.require(context)
        kept, bonus = self._rule.judge(drafted, self._draws)
        self._history.note(drafted.k, kept)
        self._verified[np.arange(len(kept)), drafted.k] += 1
        self._counted += np.bincount(drafted.k * (MOST + 1) + kept, minlength=len(self._counted))
        self._write(drafted, kept, bonus)
        self._draws.advance(kept + 1)
        self._heads = self._contexts.follow(drafted.after(kept), bonus)
        self.rounds += 1

    def _drafted(self) -> Round:
        k = chosen(self._lengths, self._history)
        stopping = self._lengths if isinstance(self._lengths, Stopping) else None
        contexts, tokens = [self._heads], []
        for depth in range(int(k.max())):
            here, going = contexts[-1], k > depth
            self._q.require(here[going])
            self._draft_steps += going
            if stopping is not None:
                k = np.where(going & ~np.asarray(stopping.go_on(self._q.top(here), depth), dtype=bool), depth, k)
                going = k > depth
            if not going.any():
                break
            tokens.append(self._rule.propose(self._q, here, self._draws, depth))
            there = here.copy()
            there[going] = self._contexts.follow(here[going], tokens[-1][going])
            contexts.append(there)
        return Round(contexts, tokens, k, self._p, self._q)

    def _acceptance(self) -> Floats:
        self._p.require(self._heads)
        self._q.require(self._heads)
        overlap: Floats = np.minimum(self._p.rows(self._heads), self._q.rows(self._heads)).sum(axis=1)
        return overlap

    def _write(self, drafted: Round, kept: Ints, bonus: Ints) -> None:
        size = self._text.shape[1]
        for i in range(drafted.most + 1 if size else 0):
            token = np.where(i < kept, drafted.tokens[i], bonus) if i < drafted.most else bonus
            where = self.emitted + i
            lanes = np.flatnonzero((i <= kept) & (where < size))
            self._text[lanes, where[lanes]] = token[lanes]

    def run(self) -> Run:
        lengths = self._counted.reshape(MOST + 1, MOST + 1)
        size = int(np.flatnonzero(lengths.any(axis=1)).max()) + 1
        return Run(
            rounds=self.rounds,
            emitted=self.emitted,
            draft_steps=self._draft_steps,
            verified=self._verified[:, :size],
            lengths=lengths[:size, :size],
            tokens=self._text,
            calls=(self._p.calls, self._q.calls),
        )


def _check(streams: int, seed: int, *, rounds: int | None = None, tokens: int | None = None) -> None:
    check_number("streams", streams, low=1, integer=True)
    check_number("seed", seed, low=0, high=2**63 - 1, integer=True)
    for name, count in (("rounds", rounds), ("tokens", tokens)):
        if count is not None:
            check_number(name, count, low=1, integer=True)
