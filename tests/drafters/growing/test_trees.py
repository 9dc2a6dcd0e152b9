"""Trees of a draft LM: what is proposed, from which distributions, and that the text does not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.counting import rows_fed
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.pacing import give
from support.rotation import rotated
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, model, p_value
from support.sampled_distribution import joint as joint_distribution
from support.timeless import Timeless
from support.tiny import CONTEXT, VOCAB
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import Drafter, Observation, Row
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.growing import tree as one_tree
from headstart.drafters.growing.grow import grow_trees
from headstart.drafters.growing.tree import GrowingTree, TopK, distributions_of_children, draw_children
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.source import Source
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.trees import Shape, best_tree
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

WIDTHS = (3, 2, 1)
SMALL = Shape((-1, -1, 0, 0, 1, 2), (1, 2, 1, 2, 1, 1))
"""Two children, of which the elder has two and the younger one; and one grandchild."""


def runner_of(path: str, **options: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)), **options)


def context(
    tokens: Sequence[int],
    budget: int = 12,
    request: int = 0,
    *,
    vocab: int = VOCAB,
    purpose: Purpose = Purpose.DRAFT,
    alone: bool = False,
    seed: int = 7,
    **sampling: Any,
) -> Row:
    distribution = SamplingState(Sampling(**sampling), tokens, vocab, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(seed), purpose, budget=Budget(budget), reproducible=alone)


def model_of(path: str) -> Callable[[Sequence[int]], torch.Tensor]:
    """transformers' own logits after a text."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

    def logits(tokens: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return model(torch.tensor([list(tokens)])).logits[0, -1]

    return logits


def text_to(draft: Draft, node: int) -> list[int]:
    return [draft.tokens[each] for each in draft.path(node)]


# -- drawn without replacement ----------------------------------------------------------------------------------------


def exact_draw(oracle: Oracle) -> Any:
    """`draw_children`, answered by an oracle in exact numbers."""

    def draw(_: Row, q: Any, depth: int, index: int, count: int, __: object = None) -> list[int]:
        assert (depth, index) >= (0, 0)
        drawn: list[int] = []
        rest = q
        while len(drawn) < count and rest.sum() > 0:
            drawn.append(oracle.draw(rest))
            rest = rest.copy()
            rest[drawn[-1]] = Fraction(0)
        return drawn

    return draw


@pytest.mark.parametrize(
    ("shape", "zeros"),
    [
        (best_tree((0.5,), 2, 2), 0.2),
        (Shape((-1, -1, -1), (1, 2, 3)), 0.3),
        (Shape((-1, -1, 0), (1, 2, 1)), 0.3),
        (Shape((-1, -1, 1), (1, 2, 1)), 0.3),
        (Shape((-1, 0, 0), (1, 1, 2)), 0.3),
        (SMALL, 0.5),
    ],
    ids=lambda value: str(getattr(value, "parents", value)),
)
@pytest.mark.parametrize("seed", range(2))
def test_drawn_trees_keep_the_distribution_exactly(
    shape: Shape, zeros: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grower and the shipped rule together, by exact enumeration, also where a distribution runs out of tokens."""
    p, q = RandomModel(seed, zeros=0.2), RandomModel(seed + 40, zeros=zeros)

    def round_(oracle: Oracle) -> tuple[int, ...]:
        monkeypatch.setattr(one_tree, "draw_children", exact_draw(oracle))
        guess = GrowingTree(context([0], vocab=3, purpose=Purpose.TOKEN, temperature=1.0), len(shape), shape)
        while guess.fresh:
            guess.draw([q(path) for path in guess.paths()])
        draft = guess.draft()
        rows = [p(tuple(text_to(draft, node))) for node in range(-1, len(draft))]
        distributions = guess.distributions()
        verdict = traverse(
            draft,
            rows,
            distributions,
            lambda a, _: oracle.uniform(a),
            lambda distribution, _: oracle.draw(distribution),
        )
        return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)

    depth = shape.depth + 1
    assert completed(outcomes(round_), p, depth) == joint(p, depth)


def test_children_are_drawn_without_replacement() -> None:
    """Ordered pairs follow q(a) q(b) / (1 - q(a)), and nodes of one depth are independent of each other."""
    q = np.array([0.5, 0.0, 0.3, 0.15, 0.05], dtype=np.float32)
    pairs: Counter[tuple[int, ...]] = Counter()
    both: Counter[tuple[int, int]] = Counter()
    samples = 20000
    for seed in range(samples):
        where = context([1, 2, 3], temperature=1.0, seed=seed, vocab=5)
        here, there = (draw_children(where, q, 1, index, 2) for index in (0, 1))
        pairs[tuple(here)] += 1
        both[here[0], there[0]] += 1
    distribution = {(a, b): q[a] * q[b] / (1 - q[a]) for a, b in permutations((0, 2, 3, 4), 2)}
    assert p_value(pairs, distribution) > 1e-3
    assert p_value(both, {(a, b): q[a] * q[b] for a, b in product((0, 2, 3, 4), repeat=2)}) > 1e-3


def test_the_first_child_is_what_a_chain_would_have_drawn() -> None:
    q = np.random.default_rng(0).random(VOCAB).astype(np.float32)
    for purpose in (Purpose.DRAFT, Purpose.TOKEN):
        where = context([1, 2, 3], purpose=purpose, temperature=1.0)
        assert draw_children(where, q, 2, 0, 3)[0] == where.draw(q, 2)
    # under rule "coupled" every node of a depth has the noise that the target will have there
    assert draw_children(where, q, 2, 5, 3) == draw_children(where, q, 2, 0, 3)
    where = context([1, 2, 3], temperature=1.0)
    assert draw_children(where, q, 2, 5, 3) != draw_children(where, q, 2, 0, 3)


def test_what_a_distribution_has_left() -> None:
    q = np.array([0.0, 0.75, 0.25, 0.0], dtype=np.float32)
    where = context([1], temperature=1.0, vocab=4)
    drawn = draw_children(where, q, 0, 0, 4)
    assert sorted(drawn) == [1, 2]
    rows = distributions_of_children(q, drawn)
    np.testing.assert_array_equal(rows[0], q)
    assert rows[1].tolist() == [float(token == drawn[1]) for token in range(4)]
    assert draw_children(where, np.full(4, np.nan, dtype=np.float32), 0, 0, 4) == []
    assert draw_children(where, np.array([0, 0, 1, 0], dtype=np.float32), 0, 0, 4) == [2]


# -- the likeliest nodes ----------------------------------------------------------------------------------------------


def markov(seed: int) -> Callable[[Sequence[int]], torch.Tensor]:
    """Logits after a text that depend on its last two tokens."""
    table = torch.randn(8, 8, 8, generator=torch.Generator().manual_seed(seed)) * 2

    def logits(text: Sequence[int]) -> torch.Tensor:
        return table[text[-2], text[-1]]

    return logits


def likeliest(model: Callable[[Sequence[int]], torch.Tensor], text: list[int], way: TopK, budget: int) -> set[Any]:
    """EAGLE-2's tree in its plainest form: expand the best of each level, rank everything at the end."""
    candidates: list[tuple[float, int, tuple[int, ...]]] = []
    frontier: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for depth in range(1, way.depth + 1):
        born = []
        for score, path in frontier:
            row = model([*text, *path]).log_softmax(-1)
            for token in row.topk(way.width).indices.tolist():
                born.append((score + float(row[token]), (*path, token)))
        candidates += [(-score, depth, path) for score, path in born]
        frontier = sorted(born, key=lambda each: -each[0])[: way.width]
    return {path for _, _, path in sorted(candidates)[:budget]}


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6}], ids=str)
@pytest.mark.parametrize("budget", [1, 2, 5, 12, 40])
@pytest.mark.parametrize(("width", "depth"), [(3, 4), (1, 5), (5, 2)])
def test_the_best_of_all_candidates_are_kept(width: int, depth: int, budget: int, sampling: dict[str, float]) -> None:
    """What is not expanded because it cannot be among the best any more would not have been."""
    for seed in range(5):
        model, text, fed = markov(seed), [3, 1], 0

        def forward(live: Sequence[GrowingTree]) -> torch.Tensor:
            nonlocal fed
            fed += sum(len(guess.fresh) for guess in live)
            return torch.stack([model([*text, *path]) for guess in live for path in guess.paths()])  # noqa: B023

        way = TopK(width, depth)
        guess = GrowingTree(context(text, vocab=8, **sampling), budget, way)
        grow_trees([guess], forward)
        draft = guess.draft()
        cooler = sampling.get("temperature", 1.0)
        want = likeliest(lambda prefix: model(prefix) / cooler, text, way, budget)  # noqa: B023
        assert {tuple(text_to(draft, node)) for node in range(len(draft))} == want
        assert draft.q is None
        assert fed <= 1 + width * (depth - 1)
        assert budget > 1 or fed == 1


