"""What adaptive pacing must leave alone: greedy text, the distribution of sampled text, and a seed's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.greedy import NEW, prompts, reference
from support.pacing import give
from support.rotation import rotated
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, model, p_value
from support.tiny import random_model

import headstart as hs
from headstart.commands.figures import speculation_in_words
from headstart.drafters import Drafter, Row, capabilities
from headstart.drafters.ngram import NgramDrafter
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft

ROWS = ((1, 0.010), (2, 0.0102), (4, 0.0106), (8, 0.0114), (16, 0.013), (64, 0.014))


class Timeless(AdaptivePacing):
    """Believes its costs whatever the clock says: tiny models' own are all alike."""

    def _learn_costs(self, *_: Any) -> None:
        pass


def cheap(engine: hs.Engine, token: float = 0.001) -> hs.Engine:
    """The same engine with made-up costs, at which drafts are worth pondering."""
    drafter = engine.drafter
    assert drafter is not None
    parts = capabilities.parts(drafter)
    costs = StepCosts(ROWS, 0.0, {part.name: DraftCost(0.0, token, token / 50, 0.01) for part in parts})
    give(engine, Timeless([Source(part.name, capabilities.limit(part)) for part in parts], costs))
    return engine


def steps_of(engine: hs.Engine) -> list[hs.Step]:
    steps: list[hs.Step] = []
    engine.subscribe(steps.append)
    return steps


# -- greedy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ngram", "draft LM", "perturbed target", "list"])
def test_greedy_text_is_that_of_plain_decoding(
    kind: str, tiny: Callable[..., str], load: Callable[..., hs.Engine]
) -> None:
    near = tiny("llama", noise=0.02)
    drafter = {"draft LM": tiny("llama", seed=9), "perturbed target": near, "list": ["ngram", near]}.get(kind, kind)
    expected = reference(tiny("llama"))
    for engine in (
        load("llama", drafter, pacing="adaptive", max_batch_size=3, prefill_chunk=8),
        cheap(load("llama", drafter, max_batch_size=3, prefill_chunk=8)),
    ):
        steps = steps_of(engine)
        sampling = hs.Sampling(max_tokens=NEW)
        for _ in range(2):
            assert engine.generate(list(prompts()[1]), sampling).tokens == expected[1]
            outs = engine.generate([list(prompt) for prompt in prompts()], sampling)
            assert tuple(out.tokens for out in outs) == expected
    assert len({step.budget.nodes for step in steps}) > 2, "the lengths must have varied"


# -- the distribution
# -----------------------------------------------------------------------------------------------------------


# The exactness matrix has rule "exact" under adaptive pacing in its fast part.
@pytest.mark.parametrize(
    ("rule", "seeded"), rotated([("exact", "coupled")], [(True,), (False,)], lambda rule: rule == "exact")
)
def test_chi_square_under_adaptive_pacing(rule: Any, seeded: bool, root: Path, load: Callable[..., hs.Engine]) -> None:
    """Draft lengths that depend on what was accepted before: on this request alone, or on all of them."""
    path, near = model(root, 0, 2), model(root, 0, 2, 0.1)
    engine = cheap(load(path, ["ngram", near], rule=rule, max_batch_size=50, max_length=32), 0.001)
    steps = steps_of(engine)
    samplings = [
        hs.Sampling(max_tokens=TOKENS + 6, temperature=1.0, top_p=0.8, seed=seed if seeded else None)
        for seed in range(SAMPLES)
    ]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(path, 1.0, 0.8)) > 1e-3
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)
    assert len({step.budget.nodes for step in steps}) > 2


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_a_seed_gives_one_text_whatever_else_runs(tiny: Callable[..., str], load: Callable[..., hs.Engine]) -> None:
    """Alone, again, after others, in a batch with others, with other chunks: the same draft lengths, the same text."""
    warm = hs.Sampling(max_tokens=60, temperature=1.0, seed=7, ignore_eos=True)
    near = tiny("llama", noise=0.02)
    lengths, texts = set(), set()
    for options in ({}, {"max_batch_size": 2}, {"prefill_chunk": 3}):
        engine = cheap(load("llama", ["ngram", near], rule="exact", **options))
        for others in ([], [[9] * 20, [3, 4]], [[8, 9, 8, 9, 8]] * 3, []):
            steps = steps_of(engine)
            requests = [engine.submit(other, hs.Sampling(max_tokens=30, temperature=0.5)) for other in others]
            request = engine.submit([5, 6, 7, 5, 6], warm)
            while request.finish_reason is None or any(other.finish_reason is None for other in requests):
                engine.step()
            texts.add(request.finish().tokens)
            mine = [step for step in steps if step.request == request.number and step.tokens]
            lengths.add(tuple(step.budget.nodes for step in mine))
    assert len(texts) == len(lengths) == 1
    assert len(set(lengths.pop())) > 1, "the lengths must have varied"


