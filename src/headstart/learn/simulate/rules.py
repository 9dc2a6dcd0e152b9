"""Verification rules for many streams in lockstep. Each is the distribution of a published rule, in whole-array form.

A round of one stream: from context 0 the draft proposed x_1..x_K; context i is the one after x_i. A rule decides how
many of them are kept and which token follows. Shapes: B streams; contexts [most + 1][B], tokens [most][B], where a
stream whose K is less than `most` repeats its last context and its tokens beyond K mean nothing.

`reach` of a rule with a residual is, given the drafted tokens, the probability that at least the first i are kept;
one uniform number then decides. That the same distribution comes out as of uniform draws per token is what the tests
enumerate.

    chain        Leviathan et al. (arXiv:2211.17192): each token judged alone, in order
    block        Sun et al. (arXiv:2403.10444): the block judged as one; never keeps fewer
    point-mass   the draft's likeliest tokens; kept with probability p each
    coupled      Daliri, Musco, Suresh (2024): both models race on the same noise; one seed, one text
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headstart.base.errors import InvalidOption
from headstart.learn.simulate.contexts import Distributions
from headstart.learn.simulate.distributions import Draws, Floats, Ints, draw


@dataclass(frozen=True, eq=False)
class Round:
    """What was drafted in one round. p, q: the distributions of target and draft; k [B]: how many tokens each stream
    drafted."""

    contexts: list[Ints]
    tokens: list[Ints]
    k: Ints
    p: Distributions
    q: Distributions

    @property
    def most(self) -> int:
        return len(self.tokens)

    def after(self, kept: Ints) -> Ints:
        """The context [B] after the first `kept` [B] drafted tokens."""
        return np.stack(self.contexts)[kept, np.arange(len(kept))]


class Rule(Protocol):
    """How drafts are drawn and judged."""

    name: str

    def propose(self, q: Distributions, contexts: Ints, draws: Draws, depth: int) -> Ints:
        """The token [B] drafted after `contexts` [B], as the round's number `depth` (0 is the first)."""
        ...

    def judge(self, drafted: Round, draws: Draws) -> tuple[Ints, Ints]:
        """How many drafted tokens are kept [B], at most k, and the token [B] the target adds."""
        ...


class ChainRule:
    """u < p(x)/q(x) for each token in order; after the first failure the residual norm(max(p - q, 0))."""

    name = "chain"

    def propose(self, q: Distributions, contexts: Ints, draws: Draws, depth: int) -> Ints:  # noqa: ARG002
        return q.draw(contexts, draws.uniforms())

    def judge(self, drafted: Round, draws: Draws) -> tuple[Ints, Ints]:
        uniform, kept = draws.uniforms(), np.zeros(len(drafted.k), dtype=np.int64)
        for chance in self.reach(drafted):
            kept += uniform < chance
        return kept, draw(self.rest(drafted, kept), draws.uniforms())

    def reach(self, drafted: Round) -> list[Floats]:
        """[most][B]: the probability that at least 1, 2, ... tokens are kept; not increasing, 0 beyond k."""
        chances: list[Floats] = []
        so_far = np.ones(len(drafted.k))
        for i, (context, token) in enumerate(zip(drafted.contexts, drafted.tokens, strict=False)):
            so_far = so_far * self.chance(drafted, context, token) * (i < drafted.k)
            chances.append(so_far)
        return chances

    def chance(self, drafted: Round, context: Ints, token: Ints) -> Floats:
        """[B]: the probability that one token is kept, all before it having been."""
        return np.minimum(ratio(drafted, context, token), 1)

    def rest(self, drafted: Round, kept: Ints) -> Floats:
        """[B, V]: weights of the token that follows `kept` drafted ones; the target's own distribution after all k."""
        here = drafted.after(kept)
        p = drafted.p.rows(here)
        return residual(p, p, drafted.q.rows(here) * (kept < drafted.k)[:, None])


