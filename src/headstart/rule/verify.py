"""THE rule: which draft tokens are kept, and which token follows them. Written once, for every drafter.

A draft is a tree whose node i was drawn from q[i]; p[0] is the target's distribution after x0 and p[i + 1] the one
after node i. Two functions decide:

`traverse`, for sampled drafts: traversal verification (arXiv:2505.12398), leaf to root. On a chain it is block
verification (arXiv:2403.10444), on one token the rule of Leviathan et al. (arXiv:2211.17192). Because q[i] is the
distribution of node i *given its elder siblings*, the same lines serve children drawn with or without replacement, and
a point mass (a one-hot q[i]) among them.

`walk`, for drafts that were not drawn (n-gram, suffix, top-k trees, greedy drafts) and for rule "coupled"
(Daliri, Musco, Suresh 2024): the target draws its own token at each node; if a child bears it, go there.

Both are generic in the arithmetic: the engine runs them on floats, the tests on exact rationals. Both read a
distribution of the target only when they come to it, so that an engine need not compute the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.rule.drafted import PartialDistribution
from headstart.rule.noise import Noise, Purpose
from headstart.rule.rest import left as compiled_left
from headstart.types import Draft, Rule, Verdict

T = TypeVar("T")
Distribution = NDArray[Any]
"""[V] weights, of floats or of `Fraction`s."""
Distributions = Sequence[Distribution] | Distribution
"""Several of them: a list, or the rows of one array."""
DraftedDistributions = Sequence[Distribution | PartialDistribution] | Distribution
"""The same, of a draft's nodes; each may be over a part of the vocabulary."""


def verify(
    draft: Draft, p: Distributions, q: DraftedDistributions | None, noise: Noise, position: int, rule: Rule
) -> Verdict:
    """Judge one request's draft.

    Args:
        draft: N nodes.
        p: N + 1 distributions [V] of the target; p[0] after x0, p[i + 1] after node i.
        q: N distributions [V], or None for point masses.
        noise: the request's noise.
        position: absolute position of the first token this round can emit.
        rule: "exact" or "coupled".
    """

    def draw(distribution: Distribution, depth: int) -> int:
        return noise.draw(distribution, position + depth, Purpose.TOKEN)

    if q is None or rule == "coupled":
        return walk(draft, p, draw)

    def accept(chance: Any, node: int) -> bool:
        # Strictly less: chance 0 never passes. The node's number tells apart the uniform draws of equal depth.
        depth = draft.depths[node] - 1
        return bool(noise.uniform(position + depth, Purpose.ACCEPT, lane=position, index=node) < chance)

    return traverse(draft, p, q, accept, draw)


def walk(draft: Draft, p: Sequence[T] | NDArray[Any], draw: Callable[[T, int], int]) -> Verdict:
    """Point-mass rule: P(a child is accepted) is exactly its p, so the emitted tokens follow p.

    `draw` turns p[i], in whatever form, and a depth into the target's own token there.
    """
    path: list[int] = []
    node = -1
    while True:
        token = draw(p[node + 1], len(path))
        child = next((c for c in draft.children[node + 1] if draft.tokens[c] == token), None)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child


def traverse(
    draft: Draft,
    p: Distributions,
    q: DraftedDistributions,
    accept: Callable[[Any, int], bool],
    draw: Callable[[Distribution, int], int],
) -> Verdict:
    """Traversal verification.

    `weight` is the probability with which a node may still be accepted, pi in the papers: 1 at the root,
    min(weight * p(x) / q(x), 1) at a child x. A node first offers the decision to its children in drafting
    order; when a child's whole subtree is rejected, the part of weight * p that the child's distribution covered is
    taken away, and what remains is the node's new weight and distribution:

        rest = max(weight * p - q, 0),   weight <- S / (S + 1 - weight),   p <- rest / S,   S = sum(rest).

    After the last child the node itself is accepted with its weight, and the bonus drawn from its current p.
    `accept(chance, node)` is True with that chance; `draw(distribution, depth)` is a token of that distribution.
    """

    def visit(node: int, weight: Any) -> Verdict | None:
        children = draft.children[node + 1]
        distribution = p[node + 1] if children else None
        for child in children:
            assert distribution is not None
            token = draft.tokens[child]
            covered = q[child]
            verdict = visit(child, min(weight * distribution[token] / covered[token], 1))
            if verdict is not None:
                return verdict
            rest, total = left(distribution, weight, covered)
            if total > 0:
                # (1 - weight) first: at the root the new weight is then 1 without rounding
                weight, distribution = total / (total + (1 - weight)), rest
            elif weight < 1:
                weight = 0
            # else p = q up to rounding: this rejection had probability 0, and p stays
        if node < 0 or (weight > 0 and accept(weight, node)):
            path = draft.path(node)
            return Verdict(path, draw(p[node + 1] if distribution is None else distribution, len(path)))
        return None

    verdict = visit(-1, 1)
    assert verdict is not None, "the root accepts with probability 1"
    return verdict


def left(
    distribution: Distribution, weight: Any, covered: Distribution | PartialDistribution
) -> tuple[Distribution, Any]:
    """What a rejected child leaves of its parent's distribution: S = sum(max(weight * p - q, 0)), and what is summed,
    divided by S unless that is 0."""
    if isinstance(covered, PartialDistribution):
        found = compiled_left(distribution, weight, covered.weights, covered.known.tokens)
        return found or _shared(covered.taken_from(weight * distribution))
    found = compiled_left(distribution, weight, covered, None)
    return found or _shared(np.maximum(weight * distribution - covered, 0))


def _shared(rest: Distribution) -> tuple[Distribution, Any]:
    total = rest.sum()
    if total > 0:
        rest /= total  # it is nobody else's
    return rest, total
