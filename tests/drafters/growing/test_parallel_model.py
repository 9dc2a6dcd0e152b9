"""A draft LM with a mask token: one forward, rows that are transformers' own, and the target's distribution kept
exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.counting import rows_fed
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.greedy import NEW, prompts, reference
from support.parallel_drafts import all_rows, masked_checkpoint
from support.rational_draft import PROMPT as BEGIN
from support.rational_draft import EnumeratedNoise, RationalRunner, judged, step_of
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, model, p_value
from support.sampled_distribution import joint as joint_distribution
from support.tiny import VOCAB, random_model

import headstart as hs
from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.drafters import Foresees, Observation, Row
from headstart.drafters.draft_model import DraftModel, ParallelDraft, mask_token
from headstart.drafters.growing.grow import Residual
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.measuring import measure
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Budget, Sampling

MASK = 96


@pytest.fixture
def drafter() -> ParallelDraft:
    runner = ModelRunner(adopt(random_model("llama")), max_length=64)
    return ParallelDraft(runner, name="tiny", mask=MASK, vocab_size=VOCAB, slots=3, chunk=8)


def context(tokens: Sequence[int], budget: int = 4, request: int = 0, **sampling: Any) -> Row:
    distribution = SamplingState(Sampling(**sampling), tokens, VOCAB, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(7), budget=Budget(budget))


# -- what is drafted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [[5], list(range(3, 30))], ids=["short", "read in chunks"])
def test_every_row_is_that_of_transformers_and_its_token_is_drawn_from_it(
    drafter: ParallelDraft, prompt: list[int]
) -> None:
    (draft,) = drafter.propose([context(prompt, temperature=0.7)])
    want = (all_rows(random_model("llama"), prompt, MASK, 4) / 0.7).softmax(-1)
    assert draft.q is not None
    torch.testing.assert_close(draft.q, want, atol=1e-5, rtol=1e-4)
    noise = Noise(7)
    drawn = [noise.draw(draft.q[i].numpy(), len(prompt) + i, Purpose.DRAFT, len(prompt)) for i in range(4)]
    assert list(draft.tokens) == drawn
    (greedy,) = drafter.propose([context(prompt, request=1)])
    assert greedy.q is None
    assert list(greedy.tokens) == all_rows(random_model("llama"), prompt, MASK, 4).argmax(-1).tolist()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.3}], ids=str)
def test_of_one_token_it_drafts_what_a_draft_model_does(drafter: ParallelDraft, sampling: dict[str, Any]) -> None:
    plain = DraftModel(drafter.runner, name="plain", vocab_size=VOCAB, slots=3, chunk=8)
    text = [5, 6, 7]
    for _ in range(6):
        row = context(text, 1, **sampling)
        (one,), (other,) = drafter.propose([row]), plain.propose([row])
        assert one.tokens == other.tokens
        if one.q is None or other.q is None:
            assert one.q is other.q is None
        else:
            torch.testing.assert_close(one.q, other.q)
        text += [one.tokens[0], 9]


def test_a_draft_is_one_forward_of_the_new_text_and_the_masks(
    drafter: ParallelDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_fed(drafter, monkeypatch)
    prompt = [5, 6, 7]
    (first,) = drafter.propose([context(prompt)])
    assert rows == [3 + 3]
    accepted = [*prompt, *first.tokens, 9]
    (second,) = drafter.propose([context(accepted)])
    assert rows[1:] == [5 + 3], "the guesses were never fed, so accepted ones are read like any other text"
    rejected = [*accepted, (second.tokens[0] + 1) % VOCAB]
    (third,) = drafter.propose([context(rejected)])
    assert rows[2:] == [1 + 3]
    fresh = ParallelDraft(drafter.runner, name="fresh", mask=MASK, vocab_size=VOCAB, slots=1)
    assert third.tokens == fresh.propose([context(rejected)])[0].tokens


def test_penalties_see_the_guesses_before(drafter: ParallelDraft) -> None:
    (draft,) = drafter.propose([context([5, 6], budget=6, frequency_penalty=100.0)])
    assert len(set(draft.tokens)) == 6


def test_a_residual_is_left_and_is_part_of_the_distribution(drafter: ParallelDraft) -> None:
    low = ParallelDraft(drafter.runner, name="low", mask=MASK, vocab_size=VOCAB, slots=1, residual=Residual(0.5, 2))
    (plain,) = drafter.propose([context([5, 6], temperature=1.0)])
    (lowered,) = low.propose([context([5, 6], temperature=1.0)])
    assert plain.q is not None
    assert lowered.q is not None
    for one, other in zip(plain.q, lowered.q, strict=True):
        torch.testing.assert_close(Residual(0.5, 2).lower(one), other)


def test_a_batch_of_different_budgets_equals_each_alone(drafter: ParallelDraft) -> None:
    contexts = [
        context([5, 6], 1, 0, temperature=1.0),
        context([9] * 12, 4, 1),
        context([3], 0, 3),
        context([3], 2, 2, temperature=0.5, top_p=0.9),
    ]
    together = drafter.propose(contexts[:2]) + drafter.propose(contexts[3:])
    drafter.release(1)
    together.insert(2, drafter.propose([contexts[2]])[0])
    for each, draft in zip(contexts, together, strict=True):
        alone = ParallelDraft(drafter.runner, name="alone", mask=MASK, vocab_size=VOCAB, slots=1).propose([each])[0]
        assert alone.tokens == draft.tokens
        assert len(draft) == each.budget.nodes


def test_at_the_end_of_its_context_it_proposes_less_and_then_nothing(drafter: ParallelDraft) -> None:
    lengths = [len(drafter.propose([context([5] * n, 3)])[0]) for n in (61, 62, 63, 64, 90)]
    assert lengths == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("tree", ["top-k", "sampled", "mixed"])
def test_trees_come_of_one_forward_too(tree: Any, drafter: ParallelDraft, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = ParallelDraft(
        drafter.runner, name="trees", mask=MASK, vocab_size=VOCAB, slots=3, chunk=8, tree=tree, depth=3
    )
    rows = rows_fed(trees, monkeypatch)
    warm = {"temperature": 1.0, "repetition_penalty": 1.2}
    contexts = [context([5, 6], 9), context([7], 9, 1, temperature=1.0), context([9], 9, 2, **warm)]
    drafts = trees.propose(contexts)
    assert len(rows) == 1
    assert all(len(draft) == 9 and max(draft.depths) <= 3 for draft in drafts)
    distributions = all_rows(random_model("llama"), [5, 6], MASK, 3).softmax(-1)
    if tree != "sampled":  # the likeliest nodes by the product of their distributions
        chances = [
            float(
                torch.stack(
                    [distributions[d, drafts[0].tokens[node]] for d, node in enumerate(drafts[0].path(n))]
                ).prod()
            )
            for n in range(9)
        ]
        assert chances == sorted(chances, reverse=True)
    assert [draft.q is None for draft in drafts] == [True, tree == "top-k", tree == "top-k"]
    for length in (61, 62, 63, 64):
        (draft,) = trees.propose([context([5] * length, 9, 0)])
        assert len(draft) <= 9
        assert bool(len(draft)) == (length < 64)
        assert max(draft.depths, default=0) <= 64 - length


def test_slots_are_given_back(drafter: ParallelDraft) -> None:
    for request in range(10):
        drafter.propose([context([5, 6], request=request)])
        drafter.release(request)
        drafter.release(request)
    drafter.cache.check()
    assert drafter.cache.free_slots == 3


def test_pacing_finds_a_draft_of_any_depth_to_be_one_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is what is modelled: start + token * depth, where all depths are rows of one forward."""
    target = ModelRunner(adopt(random_model("llama")), max_length=64)
    draft = ModelRunner(adopt(random_model("llama")), max_length=64)
    drafter = ParallelDraft(draft, name="tiny", mask=MASK, vocab_size=VOCAB, slots=4)
    proposed: list[int] = []
    propose = drafter.propose
    monkeypatch.setattr(drafter, "propose", lambda rows: proposed.append(rows[0].budget.nodes) or propose(rows))
    rows = rows_fed(drafter, monkeypatch)
    costs = measure(target, target.new_cache(1), [drafter], batch=1, seconds=0.01).costs
    assert {1, 5} <= set(proposed)
    assert len(rows) == len(proposed)
    assert set(costs.drafts) == {"tiny"}


