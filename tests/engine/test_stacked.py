"""Stacks: drafts follow the model's own distribution whatever guesses for it, and are those of the model alone where
nothing is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.sampled_distribution import PROMPT, TOKENS, VOCAB, joint, model, p_value

import headstart as hs
from headstart.drafters import Drafter, Observation, Row
from headstart.drafters.cascade import Cascade
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.guarded_drafter import attach
from headstart.engine.stacked import StackedDrafter
from headstart.loading.assembly import assemble
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing, Plan
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Budget, Draft, Sampling, Step

SAMPLES, SLOTS = 1000, 50
MODEL, GUESSES = (0, 2), (0, 2, 0.1)
"""Seed, layers and noise of the model that is tested here, and of one that guesses for it."""


@pytest.fixture(scope="module")
def runner(root: Path) -> Callable[..., ModelRunner]:
    return lambda *which: hs.Target(model(root, *which), dtype="float32").runner


def stack(
    written: ModelRunner, drafter: Drafter, slots: int = SLOTS, nodes: int = 2, vocab_size: int = VOCAB
) -> StackedDrafter:
    cache = written.new_cache(slots)
    inner = drafter if isinstance(drafter, Cascade) else Cascade([drafter])
    attach(inner, written, cache)
    return StackedDrafter(written, cache, inner, FixedPacing(nodes), name="stack", vocab_size=vocab_size)


def draft_model(made: ModelRunner, slots: int = SLOTS, **options: str) -> DraftModel:
    return DraftModel(made, name="guesses", vocab_size=VOCAB, slots=slots, **options)  # type: ignore[arg-type]


def row(
    tokens: Sequence[int], *, request: int = 0, nodes: int = TOKENS, purpose: Purpose = Purpose.DRAFT, **of: float
) -> Row:
    sampling = Sampling(**of)  # type: ignore[arg-type]
    state = SamplingState(sampling, (), VOCAB, frozenset())
    noise = Noise(request)
    return Row(request, tuple(tokens), state, noise, purpose=purpose, room=nodes, budget=Budget(nodes))


class Wrong(Drafter):
    """A drafter that is drawn from a distribution of no sense, or raises."""

    name, default_budget = "wrong", 2

    def __init__(self, *, raises: bool = False) -> None:
        self.raises = raises

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        if self.raises:
            raise RuntimeError("no guess")
        uniform = torch.full((2, VOCAB), 1 / VOCAB)
        return [Draft.chain([each.draw(uniform[i].numpy(), i) for i in range(2)], uniform) for each in rows]


INNER: dict[str, Callable[[Callable[..., ModelRunner]], Drafter]] = {
    "n-gram": lambda runner: NgramDrafter(),
    "draft LM": lambda runner: draft_model(runner(*GUESSES)),
    "tree": lambda runner: draft_model(runner(*GUESSES), tree="sampled"),
    "list": lambda runner: Cascade([NgramDrafter(longest=5, shortest=3), draft_model(runner(*GUESSES))]),
    "stack": lambda runner: stack(runner(*GUESSES), NgramDrafter()),
    "wrong": lambda runner: Wrong(),
}


@pytest.mark.parametrize(
    ("inner", "temperature"),
    [
        pytest.param(inner, temperature, marks=() if row == column else pytest.mark.slow)
        for row, inner in enumerate(("n-gram", "draft LM", "wrong"))
        for column, temperature in enumerate((0.7, 1.0, 1.3))
    ],
)
def test_drafts_follow_the_distribution_of_the_model(
    inner: str, temperature: float, root: Path, runner: Callable[..., ModelRunner]
) -> None:
    made = stack(runner(*MODEL), INNER[inner](runner))
    counts: Counter[tuple[int, ...]] = Counter()
    for first in range(0, SAMPLES, SLOTS):
        rows = [row(PROMPT, request=n, temperature=temperature, top_p=0.9) for n in range(first, first + SLOTS)]
        counts.update(draft.tokens for draft in made.propose(rows))
        for each in rows:
            made.release(each.request)
    assert p_value(counts, joint(model(root, *MODEL), temperature, 0.9)) > 1e-3
    assert made.cache.free_slots == SLOTS


@pytest.mark.parametrize("inner", INNER)
def test_q_is_the_models_own_on_a_text_that_is_taken_back(
    inner: str, root: Path, runner: Callable[..., ModelRunner]
) -> None:
    """Round after round the text goes on with a part of the draft, or with none of it; q is compared with the logits of
    a model that reads the whole text at once."""
    made, written = stack(runner(*MODEL), INNER[inner](runner), slots=2), runner(*MODEL)
    tokens = list(PROMPT)
    for round_ in range(6):
        (draft,) = made.propose([row(tokens, nodes=4, temperature=0.9)])
        assert draft.q is not None
        whole = (*tokens, *draft.tokens)
        logits = written.forward([Segment(0, whole, judged=5)], written.new_cache(1)).logits[:-1]
        torch.testing.assert_close(draft.q, (logits / 0.9).softmax(-1), rtol=1e-4, atol=1e-5)
        kept = (4, 0, 2, 1, 3, 0)[round_]
        other = (draft.tokens[kept] + 3) % VOCAB if kept < 4 else 5
        tokens += [*draft.tokens[:kept], other]
    made.release(0)
    assert made.cache.free_slots == 2


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("purpose", [Purpose.DRAFT, Purpose.TOKEN])
def test_drafts_are_those_of_the_model_alone_where_noise_does_not_decide(
    inner: str, purpose: Purpose, runner: Callable[..., ModelRunner]
) -> None:
    """Greedy requests, and sampled ones under rule "coupled", whose draft is a function of seed and model."""
    made, alone = stack(runner(*MODEL), INNER[inner](runner)), draft_model(runner(*MODEL))
    temperature = 1.0 if purpose is Purpose.TOKEN else 0.0
    texts = [PROMPT[: 3 + n % 5] for n in range(20)]
    rows = [row(text, request=n, purpose=purpose, temperature=temperature) for n, text in enumerate(texts)]
    assert [draft.tokens for draft in made.propose(rows)] == [draft.tokens for draft in alone.propose(rows)]


def test_the_drafter_guesses_right_and_saves_steps(runner: Callable[..., ModelRunner]) -> None:
    """Its guesses are the model's own, so every step of the model writes three tokens of six."""
    made = stack(runner(*MODEL), draft_model(runner(*MODEL), 1), slots=1)
    steps: list[Step] = []
    made._loop.listeners.add(steps.append)
    made.propose([row(PROMPT, nodes=6)])
    assert [len(step.tokens) for step in steps] == [3, 3]