def test_siblings_stand_in_order_of_likelihood_and_penalties_count() -> None:
    guess = GrowingTree(context([3, 1], vocab=8, frequency_penalty=100.0), 30, TopK(3, 3))
    model = markov(1)
    grow_trees([guess], lambda live: torch.stack([model([3, 1, *path]) for path in live[0].paths()]))
    draft = guess.draft()
    for node in range(len(draft)):
        path = text_to(draft, node)
        assert len(set(path)) == len(path), "a token so penalised came twice"
    first = [draft.tokens[node] for node in draft.children[0]]
    assert first == model([3, 1]).topk(len(first)).indices.tolist()


def test_broken_logits_draft_nothing() -> None:
    for sampling, way in product(({}, {"temperature": 1.0}), (TopK(3, 3), SMALL)):
        guess = GrowingTree(context([3, 1], vocab=8, **sampling), 12, way)
        grow_trees([guess], lambda live: torch.full((sum(len(guess.fresh) for guess in live), 8), float("nan")))
        assert len(guess.draft()) == 0


# -- the draft LM -----------------------------------------------------------------------------------------------------

TREES = ("top-k", "sampled")
FAMILIES = ("llama", "mistral", "gemma2")  # row kernels, with a window, and transformers' modules


@pytest.fixture
def drafter_of(tiny: Callable[..., str]) -> Iterator[Callable[..., DraftModel]]:
    made: list[DraftModel] = []

    def make(name: str = "llama", tree: Any = "sampled", **options: Any) -> DraftModel:
        runner = runner_of(tiny(name), max_length=64)
        made.append(DraftModel(runner, name="tiny", vocab_size=VOCAB, slots=4, tree=tree, chunk=8, **options))
        return made[-1]

    yield make
    for drafter in made:
        drafter.cache.check()