class BlockRule(ChainRule):
    """pi_i = min(pi_(i-1) p(x_i)/q(x_i), 1); every i has its own uniform draw, and the last that passes wins."""

    name = "block"

    def reach(self, drafted: Round) -> list[Floats]:
        weights, k = self._weights(drafted), drafted.k
        chances: list[Floats] = []
        missed = np.ones(len(k))  # the probability that this i and all after it fail
        for i in range(drafted.most, 0, -1):
            pi, context = weights[i], drafted.contexts[i]
            passes = pi * (i == k)
            if i < drafted.most:
                over = np.maximum(pi[:, None] * drafted.p.rows(context) - drafted.q.rows(context), 0).sum(axis=1)
                below = over + (1 - pi)
                # 0/0 is p = q, which every later token passes: keeping here is right, and makes no difference
                inside = np.divide(over, below, out=np.ones_like(pi), where=below > 0)
                passes = np.where(i < k, inside, passes)
            missed = missed * (1 - passes)
            chances.append(1 - missed)
        return chances[::-1]

    def rest(self, drafted: Round, kept: Ints) -> Floats:
        here, lanes = drafted.after(kept), np.arange(len(kept))
        p, pi = drafted.p.rows(here), np.stack(self._weights(drafted))[kept, lanes]
        all_kept = kept == drafted.k
        pi = np.where(all_kept, 1, pi)
        return residual(p, pi[:, None] * p, drafted.q.rows(here) * ~all_kept[:, None])

    def _weights(self, drafted: Round) -> list[Floats]:
        """pi_0 .. pi_most, each [B]."""
        weights = [np.ones(len(drafted.k))]
        for context, token in zip(drafted.contexts, drafted.tokens, strict=False):
            weights.append(np.minimum(weights[-1] * ratio(drafted, context, token), 1))
        return weights


class PointMassRule(ChainRule):
    """The draft proposes its likeliest token, so q is one-hot: kept with probability p(x), else p without x."""

    name = "point-mass"

    def propose(self, q: Distributions, contexts: Ints, draws: Draws, depth: int) -> Ints:  # noqa: ARG002
        return q.best(contexts)

    def chance(self, drafted: Round, context: Ints, token: Ints) -> Floats:
        return drafted.p.of(context, token)

    def rest(self, drafted: Round, kept: Ints) -> Floats:
        weights = drafted.p.rows(drafted.after(kept))
        wrong = np.flatnonzero(kept < drafted.k)
        if len(wrong):
            weights[wrong, np.stack(drafted.tokens)[kept[wrong], wrong]] = 0
        return weights


class CoupledRule:
    """Target and draft take argmax of distribution / noise over the same noise; a guess is kept if they agree."""

    name = "coupled"

    def propose(self, q: Distributions, contexts: Ints, draws: Draws, depth: int) -> Ints:
        return race(q.rows(contexts), draws.exponentials(depth))

    def judge(self, drafted: Round, draws: Draws) -> tuple[Ints, Ints]:
        kept = np.zeros(len(drafted.k), dtype=np.int64)
        bonus, going = kept, np.ones(len(kept), dtype=bool)
        for i, context in enumerate(drafted.contexts):
            own = race(drafted.p.rows(context), draws.exponentials(i))
            bonus = np.where(going, own, bonus)
            if i < drafted.most:
                going = going & (i < drafted.k) & (own == drafted.tokens[i])
                kept = kept + going
        return kept, bonus


def race(weights: Floats, noise: Floats) -> Ints:
    """The token [B] that wins: argmax of weight / Exponential(1) noise has the distribution of the weights."""
    won: Ints = (weights / noise).argmax(axis=1)
    return won


def ratio(drafted: Round, context: Ints, token: Ints) -> Floats:
    """p(x)/q(x) [B]; 0 where the draft could not have proposed x: those are places beyond a stream's k."""
    p, q = drafted.p.of(context, token), drafted.q.of(context, token)
    result: Floats = np.divide(p, q, out=np.zeros_like(p), where=q > 0)
    return result


def residual(p: Floats, above: Floats, below: Floats) -> Floats:
    """max(above - below, 0) [B, V], and p where nothing is left: there p = q up to rounding."""
    rest = np.maximum(above - below, 0)
    empty = ~rest.any(axis=1)
    if empty.any():
        rest[empty] = p[empty]
    return rest


RULES: dict[str, Rule] = {rule.name: rule for rule in (ChainRule(), BlockRule(), PointMassRule(), CoupledRule())}


def named_rule(rule: str | Rule) -> Rule:
    """The rule of this name; a rule is itself.

    Raises:
        InvalidOption: there is none.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise InvalidOption(f"rule={rule!r} does not exist", hint=f"the rules are: {', '.join(RULES)}")
        return RULES[rule]
    return rule