# -- the distribution
# ----------------------------------------------------------------------------------------------------------


def two_rounds(p: RandomModel, q: RandomModel, vocab: int, coupled_rows: bool = False) -> Callable[[Oracle], Any]:
    """Two rounds of a parallel draft of two tokens and of one, judged by traversal verification. The last token of the
    draft's vocabulary is the mask. coupled_rows: the second distribution is not the row that its token was drawn
    from."""

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        runner: Any = RationalRunner(q, vocab)
        noise: Any = EnumeratedNoise(oracle)
        drafter = ParallelDraft(runner, name="q", mask=vocab - 1, vocab_size=vocab, slots=1)
        drafter.attach(runner, SimpleNamespace(keeps_texts=False))  # type: ignore[arg-type]
        distribution = SamplingState(Sampling(temperature=1.0), BEGIN, vocab, frozenset())
        text = BEGIN
        for nodes in (2, 1):
            (draft,) = drafter.propose([Row(0, text, sampling_state=distribution, noise=noise, budget=Budget(nodes))])
            if coupled_rows and draft.q is not None and len(draft) > 1:
                given = [*text[len(BEGIN) :], draft.tokens[0]]
                draft.q[1] = torch.tensor([float(x) for x in q(tuple(given))])
            new = judged(draft, p, text[len(BEGIN) :], oracle)
            text += new
            drafter.observe(Observation(step_of(draft, new)))
        drafter.release(0)
        return text[len(BEGIN) :]

    return procedure