def test_unseeded_and_greedy_rows_are_not_pinned(tiny: Callable[..., str], load: Callable[..., hs.Engine]) -> None:
    """Nor is anything where lengths leave the text alone: point masses, and the rules that couple a seed."""
    seen: list[bool] = []

    class Spy(AdaptivePacing):
        def plan(self, rows: Sequence[Any]) -> Any:
            seen.extend(row.reproducible for row in rows)
            return super().plan(rows)

    warm = {"temperature": 1.0, "max_tokens": 3}
    cases: list[tuple[dict[str, Any], hs.Sampling, bool]] = [
        ({"rule": "exact"}, hs.Sampling(seed=1, **warm), True),
        ({"rule": "exact"}, hs.Sampling(**warm), False),
        ({"rule": "exact"}, hs.Sampling(seed=1, max_tokens=3), False),
        ({"rule": "auto"}, hs.Sampling(seed=1, **warm), False),
        ({"rule": "auto"}, hs.Sampling(**warm), False),
        ({"rule": "coupled"}, hs.Sampling(seed=1, **warm), False),
        ({"rule": "exact", "drafter": "ngram"}, hs.Sampling(seed=1, **warm), False),
    ]
    for options, sampling, pinned in cases:
        engine = load("llama", **{"drafter": tiny("llama", noise=0.02), **options})
        assert engine.drafter is not None
        give(engine, Spy([Source(engine.drafter_name, 4)], StepCosts(ROWS)))
        seen.clear()
        engine.generate([5, 6], sampling)
        assert set(seen) == {pinned}


# -- what is shown -----------------------------------------------------------------------------------------------------


class Wrong(Drafter):
    """Always has something to say, and is never right; counts what it is asked."""

    name = "wrong"
    default_budget = 4

    def __init__(self) -> None:
        self.asked = 0

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        self.asked += len(contexts)
        return [Draft.chain([96] * context.budget.nodes) for context in contexts]


def test_steps_and_stats_say_why() -> None:
    target = ModelRunner(adopt(random_model("llama")), max_length=96)
    wrong = Wrong()
    engine = cheap(assemble(target, drafter=wrong), 0.003)
    steps = steps_of(engine)
    out = engine.generate([5, 6, 7], hs.Sampling(max_tokens=90, ignore_eos=True, logit_bias={96: -100.0}))
    assert out.stats.accepted == 0
    assert wrong.asked < 30, "a drafter that is never right must be left alone"
    drafted = [step for step in steps if len(step.draft)]
    assert all(step.draft.source == "wrong" and step.budget.nodes >= len(step.draft) for step in drafted)
    resting = [step for step in steps if step.budget.reason.startswith("K=0: checking 2 rows costs ")]
    assert len(resting) > 50
    found = out.stats.speculation
    assert found.on
    assert "costs more than it gives; probing every" in found.reason
    assert found.not_guessing == found.reason.replace("K=0", "not guessing now")
    assert engine.describe()["not_guessing"] == found.not_guessing, "one source of words"
    assert found.not_guessing in speculation_in_words(out.stats), "what generate --stats prints"


def test_fixed_budgets_say_so_too(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", "ngram", num_speculative_tokens=3)
    out = engine.generate([5, 6, 5, 6, 5], hs.Sampling(max_tokens=12, ignore_eos=True))
    assert out.stats.speculation.reason == "K=3, fixed"
    assert not out.stats.speculation.not_guessing
    assert engine.describe()["not_guessing"] is None
    plain = engine.plain().generate([5, 6], hs.Sampling(max_tokens=3))
    assert not plain.stats.speculation.on
    assert plain.stats.speculation.reason == "no drafter was asked for"


def test_an_upper_bound_is_one(tiny: Callable[..., str], load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", tiny("llama"), pacing="adaptive", num_speculative_tokens=2)
    steps = steps_of(engine)
    engine.generate([5, 6], hs.Sampling(max_tokens=40, ignore_eos=True))
    assert max(step.budget.nodes for step in steps) <= 2


def test_a_source_by_itself_may_go_beyond_its_default() -> None:
    target = ModelRunner(adopt(random_model("llama")), max_length=96)
    engine = cheap(assemble(target, drafter=NgramDrafter(budget=4)), 0.0)
    steps = steps_of(engine)
    engine.generate([11] * 8, hs.Sampling(max_tokens=80, ignore_eos=True, logit_bias={11: 100.0}))
    # Of lengths that are about as fast, the shortest is taken in a source's first rounds
    assert NgramDrafter.limit - 2 <= max(len(step.draft) for step in steps) <= NgramDrafter.limit