def test_pacing_inside_knows_that_the_text_goes_on_behind_a_draft(runner: Callable[..., ModelRunner]) -> None:
    """A row inside has the room of one draft, and so many tokens left as the outer request."""

    class Watched(FixedPacing):
        def plan(self, rows: Sequence[Row]) -> Plan:
            seen.extend((row.room, row.left) for row in rows)
            return super().plan(rows)

    seen: list[tuple[int, int | None]] = []
    guesses, written = draft_model(runner(*MODEL), 1), runner(*MODEL)
    attach(guesses, written, cache := written.new_cache(1))
    made = StackedDrafter(written, cache, guesses, Watched(2), name="stack", vocab_size=VOCAB)
    made.propose([replace(row(PROMPT, nodes=6), left=30)])
    assert seen == [(5, 30), (2, 27)]


def test_a_seed_gives_one_text_in_every_batch(runner: Callable[..., ModelRunner]) -> None:
    target = runner(*MODEL)

    def engine(slots: int) -> hs.Engine:
        made = stack(runner(*GUESSES), NgramDrafter(), slots)
        return assemble(
            target, drafter=made, rule="exact", pacing="fixed", num_speculative_tokens=3, max_batch_size=slots
        )

    samplings = [Sampling(max_tokens=12, temperature=1.0, seed=n) for n in range(8)]
    together = engine(8).generate([list(PROMPT)] * 8, samplings)
    one = engine(1)
    assert [out.tokens for out in together] == [one.generate(list(PROMPT), each).tokens for each in samplings]


def test_a_drafter_that_raises_costs_the_stack_its_guesses_alone(runner: Callable[..., ModelRunner]) -> None:
    made = stack(runner(*MODEL), Wrong(raises=True))
    alone = draft_model(runner(*MODEL))
    for _ in range(2):
        assert made.propose([row(PROMPT)])[0].tokens == alone.propose([row(PROMPT)])[0].tokens


def test_tokens_without_an_embedding_end_the_drafts_of_a_text(runner: Callable[..., ModelRunner]) -> None:
    made = stack(runner(*MODEL), NgramDrafter(), 1, vocab_size=VOCAB + 2)
    padded = row((*PROMPT, VOCAB + 1))
    assert not len(made.propose([padded])[0])
    made.release(0)
    state = SamplingState(Sampling(temperature=1.0), (), VOCAB + 2, frozenset())
    wide = Row(1, tuple(PROMPT), state, Noise(1), room=3, budget=Budget(3))
    (draft,) = made.propose([wide])
    assert draft.q is not None
    assert np.all(draft.q[:, VOCAB:].numpy() == 0)


def test_a_model_that_lacks_tokens_has_a_drafter_that_draws(runner: Callable[..., ModelRunner]) -> None:
    """The q of its drafter is as wide as the model, and the target is wider: a guess that is refused is replaced."""
    made = stack(runner(*MODEL), draft_model(runner(*GUESSES)), 1, vocab_size=VOCAB + 2)
    state = SamplingState(Sampling(temperature=1.0), (), VOCAB + 2, frozenset())
    for number in range(40):
        (draft,) = made.propose([Row(number, tuple(PROMPT), state, Noise(number), room=3, budget=Budget(3))])
        assert len(draft) == 3
        assert draft.q is not None
        assert draft.q.shape[1] == VOCAB + 2
        made.release(number)


def test_it_observes_without_harm_and_says_what_it_weighs(runner: Callable[..., ModelRunner]) -> None:
    written = runner(*MODEL)
    made = stack(written, draft_model(runner(*GUESSES)))
    made.observe(Observation(Step(0, 0, 1, Draft(), (), (), None, 0, 1, hs.Seconds(), None, hs.Speculation(True, ""))))
    assert made.weights_in_words == written.weights_in_words
    assert sum(1 for _ in made.weights()) > sum(1 for _ in written.weights())
