"""Pacing of a source that drafts trees: depth costs drafting, breadth costs rows, and both are chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.rows import a_row

from headstart.drafters.growing.policy import MOST, TreePolicy
from headstart.pacing.belief import Belief, SourcePrior
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.costs import CurrentCosts, Drafted
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.trees import Shape, best_tree, tree_tokens
from headstart.types import Budget, Draft, Seconds, Speculation, Step

SIZES = tuple(TreePolicy("sampled", 32, MOST, width=8, depth=None).sizes)
FLAT = tuple((n, 0.01 * (1 + 0.002 * n)) for n in (1, 2, 4, 8, 16, 32, 64))
STEEP = tuple((n, 0.01 * (1 + 0.5 * (n - 1))) for n in (1, 2, 4, 8, 16, 32, 64))
SURE, BROAD, USELESS = (0.93, 0.02, 0.01), (0.5, 0.2, 0.1, 0.05, 0.03, 0.02), (1e-9, 1e-10)


class Life:
    """Steps of an engine that does not exist. At each node that is tested, the child of rank b is right with
    acceptance[b - 1]; trees are the best ones for that."""

    def __init__(self, acceptance: Sequence[float], level: float, rows: Sequence[tuple[int, float]]) -> None:
        self.acceptance, self.level = acceptance, level
        self.costs = StepCosts(tuple(rows), 0.0, {"tree": DraftCost(0.0, level, 0.0, 0.1)})
        self.costs_now = CurrentCosts(self.costs, ["tree"])
        self.pacing = AdaptivePacing([Source("tree", SIZES[-1][0], SIZES)], self.costs, clock=lambda: 0.0)
        self.rng = np.random.default_rng(0)
        self.shapes = {nodes: best_tree(acceptance, nodes, depth) for nodes, depth in SIZES}

    def shape(self, nodes: int) -> Shape:
        return self.shapes[max((n for n in self.shapes if n <= nodes), default=0)] if nodes else Shape()

    def step(self, positions: list[int], room: int = 500) -> list[Budget]:
        rows = [a_row(r, at, room) for r, at in enumerate(positions)]
        plan = self.pacing.plan(rows)
        budgets, steps = list(plan.budgets), []
        shapes = [self.shape(budget.nodes) for budget in budgets]
        batch = len(rows)
        verify = self.costs_now.step(batch, batch + sum(len(shape) for shape in shapes))
        size = max(b.nodes for b in budgets), max(self.levels(b.nodes) for b in budgets)
        drafting = self.costs_now.draft(0, size, batch)
        for r, (budget, shape) in enumerate(zip(budgets, shapes, strict=True)):
            path = self.path(shape)
            draft = Draft((0,) * len(shape), shape.parents, source="tree") if len(shape) else Draft()
            step = Step(
                r, 0, positions[r], draft, path, (0,) * (len(path) + 1), None, 1 + len(shape), batch,
                Seconds(draft=drafting, verify=verify), None, Speculation(True, "tree"), budget,
            )  # fmt: skip
            steps.append(step)
            positions[r] += len(path) + 1
        self.pacing.observe(plan, steps)
        return budgets

    def path(self, shape: Shape) -> tuple[int, ...]:
        path: list[int] = []
        while True:
            children = shape.children[path[-1] + 1 if path else 0]
            chances = [*self.acceptance, *[0.0] * len(children)][: len(children)]
            accepted = int(self.rng.choice(len(chances) + 1, p=[*chances, 1 - sum(chances)]))
            if accepted >= len(children):
                return tuple(path)
            path.append(children[accepted])

    def levels(self, nodes: int) -> int:
        return max((size for size in SIZES if size[0] <= nodes), default=(0, 0))[1]

    def rate(self, nodes: int) -> float:
        """Tokens per second of one row that always drafts so much."""
        tokens = tree_tokens(self.acceptance, self.shape(nodes))
        return tokens / (self.costs_now.step(1, 1 + len(self.shape(nodes))) + self.level * self.levels(nodes))

    def run(self, steps: int, batch: int = 1) -> list[list[int]]:
        positions = [10] * batch
        return [[budget.nodes for budget in self.step(positions)] for _ in range(steps)]


@pytest.mark.parametrize("rows", [FLAT, STEEP], ids=["rows are nearly free", "rows are dear"])
@pytest.mark.parametrize("level", [0.0002, 0.0015, 0.006])
@pytest.mark.parametrize("acceptance", [SURE, BROAD, (0.65, 0.12, 0.05, 0.03)], ids=str)
def test_one_row_gets_nearly_the_best_size(
    acceptance: tuple[float, ...], level: float, rows: tuple[tuple[int, float], ...]
) -> None:
    life = Life(acceptance, level, rows)
    life.run(150)
    chosen = [nodes for (nodes,) in life.run(100)]
    rates = [life.rate(nodes) for nodes in (0, *(n for n, _ in SIZES))]
    mean = float(np.mean([life.rate(nodes) for nodes in chosen]))
    assert mean >= 0.93 * max(rates)
    assert mean >= 0.97 * rates[0]


def test_breadth_where_rows_are_free_and_depth_where_the_eldest_is_sure() -> None:
    broad, sure, dear = (Life(*each) for each in ((BROAD, 0.002, FLAT), (SURE, 0.0005, FLAT), (SURE, 0.0005, STEEP)))
    chosen = [float(np.median(life.run(200)[100:])) for life in (broad, sure, dear)]
    assert chosen[0] >= 2 * broad.levels(int(chosen[0]))
    assert broad.levels(int(chosen[0])) <= 5
    assert sure.levels(int(chosen[1])) >= 6
    assert chosen[2] <= 6  # a chain


def test_a_useless_tree_is_stopped_and_probed_with_one_node() -> None:
    life = Life(USELESS, 0.0013, FLAT)
    life.run(60)
    nodes = [n for (n,) in life.run(1000)]
    assert set(nodes) == {0, 1}
    assert 5 < sum(nodes) < 100


def option(sizes: int, gains: Sequence[float]) -> DraftOption:
    """The first so many of the sizes."""
    nodes, depths = np.array(SIZES).T
    return DraftOption(0, 1.0, nodes[:sizes], depths[:sizes], np.array(gains[:sizes]))


@pytest.mark.parametrize("sibling", [0.0, 0.0002])
def test_levels_are_paid_for_and_further_nodes_where_they_cost(sibling: float) -> None:
    """A level is one forward of the drafter: at no price of a node 32 of them cost drafting like a chain of 5."""
    costs = StepCosts(FLAT, 0.0, {"tree": DraftCost(0.001, 0.002, sibling=sibling)})
    gains = [depth + 0.1 * nodes for nodes, depth in SIZES]
    choice = choose([[option(len(SIZES), gains)]], CurrentCosts(costs, ["tree"]), batch=1, sampled=[False])
    best = max(
        (1 + gain) / (0.01 * (1 + 0.002 * (1 + nodes)) + 0.001 + 0.002 * depth + sibling * (nodes - depth))
        for gain, (nodes, depth) in zip(gains, SIZES, strict=True)
    )
    assert choice.rate == pytest.approx(best, rel=1e-3)


def test_every_question_about_a_draft_counts_its_nodes_and_chains_have_no_further_ones() -> None:
    cost = DraftCost(0.001, 0.002, growth=0.3, sibling=0.0004)
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"tree": cost}), ["tree"])
    nodes, depths = np.array(SIZES).T
    for requests in (1, 3):
        own, shared = costs.shares(0, nodes, depths, 1, requests, drawn=False)
        together = costs.together(
            0, nodes[:, None].repeat(requests, 1), depths[:, None].repeat(requests, 1), own, False
        )
        for place, (size, depth) in enumerate(SIZES):
            expected = cost.seconds(depth, requests, size - depth)
            assert costs.draft(0, (size, depth), requests) == pytest.approx(expected)
            assert requests * own[place] + shared[place] == pytest.approx(expected)
            assert together[place] == pytest.approx(expected)
    alone = costs.drafting(0, nodes, depths, 1, sampled=False)
    forwards = np.array([costs.step(1, 1 + size) - costs.step(1, 1) for size in nodes.tolist()])
    assert alone - forwards == pytest.approx([cost.seconds(depth, 1, size - depth) for size, depth in SIZES])


def test_steps_tell_a_start_a_level_and_a_node_apart() -> None:
    """Each takes another time than the profile says, and steps have drafts of several sizes."""
    profile, truth = DraftCost(0.0002, 0.0001, sibling=0.00006), DraftCost(0.0005, 0.00012, sibling=0.00003)
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"tree": profile}), ["tree"])
    rng = np.random.default_rng(0)
    for _ in range(400):
        costs.observe(1, 1, 0, costs.step(1, 1))
        nodes, depth = SIZES[rng.integers(len(SIZES))]
        noise = float(np.exp(0.05 * rng.standard_normal()))
        costs.observe_drafts({0: Drafted((nodes, depth), 1)}, noise * truth.seconds(depth, 1, nodes - depth))
    for nodes, depth in SIZES:
        assert costs.in_turn(0, (nodes, depth), 1) == pytest.approx(truth.seconds(depth, 1, nodes - depth), rel=0.1)


def test_rows_of_a_batch_are_cut_together_where_rows_are_dear() -> None:
    kinked = ((1, 0.01), (16, 0.0105), (32, 0.02), (64, 0.05))
    nodes = []
    for batch in (1, 4, 16):
        life = Life(BROAD, 0.001, kinked)
        nodes.append(float(np.mean(life.run(120, batch)[60:])))
    assert nodes[0] > nodes[1] > nodes[2]


def test_a_row_near_its_end_has_only_the_sizes_that_fit() -> None:
    gains = [0.1 * nodes for nodes, _ in SIZES]
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"tree": DraftCost(0.0, 0.0001)}), ["tree"])
    rows = [[option(n, gains)] for n in (len(SIZES), 3, 0)]
    caps = choose(rows, costs, batch=3, sampled=[False] * 3).nodes
    assert caps[0][0] > SIZES[2][0]
    assert caps[1][0] <= SIZES[2][0]
    assert caps[2] == [0]
    life = Life(SURE, 0.0005, FLAT)
    life.run(50)
    for room in (1, 3, 7, 20):
        assert life.step([500], room)[0].nodes <= room


def test_ranks_tell_what_breadth_brings() -> None:
    """After rounds of one shape, the tokens that another would bring are predicted."""
    for acceptance in (BROAD, (0.65, 0.12, 0.05, 0.03)):
        life = Life(acceptance, 0.001, FLAT)
        prior = SourcePrior(SIZES, trees=True)
        belief = Belief(prior)
        seen = life.shape(16)
        for _ in range(1500):
            belief.learn_tree(Draft((0,) * len(seen), seen.parents), life.path(seen), 16)
            belief.drift(3)
        for _ in range(16):  # what was learnt is looked at now and then
            prior.learn(belief.weights)
        predicted = dict(zip([nodes for nodes, _ in SIZES], belief.gains(), strict=True))
        for nodes in (3, 8, 16, 32, 64):
            assert predicted[nodes] == pytest.approx(tree_tokens(acceptance, life.shape(nodes)) - 1, rel=0.2)


def test_one_size_is_judged_as_a_whole() -> None:
    """The nodes of a lookahead window are in no order; what is learnt is how deep it holds."""
    pacing = AdaptivePacing([Source("window", 30, ((30, 3),))], StepCosts(FLAT))
    assert pacing._shared.priors[0].trees is None


@pytest.mark.parametrize("growth", [0.0, 0.1])
def test_a_batch_pays_for_the_further_nodes_that_its_rows_share(growth: float) -> None:
    """A wide tree of few levels may share more than a narrow one of many."""
    cost = DraftCost(0.0005, 0.0008, growth=growth, sibling=0.0008)
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"tree": cost}), ["tree"])
    sizes = [size for size in SIZES if size[0] <= 20]
    nodes, depths = np.array(sizes).T
    gains = 1.6 * (1 - 0.55**depths) + 0.06 * (nodes - depths) ** 0.5
    options = [[DraftOption(0, 1.0, nodes, depths, gains)] for _ in range(2)]

    def rate(place: int) -> float:
        seconds = costs.step(2, 2 + 2 * float(costs.weigh(*sizes[place]))) + costs.draft(0, sizes[place], 2)
        return float(2 + 2 * gains[place]) / seconds

    choice = choose(options, costs, batch=2, sampled=[False] * 2)
    assert choice.rate > 0.99 * max(map(rate, range(len(sizes))))
