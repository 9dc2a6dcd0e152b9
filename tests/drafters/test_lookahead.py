"""Lookahead: the window is the Jacobi iteration it says it is, and its n-grams come back as guesses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from headstart.base.errors import InvalidOption
from headstart.drafters import Observation, Row
from headstart.drafters.lookahead import LookaheadDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.distributions import Distributions
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step


def context(tokens: Sequence[int], budget: int) -> Row:
    distribution = SamplingState(Sampling(), (), 100, frozenset())
    return Row(0, tuple(tokens), distribution, Noise(0), budget=Budget(budget))


def after(token: int) -> int:
    """A target that counts to 60, again and again."""
    return (token + 1) % 60


def judged(draft: Draft, x0: int) -> tuple[tuple[int, ...], Observation]:
    """What that target says to a draft: the tokens it emits, and the observation of the step."""
    heard = (after(x0), *(after(token) for token in draft.tokens))
    path: list[int] = []
    node = -1
    while True:
        said = heard[node + 1]
        child = next((c for c in draft.children[node + 1] if draft.tokens[c] == said), None)
        if child is None:
            break
        path.append(child)
        node = child
    emitted = (*(draft.tokens[n] for n in path), said)
    step = Step(
        0, 0, 0, draft, tuple(path), emitted, None, 1 + len(draft), 1, Seconds(), None, Speculation(True, "lookahead")
    )
    return emitted, Observation(step, distributions=Distributions((), torch.empty(0), tokens=heard))


def test_columns_are_solved_level_by_level() -> None:
    drafter = LookaheadDrafter(window=2, ngram=3, guesses=1)
    text = [50, 10, 10]
    (draft,) = drafter.propose([context(text, 20)])
    assert len(draft) == 2, "at first there is level 0 alone"
    assert draft.is_chain
    _, observation = judged(draft, text[-1])
    drafter.observe(observation)
    (draft,) = drafter.propose([context([*text, 11], 20)])
    assert len(draft) == 4
    level0, level1 = draft.tokens[:2], draft.tokens[2:]
    assert level1 == tuple(after(token) for token in level0)
    assert draft.parents == (-1, 0, 0, 1), "level 0 is a chain, level 1 hangs below it"
    assert draft.depths == (1, 2, 2, 3)


def test_what_the_window_solved_is_guessed_and_accepted() -> None:
    drafter = LookaheadDrafter(window=3, ngram=4, guesses=2)
    text = [20, 30, 25, 35, 50]  # the window starts ahead of the text, which reaches 20 after 30 tokens
    forwards, start = 0, len(text)
    while len(text) < start + 60:
        (draft,) = drafter.propose([context(text, 40)])
        assert len(draft) <= 40
        emitted, observation = judged(draft, text[-1])
        text += emitted
        forwards += 1
        drafter.observe(observation)
    assert text[start:] == [after(token) for token in text[start - 1 : -1]]
    assert forwards < 50, "nothing it had solved was of use"


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 12, 30])
def test_any_budget_is_kept(budget: int) -> None:
    drafter = LookaheadDrafter()
    text = [1, 2, 3, 1, 2, 3]
    for _ in range(12):
        (draft,) = drafter.propose([context(text, budget)])
        assert len(draft) <= budget
        emitted, observation = judged(draft, text[-1])
        drafter.observe(observation)
        text += emitted
    drafter.release(0)
    drafter.release(0)


def test_a_step_that_another_drafter_filled_teaches_nothing() -> None:
    drafter = LookaheadDrafter(window=2, ngram=3)
    drafter.propose([context([1, 2, 3], 20)])
    _, observation = judged(Draft.chain([7]), 3)
    drafter.observe(observation)
    (draft,) = drafter.propose([context([1, 2, 3, 4], 20)])
    assert draft.is_chain, "still level 0 alone"


def test_it_has_one_size() -> None:
    drafter = LookaheadDrafter(window=5, ngram=4, guesses=5)
    assert drafter.sizes == ((30, 3),)
    assert drafter.limit == drafter.default_budget == 30


@pytest.mark.parametrize("options", [{"window": 0}, {"ngram": 1}, {"guesses": 0}, {"budget": -1}])
def test_options(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption):
        LookaheadDrafter(**options)
