"""Predicted output: where the pointer goes, what is drafted, and that the text is the target's own whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import Row
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.prediction import NEAR, PredictionDrafter
from headstart.engine.engine import Engine
from headstart.pacing.constants import NEW_SOURCE_SHARE
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Drafting, Sampling

PROMPT = (90, 91)


def after(
    drafter: PredictionDrafter, output: Sequence[int], prediction: Sequence[int], budget: int = 4, request: int = 0
) -> tuple[int, ...]:
    """What is drafted once this output has followed the prompt."""
    distribution = SamplingState(Sampling(), (), 100, frozenset())
    row = Row(
        request, (*PROMPT, *output), distribution, Noise(0), budget=Budget(budget), prompt_tokens=len(PROMPT),
        drafting=Drafting(prediction=tuple(prediction)),
    )  # fmt: skip
    (draft,) = drafter.propose([row])
    assert draft.is_chain
    assert draft.q is None
    return draft.tokens


@pytest.fixture
def drafter() -> PredictionDrafter:
    return PredictionDrafter()


def test_it_begins_at_the_beginning_and_goes_on_where_the_text_follows(drafter: PredictionDrafter) -> None:
    text = list(range(10, 30))
    assert after(drafter, [], text) == (10, 11, 12, 13)
    assert after(drafter, text[:5], text) == (15, 16, 17, 18)
    assert after(drafter, text[:6], text, budget=2) == (16, 17)
    assert after(drafter, text[:19], text) == (29,)
    assert after(drafter, text, text) == (), "the prediction is used up"
    assert after(drafter, [*text, 5], text) == ()


def test_steps_in_which_nobody_asked_are_caught_up_with(drafter: PredictionDrafter) -> None:
    assert after(drafter, [10, 11, 12], list(range(10, 30))) == (13, 14, 15, 16)


def test_a_token_in_place_of_another_is_passed_over_with_the_next_that_agrees(drafter: PredictionDrafter) -> None:
    text = list(range(10, 30))
    assert after(drafter, [10, 11], text) == (12, 13, 14, 15)
    assert after(drafter, [10, 11, 77], text) == (), "nobody knows how the text goes on"
    assert after(drafter, [10, 11, 77, 13], text) == (14, 15, 16, 17)


@pytest.mark.parametrize("change", [[], [70, 71], [70, 71, 72, 73, 74]])
def test_it_comes_back_after_an_insertion_or_a_deletion(change: list[int], drafter: PredictionDrafter) -> None:
    text = list(range(10, 50))
    assert after(drafter, text[:5], text)
    later = [*text[:5], *change, *text[15:18]]
    assert after(drafter, later[:-2], text) == (26, 27, 28, 29), "one token is enough near by"
    assert after(drafter, later, text) == (28, 29, 30, 31)


def test_far_away_three_tokens_must_agree(drafter: PredictionDrafter) -> None:
    text = list(range(10, 80))
    after(drafter, [10], text)
    far = 11 + NEAR + 3
    assert after(drafter, [10, far], text) == ()
    assert after(drafter, [10, far, far + 1], text) == ()
    assert after(drafter, [10, far, far + 1, far + 2], text)[0] == far + 3


def test_of_several_places_a_later_one_comes_before_an_earlier_one(drafter: PredictionDrafter) -> None:
    #       0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15
    text = [1, 2, 3, 20, 21, 22, 23, 24, 25, 26, 27, 1, 2, 3, 30, 31]
    after(drafter, text[:7], text)
    assert after(drafter, [*text[:7], 60, 1, 2, 3], text) == (30, 31), "although the first place has as much in common"
    assert after(drafter, [*text[:7], 60, 1, 2, 3, 30, 31, 50, 20, 21, 22], text)[0] == 23, "else an earlier one"


def test_of_places_on_one_side_the_longest_match_wins(drafter: PredictionDrafter) -> None:
    text = [9, 1, 2, 3, 40, 8, 8, 8, 8, 7, 1, 2, 3, 50, 51]
    assert after(drafter, [66, 7, 1, 2, 3], text) == (50, 51)


def test_in_a_text_that_repeats_itself_no_place_is_refused_twice(drafter: PredictionDrafter) -> None:
    prediction = [5, 5, 5, 5, 6, 5, 5, 5, 5, 6, 5, 5, 5, 5, 6]
    refused, text = [], [5] * 40
    for length in range(len(text)):
        draft = after(drafter, text[:length], prediction, budget=1)
        refused += [drafter._pointers[0]._at] * (draft == (6,))
    assert len(refused) == len(set(refused)) == 3


def test_a_prediction_that_repeats_itself_without_end_costs_no_more(drafter: PredictionDrafter) -> None:
    text = [5] * 5_000
    assert after(drafter, [5, 6, 5, 5, 5], text) == (5, 5, 5, 5)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    prediction=st.lists(st.integers(0, 2), max_size=30),
    output=st.lists(st.integers(0, 2), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
)
def test_whatever_comes_it_drafts_a_part_of_the_prediction(
    prediction: list[int], output: list[int], cuts: list[int]
) -> None:
    drafter = PredictionDrafter()
    for length in sorted({*(cut for cut in cuts if cut < len(output)), len(output)}):
        draft = after(drafter, output[:length], prediction, budget=5)
        assert len(draft) <= 5
        assert any(tuple(prediction[i : i + len(draft)]) == draft for i in range(len(prediction) + 1))
        if output[:length] == prediction[:length]:
            assert draft == tuple(prediction[length : length + 5]), "the text has followed from the beginning"


def test_requests_do_not_see_each_other_and_are_forgotten(drafter: PredictionDrafter) -> None:
    assert after(drafter, [1], [1, 2, 3], request=0) == (2, 3)
    assert after(drafter, [1], [1, 4, 5], request=1) == (4, 5)
    drafter.release(0)
    drafter.release(7)
    assert after(drafter, [1, 4], [1, 4, 5], request=1) == (5,)
    assert drafter._pointers.keys() == {1}


def test_budgets() -> None:
    with pytest.raises(InvalidOption):
        PredictionDrafter(budget=-1)
    assert len(after(PredictionDrafter(), [], range(80), budget=63)) == 63


# -- in an engine -----------------------------------------------------------------------------------------------------


def almost(tokens: Sequence[int]) -> tuple[int, ...]:
    """Every eighth token is another."""
    return tuple(token if i % 8 != 5 else (token + 1) % 90 for i, token in enumerate(tokens))


@pytest.mark.parametrize("drafter", ["prediction", ["prediction", "ngram"]])
@pytest.mark.parametrize("pacing", ["fixed", "adaptive"])
def test_the_text_is_the_same_and_comes_in_fewer_forwards(
    drafter: Any, pacing: str, tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    expected = reference(tiny("llama"))
    engine = load("llama", drafter, pacing=pacing, max_batch_size=3, prefill_chunk=8)
    wishes = [Drafting(prediction=almost(text)) for text in expected]
    outs = engine.generate([list(p) for p in prompts()], hs.Sampling(max_tokens=NEW), wishes)
    assert tuple(out.tokens for out in outs) == expected
    assert all(out.stats.speculation.error is None for out in outs)
    if pacing == "fixed":
        for out in outs:
            assert out.stats.tokens_per_forward > 2
            counted = out.stats.accepted_by_source["prediction"], out.stats.refused_by_source["prediction"]
            assert counted[0] > len(out.tokens) / 2
            assert 0 < counted[1] <= out.stats.target_forwards, "one place at most in a forward"
            assert sum(out.stats.accepted_by_source.values()) == out.stats.accepted


def test_it_costs_nothing_where_there_is_none(load: Callable[..., Any]) -> None:
    engine = load("llama", "prediction")
    out = engine.generate([3, 4], hs.Sampling(max_tokens=NEW))
    assert out.stats.drafted == 0
    assert not engine.drafter._pointers
    assert out.stats.accepted_by_source == {}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_gives_one_text_whatever_is_predicted(
    temperature: float, tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    sampling = hs.Sampling(max_tokens=NEW, temperature=temperature, seed=5)
    plain = load("llama").generate([3, 4], sampling)
    engine = load("llama", ["prediction", "ngram"], rule="exact")
    for prediction in ((), plain.tokens, almost(plain.tokens), (1,) * 200):
        assert engine.generate([3, 4], sampling, Drafting(prediction=prediction)).tokens == plain.tokens


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_gives_one_text_whatever_the_further_texts_are(
    drafter: str, temperature: float, load: Callable[..., Any]
) -> None:
    sampling = hs.Sampling(max_tokens=NEW, temperature=temperature, seed=5)
    plain = load("llama").generate([3, 4], sampling)
    engine = load("llama", drafter, rule="exact")
    forwards = []
    for text in (plain.tokens, (), almost(plain.tokens), (1,) * 200):
        out = engine.generate([3, 4], sampling, Drafting(texts=((7, 8, 9), text)))
        assert out.tokens == plain.tokens
        forwards.append(out.stats.target_forwards)
    if temperature:  # a greedy text of this model repeats itself: its own beginning serves as well
        assert forwards[0] < forwards[1]


def test_pacing_learns_nothing_of_it_from_requests_without(load: Callable[..., Any]) -> None:
    engine = load("llama", ["prediction", "ngram"], pacing="adaptive")
    asked = []
    copy = engine.drafter.members[0]
    propose = copy.propose
    copy.propose = lambda rows: asked.extend(row.request for row in rows) or propose(rows)
    engine.generate([[3, 4]] * 4, hs.Sampling(max_tokens=NEW))
    assert not asked
    prior = engine.pacing._shared.priors[0]
    assert prior.rounds == 0
    assert prior.coverage(False, 1) == prior.coverage(True, 1) == NEW_SOURCE_SHARE


def test_a_list_of_objects(load: Callable[..., Any]) -> None:
    engine: Engine = load("llama", [PredictionDrafter(budget=3), NgramDrafter()])
    assert engine.drafter_name == "prediction + ngram"
