"""Rotations with two sets of factors: the longest text that an engine holds chooses one, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import ORIGIN, TOKENS, config_of, random_model

import headstart as hs
from headstart.model import native
from headstart.model.loading import adopt
from headstart.model.longrope import fix_rotation
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

DECODERS = ["fused", "lean", "modules"]
TEXT = tuple(torch.randint(3, 97, (TOKENS,), generator=torch.Generator().manual_seed(4)).tolist())


def phi() -> Any:
    return random_model(config_of("phi3"))


def theirs(count: int) -> torch.Tensor:
    """Logits of transformers' modules after each of the first tokens, all in one call."""
    return phi()(torch.tensor([TEXT[:count]]), use_cache=False).logits[0]


def runner(decoder: Any, length: int) -> ModelRunner:
    if decoder == "fused" and not native.available():
        pytest.skip("no row kernels on this machine")
    return ModelRunner(adopt(phi()), max_length=length, decoder=decoder)


def one_by_one(made: ModelRunner, count: int) -> torch.Tensor:
    cache, rows = made.new_cache(1), []
    slot = cache.acquire()
    for token in TEXT[:count]:
        rows.append(made.forward([Segment(slot, (token,))], cache).logits[0])
        cache.keep(slot, 1)
    return torch.stack(rows)


def off(mine: torch.Tensor, want: torch.Tensor) -> float:
    return float((mine - want).abs().max() / (want.max() - want.min()))


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_engine_for_short_texts_has_the_short_factors(decoder: str) -> None:
    """`max_length` is the original length, whose last position is still within it."""
    assert off(one_by_one(runner(decoder, ORIGIN), ORIGIN), theirs(ORIGIN)) < 1e-5


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_engine_for_longer_texts_has_the_long_factors_from_the_first_token(decoder: str) -> None:
    """Token by token, while transformers reads a text that is longer than the original length in one call."""
    mine = one_by_one(runner(decoder, ORIGIN + 1), ORIGIN + 1)
    assert off(mine, theirs(ORIGIN + 1)) < 1e-5
    assert off(mine[:ORIGIN], theirs(ORIGIN)) > 1e-3


@pytest.mark.parametrize("decoder", DECODERS)
def test_runners_of_one_model_have_the_factors_of_their_own_lengths(decoder: Any) -> None:
    """The modules of a model that was taken before are fixed again."""
    model = adopt(phi())
    fix_rotation(model, ORIGIN + 1)
    made = ModelRunner(model, max_length=ORIGIN, decoder=decoder)
    assert off(one_by_one(made, ORIGIN), theirs(ORIGIN)) < 1e-5


def test_angles_of_several_kinds_of_layers_are_fixed_each() -> None:
    """Gemma 3's rotary module, with longrope for its full layers alone."""
    config = config_of("gemma3_text")
    config.rope_parameters["full_attention"] = {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
        "original_max_position_embeddings": ORIGIN, "factor": 4.0,
    }  # fmt: skip
    model = random_model(config)
    want = model(torch.tensor([TEXT]), use_cache=False).logits[0]
    early = model(torch.tensor([TEXT[:ORIGIN]]), use_cache=False).logits[0]
    fix_rotation(model, TOKENS)
    torch.testing.assert_close(model(torch.tensor([TEXT]), use_cache=False).logits[0], want)
    mine = model(torch.tensor([TEXT[:ORIGIN]]), use_cache=False).logits[0]
    torch.testing.assert_close(mine, want[:ORIGIN], atol=1e-4, rtol=1e-4)
    assert off(mine, early) > 1e-3


def test_greedy_text_within_the_original_length_is_that_of_generate(
    tmp_path: Path, load: Callable[..., hs.Engine]
) -> None:
    config = config_of("phi3")
    config.original_max_position_embeddings = 64
    config.rope_parameters["original_max_position_embeddings"] = 64
    model = random_model(config)
    model.save_pretrained(tmp_path)
    prompts = [list(TEXT[:3]), list(TEXT[5:25])]
    want = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
        want.append(tuple(out[0, len(prompt) :].tolist()))
    for length, same in ((64, True), (65, False)):
        outs = load(str(tmp_path), "ngram", max_length=length).generate(prompts, hs.Sampling(max_tokens=40))
        assert ([out.tokens for out in outs] == want) is same