@pytest.mark.parametrize("name", FAMILIES)
def test_q_is_the_distribution_each_node_was_drawn_from(
    name: str, tiny: Callable[..., str], drafter_of: Callable[..., DraftModel]
) -> None:
    prompt = list(range(3, 22))
    (draft,) = drafter_of(name).propose([context(prompt, 14, temperature=0.7)])
    logits = model_of(tiny(name))
    assert draft.q is not None
    assert len(draft) == 14
    assert max(draft.depths) > 2
    assert not draft.is_chain
    for parent, family in enumerate(draft.children, start=-1):
        distribution = (logits([*prompt, *text_to(draft, parent)]) / 0.7).softmax(-1)
        for node in family:
            torch.testing.assert_close(draft.q[node], distribution / distribution.sum(), atol=1e-5, rtol=1e-3)
            distribution[draft.tokens[node]] = 0


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_greedy_tree_has_the_likeliest_tokens(
    name: str, tree: str, tiny: Callable[..., str], drafter_of: Callable[..., DraftModel]
) -> None:
    (draft,) = drafter_of(name, tree, depth=4, width=4).propose([context([5, 6, 9], 14)])
    logits = model_of(tiny(name))
    assert draft.q is None
    assert len(draft) == 14
    for parent, family in enumerate(draft.children, start=-1):
        best = logits([5, 6, 9, *text_to(draft, parent)]).topk(len(family)).indices.tolist() if family else []
        assert [draft.tokens[node] for node in family] == best


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("tree", TREES)
def test_an_accepted_path_is_not_read_again(
    tree: str, sampling: Any, drafter_of: Callable[..., DraftModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = drafter_of(tree=tree, depth=4, width=2)
    prompt = [5, 6, 7]
    (first,) = drafter.propose([context(prompt, 14, **sampling)])
    deepest = max(range(len(first)), key=lambda node: first.depths[node])
    path = text_to(first, deepest)
    assert len(path) == 4  # with so few candidates all are kept, down to the last level
    rows = rows_fed(drafter, monkeypatch)
    for kept, bonus, fed in ((path, 11, 2), (path[:2], (path[2] + 1) % VOCAB, 1)):  # its leaf was never fed
        after = [*prompt, *kept, bonus]
        drafter.release(0)
        drafter.propose([context(prompt, 14, **sampling)])
        rows.clear()
        (second,) = drafter.propose([context(after, 14, **sampling)])
        assert rows[0] == fed
        fresh = DraftModel(drafter.runner, name="fresh", vocab_size=VOCAB, slots=1, tree=tree, depth=4, width=2)
        (want,) = fresh.propose([context(after, 14, **sampling)])
        assert (second.tokens, second.parents) == (want.tokens, want.parents)


@pytest.mark.parametrize("tree", TREES)
def test_a_ragged_batch_equals_each_alone(tree: str, drafter_of: Callable[..., DraftModel]) -> None:
    drafter = drafter_of(tree=tree)
    contexts = [
        context([5, 6], 1, 0, temperature=1.0),
        context([9] * 12, 16, 1),
        context([3], 9, 2, temperature=0.5, top_p=0.9),
        context([8] * 62, 7, 3, temperature=1.0),  # two more tokens fill its context
    ]
    together = drafter.propose(contexts)
    for each, draft in zip(contexts, together, strict=True):
        alone = drafter_of(tree=tree).propose([each])[0]
        assert (alone.tokens, alone.parents) == (draft.tokens, draft.parents)
        if draft.q is not None and alone.q is not None:
            assert torch.equal(alone.q, draft.q)
        assert 0 < len(draft) <= each.budget.nodes


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("tree", TREES)
def test_budgets_at_the_edge(tree: str, sampling: Any, drafter_of: Callable[..., DraftModel]) -> None:
    drafter = drafter_of(tree=tree)
    assert [len(drafter.propose([context([5, 6, 7], n, **sampling)])[0]) for n in (0, 1, 2, 64, 1000)] == [
        *(0, 1, 2, 64, 64)
    ]
    depths = []
    for n in (60, 61, 62, 63, 64, 90):
        (draft,) = drafter.propose([context([5] * n, 24, **sampling)])
        depths.append(max(draft.depths, default=0))
        assert len(draft) > 0 or n >= 64
    # the nodes that are fed must fit behind the text, each in a place of its own
    assert depths[3:] == [2, 0, 0]
    assert depths[0] >= depths[1] >= depths[2] >= depths[3]


def test_options(drafter_of: Callable[..., DraftModel]) -> None:
    for options in ({"tree": "bushy"}, {"width": 0}, {"depth": 0}, {"depth": 2.5}):
        with pytest.raises(InvalidOption):
            drafter_of(**options)
    with pytest.raises(InvalidOption):
        EarlyExitDrafter(tree="bushy")  # type: ignore[arg-type]
    assert drafter_of(tree="none").sizes == ()
    assert drafter_of(tree="none").default_budget == 5
    assert drafter_of(tree="top-k").default_budget == 32
    assert drafter_of(tree="top-k").draws is False
    assert drafter_of(tree="sampled").draws is True
    assert EarlyExitDrafter(tree="top-k", layer=1).draws is False


def step_of(request: int, draft: Draft, path: tuple[int, ...]) -> Observation:
    speculation = Speculation(True, "tiny")
    return Observation(Step(request, 0, 3, draft, path, (1,), None, len(draft) + 1, 1, Seconds(), None, speculation))


def test_a_shape_is_learnt_but_not_for_a_pinned_text(drafter_of: Callable[..., DraftModel]) -> None:
    """Where only the eldest is ever accepted the tree becomes a chain; a seed's text may not hang on that."""
    drafter = drafter_of(depth=8)

    def shape(request: int, alone: bool) -> tuple[int, ...]:
        (draft,) = drafter.propose([context([5, 6], 8, request, temperature=1.0, alone=alone)])
        drafter.release(request)
        return draft.parents

    before = shape(1, False)
    assert shape(1, True) == before
    for _ in range(300):
        (draft,) = drafter.propose([context([5, 6], 8, 0, temperature=1.0)])
        eldest: list[int] = []
        while draft.children[eldest[-1] + 1 if eldest else 0]:
            eldest.append(draft.children[eldest[-1] + 1 if eldest else 0][0])
        named = Draft(draft.tokens, draft.parents, draft.q, source="tiny")
        drafter.observe(step_of(0, named, tuple(eldest)))
    drafter.release(0)
    assert shape(1, False) == tuple(range(-1, 7)) != before
    assert shape(1, True) == before


# -- the text ---------------------------------------------------------------------------------------------------------

LENGTHS = (3, 21, 9, 1, 14)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in LENGTHS]


@pytest.fixture
def engine_of(tiny: Callable[..., str]) -> Iterator[Callable[..., hs.Engine]]:
    """An engine in float32 with a drafter of trees: a draft LM, or the target's first layers."""
    engines: list[hs.Engine] = []

    def make(target: str, tree: Any, kind: str = "draft LM", draft: str = "", **options: Any) -> hs.Engine:
        length, depth = options.pop("max_length", CONTEXT), options.pop("depth", None)
        runner = runner_of(target, max_length=length)
        made: Drafter
        if kind == "early exit":
            made = EarlyExitDrafter(layer=3, tree=tree, depth=depth)
        else:
            made = DraftModel(
                runner_of(draft, max_length=length),
                name=kind,
                vocab_size=runner.vocab_size,
                slots=options.get("max_batch_size", 3),
                tree=tree,
                depth=depth,
            )
        options.setdefault("max_batch_size", 3)
        options.setdefault("eos_token_ids", frozenset({2}))
        engines.append(assemble(runner, drafter=made, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.cache.check()
        assert engine.cache.free_slots == len(engine.cache.lengths)
        cache = getattr(engine.drafter, "cache", None)
        if cache is not None:
            cache.check()
            assert cache.free_slots == len(cache.lengths), "the drafter kept a slot"


@cache
def greedy(path: str) -> list[tuple[int, ...]]:
    """What transformers' own `generate` writes after the prompts."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    want = []
    for prompt in prompts():
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)
        want.append(tuple(out[0, len(prompt) :].tolist()))
    return want


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "draft LM") for name in (*FAMILIES, "qwen3", "gpt2")] + [("llama", "early exit"), ("qwen2", "early exit")],
)
def test_greedy_text_is_transformers_own(
    name: str, kind: str, tree: str, rule: Any, tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]
) -> None:
    engine = engine_of(tiny(name), tree, kind, tiny(name, noise=0.02), rule=rule, prefill_chunk=8)
    outs = engine.generate(prompts(), hs.Sampling(max_tokens=32))
    assert [out.tokens for out in outs] == greedy(tiny(name))
    assert sum(out.stats.accepted for out in outs) > 0
    assert all(out.stats.speculation.error is None for out in outs)


@pytest.mark.parametrize("k", [0, 1, 2, 64])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}], ids=str)
def test_every_budget_up_to_the_end_of_the_context(
    sampling: Any, tree: str, k: int, tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]
) -> None:
    engine = engine_of(
        tiny("llama"), tree, draft=tiny("llama", noise=0.02), num_speculative_tokens=k, rule="coupled", max_length=40
    )
    outs = engine.generate(prompts(), hs.Sampling(max_tokens=64, ignore_eos=True, **sampling))
    plain = engine.plain().generate(prompts(), hs.Sampling(max_tokens=64, ignore_eos=True, **sampling))
    assert [out.tokens for out in outs] == [out.tokens for out in plain]
    assert all(len(out.prompt_tokens) + len(out.tokens) == 40 for out in outs)
    assert all(out.stats.speculation.error is None for out in outs)


def test_coupled_gives_one_text_for_a_seed(tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]) -> None:
    samplings = [
        hs.Sampling(max_tokens=24, seed=1, temperature=1.0),
        hs.Sampling(max_tokens=24, seed=2, temperature=1.3, min_p=0.05, repetition_penalty=1.2, frequency_penalty=0.3),
        hs.Sampling(max_tokens=24, seed=3, temperature=0.7, top_p=0.9),
    ]
    texts = set()
    for tree, kind, k in product(TREES, ("draft LM", "early exit"), (4, 20)):
        engine = engine_of(
            tiny("llama"), tree, kind, tiny("llama", noise=0.02), rule="coupled", num_speculative_tokens=k
        )
        outs = engine.generate(prompts()[:3], samplings)
        assert sum(out.stats.accepted for out in outs) > 0
        texts.add(tuple(out.tokens for out in outs))
    texts.add(tuple(out.tokens for out in engine.plain().generate(prompts()[:3], samplings)))
    assert len(texts) == 1


def test_trees_of_likeliest_nodes_leave_a_seeds_text_alone(
    tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]
) -> None:
    """Also under rule "exact": they are point masses."""
    engine = engine_of(tiny("llama"), "top-k", draft=tiny("llama", noise=0.02), rule="exact")
    sampling = hs.Sampling(max_tokens=24, seed=1, temperature=1.0)
    out = engine.generate(prompts()[1], sampling)
    assert out.tokens == engine.plain().generate(prompts()[1], sampling).tokens
    assert out.stats.accepted > 0
    assert not engine.drafter.draws


# -- at temperature ---------------------------------------------------------------------------------------------------


ELSEWHERE = (("sampled", "exact"), ("top-k", "coupled"))
"""What the fast suite has in the exactness matrix, and with an EAGLE head."""
DRAFTS = (("near model", 1.0), ("other model", 1.3), ("early exit", 1.0))


@pytest.mark.parametrize(
    ("tree", "rule", "kind", "temperature"),
    rotated([TREES, ("exact", "coupled")], DRAFTS, lambda tree, rule: (tree, rule) in ELSEWHERE, most=1),
)
def test_chi_square(
    tree: str, rule: Any, kind: str, temperature: float, root: Path, engine_of: Callable[..., hs.Engine]
) -> None:
    path = model(root, 0, 4)
    draft = model(root, 0, 4, 0.1) if kind == "near model" else model(root, 5, 4)
    options = {"rule": rule, "max_batch_size": 50, "max_length": 32, "eos_token_ids": frozenset(), "depth": 2}
    engine = engine_of(path, tree, kind, draft, **options)
    # What is left of max_tokens bounds a budget: five nodes and then less
    samplings = [hs.Sampling(max_tokens=6, temperature=temperature, seed=seed) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint_distribution(path, temperature, 1.0)) > 1e-3
    accepted = sum(out.stats.accepted for out in outs)
    assert 0 < accepted < sum(out.stats.drafted for out in outs)


# -- paced ------------------------------------------------------------------------------------------------------------


def paced(engine: hs.Engine) -> Timeless:
    """Adaptive pacing with made-up costs: rows nearly free, a level a tenth of a step."""
    drafter = engine.drafter
    assert drafter is not None
    rows = tuple((n, 0.01 * (1 + 0.002 * n)) for n in (1, 2, 4, 8, 16, 32, 64))
    costs = StepCosts(rows, 0.0, {drafter.name: DraftCost(0.0, 0.001, 0.0, 0.1)})
    return Timeless([Source(drafter.name, drafter.limit, tuple(drafter.sizes))], costs)


@pytest.mark.parametrize("tree", TREES)
def test_paced_trees_keep_the_text(tree: str, tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]) -> None:
    engine = engine_of(tiny("llama"), tree, draft=tiny("llama", noise=0.02))
    give(engine, paced(engine))
    steps: list[Step] = []
    engine.subscribe(steps.append)
    sampling = hs.Sampling(max_tokens=60, ignore_eos=True)
    outs = engine.generate(prompts(), sampling)
    assert [out.tokens for out in outs] == [out.tokens for out in engine.plain().generate(prompts(), sampling)]
    assert any(not step.draft.is_chain for step in steps), "no tree was ever worth it"
    assert len({len(step.draft) for step in steps}) > 3
    assert all(out.stats.speculation.error is None for out in outs)


def test_a_seed_gives_one_text_whatever_was_learnt(
    tiny: Callable[..., str], engine_of: Callable[..., hs.Engine]
) -> None:
    """Under rule "exact" drawn trees reach into a text; neither shapes nor sizes may come from other requests."""
    engine = engine_of(tiny("llama"), "sampled", draft=tiny("llama", noise=0.02), rule="exact")
    give(engine, paced(engine))
    assert engine.drafter.draws
    sampling = hs.Sampling(max_tokens=40, temperature=1.0, seed=5, ignore_eos=True)
    first = engine.generate(prompts()[1], sampling)
    assert first.stats.accepted > 0
    free = hs.Sampling(max_tokens=60, temperature=0.4, ignore_eos=True)
    engine.generate(prompts() * 3, free)
    batch = engine.generate([prompts()[0], prompts()[1], prompts()[2]], [free, sampling, free])
    assert engine.generate(prompts()[1], sampling).tokens == batch[1].tokens == first.tokens
