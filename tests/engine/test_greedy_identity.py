"""The claim in float32: greedy output equals transformers' own `generate`, token for token.

Every architecture x drafter x batch shape; of these the fast suite has all drafters on llama, and every ninth of the
others, so that each architecture meets one drafter; `test_matrix` has eighteen other architectures. transformers runs
its own modules, attention and cache on the same checkpoint; nothing of it is shared with the engine's side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.greedy import NEW, prompts, reference
from support.tiny import ARCHITECTURES

import headstart as hs
from headstart.model.recipes import find_recipe

DRAFTERS = ("none", "prediction", "ngram", "suffix", "early-exit", "lookahead", "draft LM", "perturbed target", "list")
EARLY = {name for name, config in ARCHITECTURES.items() if find_recipe(config()) is not None}
"""Those that run on decoders of headstart's own, which can be left early."""


def drafter(kind: str, name: str, tiny: Callable[..., str]) -> str | list[str]:
    if kind == "list":
        return ["ngram", tiny(name, noise=0.02)]
    if kind == "draft LM":
        return tiny("llama", seed=9)  # another architecture, and almost always wrong
    return tiny(name, noise=0.02) if kind == "perturbed target" else kind


PAIRS = [
    pytest.param(name, kind, marks=() if name == "llama" or (row + column) % 9 == 0 else pytest.mark.slow)
    for row, name in enumerate(ARCHITECTURES)
    for column, kind in enumerate(DRAFTERS)
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_batch_1_and_ragged_5(name: str, kind: str, tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    if kind == "early-exit" and name not in EARLY:
        with pytest.raises(hs.errors.UnsupportedModel, match="cannot be left early"):
            load(name, kind)
        return
    expected = reference(tiny(name))
    # chunks of 8 make the longer prompts join in pieces; 3 slots make two requests wait for others to leave
    engine = load(name, drafter(kind, name, tiny), max_batch_size=3, prefill_chunk=8)
    sampling = hs.Sampling(max_tokens=NEW)
    # every fourth predicted token is wrong
    predicted = [hs.Drafting(prediction=[t if i % 4 else 3 for i, t in enumerate(text, 1)]) for text in expected]
    single = engine.generate(list(prompts()[1]), sampling, predicted[1])
    assert single.tokens == expected[1]
    batch = engine.generate([list(prompt) for prompt in prompts()], sampling, predicted)
    assert tuple(out.tokens for out in batch) == expected
    if kind in ("perturbed target", "prediction"):
        # the identity above would say nothing of verification if no draft had ever been accepted
        assert sum(out.stats.accepted for out in batch) > 0


@pytest.mark.parametrize(("k", "rule"), [(0, "exact"), (1, "coupled"), (2, "exact"), (7, "coupled")])
def test_every_draft_length(k: int, rule: Any, tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    engine = load("llama", tiny("llama", noise=0.02), rule=rule, num_speculative_tokens=k)
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny("llama"))
    assert all(len(out.stats.drafted_per_position) <= k for out in outs)


def test_a_perfect_draft_is_accepted_whole(tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    engine = load("llama", tiny("llama"), num_speculative_tokens=3, draft_quantize=None)
    out = engine.generate(list(prompts()[0]), hs.Sampling(max_tokens=NEW, ignore_eos=True))
    assert out.stats.tokens_per_forward == 4
    assert out.stats.drafted == out.stats.accepted == 24
    assert out.stats.accepted_per_position == out.stats.drafted_per_position == (8, 8, 8)
