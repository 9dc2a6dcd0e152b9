"""Which draft a distribution of the drafter's own is grown into for a budget: `sizes` for pacing, a plan for each
request.

A budget is a number of nodes; how many levels it buys is fixed, since each costs a forward of the draft. Up to six
nodes may be one chain. Bigger budgets come in several depths, so that pacing can choose depth (which costs drafting)
and breadth (which costs rows of the target's forward) apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_number
from headstart.drafters import Drafter, Observation, Row
from headstart.drafters.growing.grow import GrowingChain, Residual, grow_chains, grow_trees
from headstart.drafters.growing.ranks import Ranks
from headstart.drafters.growing.tree import GrowingTree, TopK
from headstart.theory.trees import Shape, best_tree
from headstart.types import Step, TreeKind

MOST = 64
"""Nodes of the largest tree."""
_LEVELS = (
    *((n, n) for n in range(1, 7)),
    *((8, 3), (10, 4), (12, 5), (14, 6), (16, 4), (20, 5), (24, 6), (32, 5), (48, 6), (MOST, 7)),
)
_DEEPEST = tuple(max((size for size in _LEVELS if size[0] <= nodes), default=(0, 0))[1] for nodes in range(MOST + 1))
"""By nodes, the most levels."""
_SMALL = 1e8  # weights of a target's layers, of which a forward takes some milliseconds
_NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST)


def policy_of(
    tree: TreeKind,
    *,
    chain: tuple[int, int],
    trees: tuple[int, int],
    width: int = 8,
    depth: int | None = None,
    residual: Residual | None = None,
) -> ChainPolicy | TreePolicy:
    """The policy of that name. chain, trees: default budget and limit of each.

    Raises:
        InvalidOption: there is no such kind of tree, or trees are to leave a residual.
    """
    check_choice("tree", tree, get_args(TreeKind))
    if residual is not None and tree != "none":
        raise InvalidOption(
            f"draft_residual goes with chains, and these are trees ({tree!r})", hint="leave one of the two out"
        )
    return ChainPolicy(*chain, residual) if tree == "none" else TreePolicy(tree, *trees, width=width, depth=depth)


def usual_tree(config: Any) -> TreeKind:
    """What a head drafts where the user does not choose: trees, but chains for a target so small that growing a tree
    takes about as long as one of its forwards, and a distribution for each node of a drawn one is a good part of it.
    config: of the target."""
    text = config.get_text_config()
    return "none" if 12 * text.num_hidden_layers * text.hidden_size**2 < _SMALL else "mixed"


class ChainPolicy:
    """Chains only.

    Args:
        default_budget: nodes where the user chooses no number.
        limit: the most nodes that could pay.
        residual: what drawn tokens leave to the target, if anything.
    """

    draws = True
    sizes: Sequence[tuple[int, int]] = ()

    def __init__(self, default_budget: int, limit: int, residual: Residual | None = None) -> None:
        self.default_budget = default_budget
        self.limit = limit
        self.residual = residual

    def observe(self, step: Step) -> None:
        """Nothing is learnt: a chain has one shape."""

    def release(self, request: int) -> None:
        """Nothing is kept."""


class TreePolicy:
    """Trees of one kind.

    Args:
        kind: of trees, so not "none".
        default_budget: nodes where the user chooses no number.
        limit: the most nodes that could pay, at most `MOST`.
        width: nodes that a dynamic tree expands in a level, and children of each, at most; a small tree has half of
            its nodes, since the others would hardly have a child that is kept.
        depth: most levels; None lets the budget decide.
    """

    def __init__(self, kind: TreeKind, default_budget: int, limit: int, *, width: int, depth: int | None) -> None:
        check_number("width", width, low=1, integer=True)
        if depth is not None:
            check_number("depth", depth, low=1, integer=True)
        self.default_budget = default_budget
        self.limit = limit
        self.draws = kind != "top-k"  # which are point masses
        self._kind = kind
        self._width = width
        self._depth = depth
        self._shapes = {greedy: _Shapes() for greedy in (True, False)}
        self._unlearnt = _Shapes()
        self._greedy: dict[int, bool] = {}

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """(nodes, levels), as `Drafter.sizes`."""
        found = _LEVELS if self._depth is None else tuple((nodes, self.levels(nodes)) for nodes in _NODES)
        return tuple(size for size in found if size[0] <= self.limit)

    def levels(self, nodes: int) -> int:
        """Most levels of a tree of so many nodes."""
        if self._depth is not None:
            return min(nodes, self._depth)
        return _DEEPEST[min(nodes, MOST)]

    def plan(self, row: Row, nodes: int) -> TopK | Shape:
        """How to grow a request's tree of at most `nodes` nodes. A reproducible row takes the prior's shape, because
        what was learnt is from other requests."""
        nodes = min(nodes, MOST)
        greedy = row.sampling.greedy
        if self._kind == "top-k" or (self._kind == "mixed" and greedy):
            return TopK(min(self._width, max(2, nodes // 2)), self.levels(nodes))
        self._greedy[row.request] = greedy
        shapes = self._unlearnt if row.reproducible else self._shapes[greedy]
        return shapes.best(nodes, self.levels(nodes))

    def observe(self, step: Step) -> None:
        greedy = self._greedy.get(step.request)
        if greedy is not None and len(step.draft):
            self._shapes[greedy].learn(step)

    def release(self, request: int) -> None:
        self._greedy.pop(request, None)


class _Shapes:
    """The best static trees for what is known of acceptance by rank, made again after 16, 32, 64, ... rounds."""

    def __init__(self) -> None:
        self._ranks = Ranks()
        self._made: dict[tuple[int, int], Shape] = {}
        self._due = 16

    def best(self, nodes: int, levels: int) -> Shape:
        if (nodes, levels) not in self._made:
            self._made[nodes, levels] = best_tree(self._ranks.acceptance, nodes, levels)
        return self._made[nodes, levels]

    def learn(self, step: Step) -> None:
        self._ranks.learn(step.draft, step.path)
        if self._ranks.rounds >= self._due:
            self._due += min(self._ranks.rounds, 512)
            self._made.clear()


class GrowingDrafter(Drafter):
    """A drafter that grows chains or trees, as its policy decides."""

    def __init__(self, policy: ChainPolicy | TreePolicy, budget: int | None) -> None:
        self.policy = policy
        self.default_budget = policy.default_budget if budget is None else budget
        self.draws = policy.draws

    @property
    def limit(self) -> int:
        return self.policy.limit

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        return self.policy.sizes

    def observe(self, observation: Observation) -> None:
        if observation.step.draft.source == self.name:
            self.policy.observe(observation.step)

    def release(self, request: int) -> None:
        self.policy.release(request)
        super().release(request)

    def _grow(
        self,
        rows: Sequence[Row],
        rooms: Sequence[int],
        memories: Sequence[Any],
        chains_forward: Callable[[Sequence[GrowingChain]], Tensor],
        trees_forward: Callable[[Sequence[GrowingTree]], Tensor],
    ) -> Sequence[GrowingChain | GrowingTree]:
        """Drafts for these rows, grown to their budgets.

        rooms: the most tokens that each may feed. memories: what the drafter keeps of each. chains_forward: see
        `grow_chains`. trees_forward: see `trees`.
        """
        found = [self._begun(*each) for each in zip(rows, rooms, memories, strict=True)]
        if isinstance(self.policy, ChainPolicy):
            grow_chains(found, chains_forward)
        else:
            grow_trees(found, trees_forward)
        return found

    def _begun(self, row: Row, room: int, memory: Any = None) -> Any:
        """A draft for this row that is still to grow: a `GrowingChain` or a `GrowingTree`."""
        if isinstance(self.policy, ChainPolicy):
            return GrowingChain(row, min(row.budget.nodes, room), memory, self.policy.residual)
        budget = min(row.budget.nodes, MOST) if room > 0 else 0
        return GrowingTree(row, budget, self.policy.plan(row, budget), room, memory)
