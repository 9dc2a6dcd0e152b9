"""The rule of a step once more, with its uniform draws and drawn tokens written down. Pure: the engine is not touched.

The engine keeps of a verdict only the path and the token after it. Because the rule is a function of the draft, the
distributions and the request's noise, running it again gives the same verdict, and shows on the way what each uniform
draw was compared with and which distribution the last token was drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from headstart.rule.distributions import Distributions
from headstart.rule.drafted import drafted_distributions
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse, walk
from headstart.types import Draft, Rule, Verdict

Procedure = Literal["traverse", "walk", "plain", "read"]
"""Which rule ran: `traverse` for drawn nodes, `walk` for point masses and for all of rule "coupled", "plain" where
nothing was drafted, "read" where nothing was judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What the rule decided, and how."""

    procedure: Procedure
    verdict: Verdict
    weights: dict[int, float]
    """By node, what its uniform draw was compared with; 0 where it came to the node and nothing was left to accept it
    with. Nodes whose uniform draw the rule did not look at are not there."""
    drawn: tuple[tuple[int, int], ...]
    """(node, the target's own token after it), in order, for each node at which the target drew; -1 is x0."""
    last: NDArray[Any]
    """The distribution [V] that the last token was drawn from."""


def replay(
    draft: Draft, distributions: Distributions, dense: NDArray[Any], noise: Noise, position: int, rule: Rule
) -> Replay:
    """Judge a draft again, exactly as the engine did.

    Args:
        draft: N nodes.
        distributions: of the target, after x0 and after each node.
        dense: `distributions.dense` [N + 1, V].
        noise: the request's.
        position: the absolute position of the first token that the step could emit.
        rule: the request's.
    """
    if draft.q is None or rule == "coupled":
        return _walked(draft, distributions, dense, noise, position)
    return _traversed(draft, dense, noise, position)


def _walked(draft: Draft, distributions: Distributions, dense: NDArray[Any], noise: Noise, position: int) -> Replay:
    if distributions.tokens is not None and draft.q is None:
        # Greedy: to draw from a one-hot distribution is to read its token
        verdict = walk(draft, distributions.tokens, lambda token, _: token)
    else:
        verdict = walk(draft, dense, lambda row, depth: noise.draw(row, position + depth, Purpose.TOKEN))
    stood = (-1, *verdict.path)
    tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
    drawn = tuple(zip(stood, tokens, strict=True)) if len(draft) else ()
    return Replay("walk" if len(draft) else "plain", verdict, {}, drawn, dense[stood[-1] + 1])


def _traversed(draft: Draft, dense: NDArray[Any], noise: Noise, position: int) -> Replay:
    weights: dict[int, float] = {}
    last = dense[0]

    def accept(weight: Any, node: int) -> bool:
        weights[node] = float(weight)
        return bool(uniform_of(draft, node, noise, position) < weight)

    def draw(distribution: NDArray[Any], depth: int) -> int:
        nonlocal last
        last = distribution
        return noise.draw(distribution, position + depth, Purpose.TOKEN)

    verdict = traverse(draft, dense, drafted_distributions(draft), accept, draw)
    for node in _entered(draft, verdict.path[-1] if verdict.path else -1):
        if node not in verdict.path:
            weights.setdefault(node, 0.0)
    return Replay("traverse" if len(draft) else "plain", verdict, weights, (), last)


def uniform_of(draft: Draft, node: int, noise: Noise, position: int) -> float:
    """The uniform number in (0, 1) that accepts a drawn node if it lies below the node's weight."""
    return noise.uniform(position + draft.depths[node] - 1, Purpose.ACCEPT, lane=position, index=node)


def _entered(draft: Draft, last: int) -> list[int]:
    """The nodes that traversal comes to until it accepts `last`: depth first, a node before its children."""
    found: list[int] = []

    def visit(node: int) -> bool:
        if node >= 0:
            found.append(node)
        return any(visit(child) for child in draft.children[node + 1]) or node == last

    visit(-1)
    return found


State = Literal["accepted", "refused", "beyond"]


def states(draft: Draft, replayed: Replay) -> list[State]:
    """What became of each node: accepted; refused, where it was judged and its parent stands; beyond, where it hangs
    below a refused node or behind an elder sibling that was accepted, so that its fate did not matter."""
    path = replayed.verdict.path
    reached = {-1, *path}
    if replayed.procedure == "traverse":
        judged = set(_entered(draft, path[-1] if path else -1))
    else:
        judged = set(range(len(draft)))  # the target's own token says yes or no to all children of a node at once
    return [
        "accepted" if node in path else "refused" if parent in reached and node in judged else "beyond"
        for node, parent in enumerate(draft.parents)
    ]
