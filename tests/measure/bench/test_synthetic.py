"""Accepted lengths that are drawn: as many as the probability says, and the text is known not to be the model's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.base.prompt_sets import PromptItem
from headstart.measure.bench.options import BenchSettings
from headstart.measure.bench.session import Session
from headstart.measure.bench.summary import summarise
from headstart.measure.bench.synthetic import SyntheticJudge
from headstart.measure.bench.verdict import conclude

ASKED = hs.Sampling(max_tokens=60, ignore_eos=True)


@pytest.mark.parametrize(
    ("acceptance", "tree", "least", "most"),
    # 1 + a + a^2 + a^3 for chains of three, within four standard errors of some 200 rounds; a tree may be less deep
    [(0.0, "none", 1.0, 1.0), (0.5, "none", 1.6, 2.15), (1.0, "none", 3.7, 4.0), (0.5, "top-k", 1.3, 2.15)],
)
def test_as_many_guesses_are_kept_as_the_probability_says(
    acceptance: float, tree: str, least: float, most: float, tiny: Callable[..., str], load: Callable[..., hs.Engine]
) -> None:
    engine = load("llama", tiny("llama", noise=0.02), num_speculative_tokens=3, draft_tree=tree, max_length=128)
    with engine.judged(lambda judge: SyntheticJudge(judge, acceptance)):
        outs = engine.generate([[i, 5, 7] for i in range(1, 9)], ASKED)
    tokens, forwards = sum(len(out.tokens) for out in outs), sum(out.stats.target_forwards for out in outs)
    assert least <= tokens / forwards <= most


def test_afterwards_the_rule_decides_again(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", "ngram", max_length=128)
    wanted = engine.generate([3, 5, 7], ASKED).tokens
    with engine.judged(lambda judge: SyntheticJudge(judge, 1.0)):
        assert engine.generate([3, 5, 7, 3, 5, 7], ASKED).tokens
    assert engine.generate([3, 5, 7], ASKED).tokens == wanted


def test_a_bench_says_that_the_text_is_not_the_models(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", "ngram", max_length=128)
    settings = BenchSettings(sampling=ASKED, repetitions=1, warm_up=0, synthetic_acceptance=0.8)
    found = Session(engine, [PromptItem([3, 5, 7, 3, 5, 7])], settings).run()
    assert not found.compared
    assert found.settings["synthetic_acceptance"] == 0.8
    said = " ".join(conclude(found, summarise(found)).reasons)
    assert "kept with a probability of 80%" in said


@pytest.mark.parametrize("wrong", [-0.1, 1.1])
def test_no_probability_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidOption, match="synthetic_acceptance"):
        BenchSettings(synthetic_acceptance=wrong)