@pytest.mark.parametrize(("seed", "vocab"), [(3, 2), (4, 2), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_two_rounds_keep_the_distribution_exactly(seed: int, vocab: int) -> None:
    p, q = RandomModel(seed, vocab), RandomModel(seed + 100, vocab)
    assert completed(outcomes(two_rounds(p, q, vocab)), p, 3) == joint(p, 3, vocab)


def test_a_row_that_the_token_was_not_drawn_from_is_found_by_enumeration() -> None:
    p, q = RandomModel(3, 2), RandomModel(103, 2)
    assert completed(outcomes(two_rounds(p, q, 2, coupled_rows=True)), p, 3) != joint(p, 3, 2)


@pytest.mark.parametrize(
    ("rule", "temperature", "top_p"),
    [
        pytest.param(*each, marks=pytest.mark.slow)  # the exactness matrix has its fast part
        for each in (("exact", 1.0, 1.0), ("exact", 0.7, 0.9), ("coupled", 1.0, 0.8))
    ],
)
def test_chi_square(rule: Any, temperature: float, top_p: float, root: Path, load: Callable[..., hs.Engine]) -> None:
    path = model(root, 0, 2)
    near = masked_checkpoint(model(root, 0, 2, 0.1), 7)
    engine = load(path, near, rule=rule, max_batch_size=50, max_length=32, num_speculative_tokens=3)
    samplings = [
        hs.Sampling(max_tokens=TOKENS + 2, temperature=temperature, top_p=top_p, seed=seed) for seed in range(SAMPLES)
    ]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint_distribution(path, temperature, top_p)) > 1e-3
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "gemma2"))]
)
def test_greedy_text_is_that_of_transformers(
    name: str, rule: Any, tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    engine = load(name, masked_checkpoint(tiny(name, noise=0.02), MASK), rule=rule, max_batch_size=3, prefill_chunk=8)
    assert isinstance(engine.drafter, ParallelDraft)
    sampling = hs.Sampling(max_tokens=NEW)
    assert engine.generate(list(prompts()[1]), sampling).tokens == reference(tiny(name))[1]
    batch = engine.generate([list(prompt) for prompt in prompts()], sampling)
    assert tuple(out.tokens for out in batch) == reference(tiny(name))
    assert sum(out.stats.accepted for out in batch) > 0


def test_with_a_prefix_cache_and_with_requests_that_are_cancelled(
    tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    engine = load("llama", masked_checkpoint(tiny("llama", noise=0.02), MASK), prefix_cache=True, max_batch_size=2)
    prompt = list(prompts()[1]) * 2
    alone = engine.generate(prompt, hs.Sampling(max_tokens=12)).tokens
    stream = engine.stream(prompt, hs.Sampling(max_tokens=12))
    next(iter(stream))
    stream.close()
    again = engine.generate([prompt, [*prompt, *alone[:4]]], hs.Sampling(max_tokens=8))
    assert again[0].tokens == alone[:8]
    assert again[1].tokens[:4] == alone[4:8]


# -- what is recognised -----------------------------------------------------------------------------------------------


def test_a_published_draft_is_recognised_by_its_config_and_another_is_as_before(
    tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    path = tiny("llama", noise=0.02)
    assert isinstance(load("llama", path).drafter, DraftModel)
    found = load("llama", masked_checkpoint(path, MASK)).drafter
    assert isinstance(found, ParallelDraft)
    assert (found.mask, found.default_budget, found.limit, isinstance(found, Foresees)) == (MASK, 8, 16, False)
    engine = load("llama", masked_checkpoint(path, MASK), num_speculative_tokens=3)
    lengths = []
    engine.subscribe(lambda step: lengths.append(len(step.draft)))
    engine.generate([5, 6], hs.Sampling(max_tokens=12, ignore_eos=True))
    assert max(lengths) == 3


def test_fields_that_name_the_mask() -> None:
    def config(**fields: Any) -> Any:
        text = SimpleNamespace(vocab_size=VOCAB)
        return SimpleNamespace(get_text_config=lambda: text, **fields)

    assert mask_token(config()) is None
    assert mask_token(config(pard_token=None)) is None
    assert mask_token(config(pard_token=3)) == 3
    assert mask_token(config(ptd_token_id=4)) == 4
    assert mask_token(config(pard_token=3, ptd_token_id=4)) == 3
    for wrong in (VOCAB, -1, "3", 1.0, True):
        with pytest.raises(UnsupportedModel, match="pard_token") as error:
            mask_token(config(pard_token=wrong))
        assert "token by token" in error.value.hint


def test_what_does_not_go_with_it_is_refused(tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    path = masked_checkpoint(tiny("llama", noise=0.02), MASK)
    with pytest.raises(InvalidOption, match="cannot draft ahead"):
        load("llama", f"ahead:{path}")
    with pytest.raises(UnsupportedModel, match="pard_token=4000"):
        load("llama", masked_checkpoint(tiny("llama", noise=0.02), 4000))
    with pytest.raises(InvalidOption, match="goes with chains"):
        load("llama", path, draft_tree="top-k", draft_residual=0.5)
    assert load("llama", path, draft_tree="mixed").drafter.sizes[-1] == (64, 8)
