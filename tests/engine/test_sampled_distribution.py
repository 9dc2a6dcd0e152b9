"""The claim at temperature: sampled text follows the target's distribution, tested against transformers' own forward.

A model with 8 tokens, so that the joint distribution of three tokens can be written down; many seeds; chi-square. Each
drafter and each filter is here under both rules, in turns; the exactness matrix has all settings of every drafter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rotation import rotated
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, model, p_value

import headstart as hs

KINDS = ("none", "prediction", "ngram", "suffix", "early-exit", "lookahead", "other model", "near model", "list")
FILTERS = ((0.7, 0.9), (1.0, 1.0), (1.3, 0.95), (1.0, 0.8))


def in_the_matrix(rule: str, kind: str) -> bool:
    return rule == "exact" and kind != "other model"


@pytest.mark.parametrize(
    ("rule", "kind", "temperature", "top_p"), rotated([("exact", "coupled"), KINDS], FILTERS, in_the_matrix, most=1)
)
def test_chi_square(
    rule: Any, kind: str, temperature: float, top_p: float, root: Path, load: Callable[..., hs.Engine]
) -> None:
    path = model(root, 0, 2)
    near = model(root, 0, 2, 0.1)
    drafter = {"other model": model(root, 5, 1), "near model": near, "list": ["ngram", near]}.get(kind, kind)
    k = 12 if kind == "lookahead" else 3  # its window is a part of its nodes
    engine = load(path, drafter, rule=rule, max_batch_size=50, max_length=32, num_speculative_tokens=k)
    samplings = [
        hs.Sampling(max_tokens=TOKENS + 2, temperature=temperature, top_p=top_p, seed=seed) for seed in range(SAMPLES)
    ]
    predicted = hs.Drafting(prediction=(3, 5, 2, 7, 1) if kind == "prediction" else ())
    outs = engine.generate([PROMPT] * SAMPLES, samplings, predicted)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(path, temperature, top_p)) > 1e-3
    if kind not in ("none", "lookahead"):  # which has hardly begun after five tokens
        accepted = sum(out.stats.accepted for out in outs)
        assert 0 < accepted < sum(out.stats.drafted for out in outs)


def test_the_test_can_fail(root: Path, load: Callable[..., hs.Engine]) -> None:
    """Texts at temperature 1 are not mistaken for texts at 1.3: the sample is large enough to tell."""
    path = model(root, 0, 2)
    engine = load(path, max_batch_size=50, max_length=32)
    samplings = [hs.Sampling(max_tokens=TOKENS, temperature=1.0, seed=seed) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    assert p_value(Counter(out.tokens for out in outs), joint(path, 1.3, 1.0)) < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.3, "min_p": 0.05, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
        {"temperature": 0.0},
    ],
    ids=str,
)
def test_coupled_gives_one_text_for_a_seed_whatever_the_drafter(
    options: dict[str, Any], tiny: Callable[..., str], load: Callable[..., hs.Engine]
) -> None:
    prompts = [[5, 6, 5, 6, 5], [9] * 20, [3]]
    samplings = [hs.Sampling(max_tokens=24, seed=seed, **options) for seed in (1, 2, 3)]
    texts = set()
    for drafter in ("none", "ngram", "suffix", "early-exit", "lookahead", tiny("llama", noise=0.02), tiny("gpt2")):
        for k in (1, 4):
            engine = load("llama", drafter, rule="coupled", num_speculative_tokens=k, max_batch_size=2)
            texts.add(tuple(out.tokens for out in engine.generate(prompts, samplings)))
    assert len(texts) == 1


def test_a_seed_repeats_and_no_seed_does_not(load: Callable[..., hs.Engine], tiny: Callable[..., str]) -> None:
    engine = load("llama", tiny("llama", noise=0.02), rule="exact")
    warm = hs.Sampling(max_tokens=16, temperature=1.0, seed=7)
    assert engine.generate([5, 6], warm).tokens == engine.generate([5, 6], warm).tokens
    free = hs.Sampling(max_tokens=16, temperature=1.0)
    first, second = engine.generate([5, 6], free), engine.generate([5, 6], free)
    assert first.seed != second.seed
    repeated = engine.generate([5, 6], hs.Sampling(max_tokens=16, temperature=1.0, seed=first.seed))
    assert repeated.tokens == first.tokens
