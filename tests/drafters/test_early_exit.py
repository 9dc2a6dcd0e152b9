"""Early exit: the first layers really draft, on the target's own cache, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.drafters import Row
from headstart.drafters.early_exit import EarlyExitDrafter, choose_layer
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Sampling

TEXT = (3, 7, 11, 5, 3, 7)


def runner(path: str, decoder: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)), decoder=decoder)


def first_layers(path: str, layers: int) -> Any:
    """transformers' own model, cut off after so many layers."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    return model


@pytest.mark.parametrize(("decoder", "name"), [("fused", "llama"), ("lean", "llama"), ("lean", "mixtral")])
def test_drafts_are_those_of_a_model_that_has_only_the_first_layers(
    decoder: Any, name: str, tiny: Callable[..., str]
) -> None:
    target = runner(tiny(name), decoder)
    cache = target.new_cache(2)
    cache.acquire()
    slot = cache.acquire()
    target.forward([Segment(slot, TEXT[:-1])], cache)
    cache.keep(slot, len(TEXT) - 1)
    drafter = EarlyExitDrafter(layer=1)
    drafter.attach(target, cache)
    distribution = SamplingState(Sampling(), (), target.vocab_size, frozenset())
    (draft,) = drafter.propose([Row(0, tuple(TEXT), distribution, Noise(0), budget=Budget(4), slot=slot)])
    short = first_layers(tiny(name), 1)
    text = list(TEXT)
    for _ in range(4):
        text.append(int(short(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    assert draft.tokens == tuple(text[len(TEXT) :])
    assert cache.lengths[slot] == len(TEXT) - 1, "the target's cache is as it was"


def test_what_was_drafted_leaves_no_trace_in_the_logits(tiny: Callable[..., str]) -> None:
    target = runner(tiny("llama"), "auto")
    cache = target.new_cache(1)
    slot = cache.acquire()
    target.forward([Segment(slot, TEXT[:-1])], cache)
    cache.keep(slot, len(TEXT) - 1)
    before = target.forward([Segment(slot, TEXT[-1:])], cache).logits
    drafter = EarlyExitDrafter(layer=1)
    drafter.attach(target, cache)
    distribution = SamplingState(Sampling(), (), target.vocab_size, frozenset())
    drafter.propose([Row(0, tuple(TEXT), distribution, Noise(0), budget=Budget(6), slot=slot)])
    assert torch.equal(target.forward([Segment(slot, TEXT[-1:])], cache).logits, before)


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_the_choice_of_the_layer_is_the_same_every_time(name: str, tiny: Callable[..., str]) -> None:
    target = runner(tiny(name), "auto")
    cache = target.new_cache(1)
    first, again = choose_layer(target, cache, [1, 2]), choose_layer(target, cache, [1, 2])
    assert first == again
    assert 1 <= first < target.layers
    assert cache.free_slots == 1


def test_what_cannot_be_left_early_is_refused(tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    with pytest.raises(hs.errors.UnsupportedModel, match="cannot be left early") as error:
        load("persimmon", "early-exit")
    assert "suffix" in error.value.hint
    target = runner(tiny("llama"), "auto")
    with pytest.raises(hs.errors.UnsupportedModel, match="layers"):
        EarlyExitDrafter(layer=99).attach(target, target.new_cache(1))
    with pytest.raises(hs.errors.InvalidOption):
        EarlyExitDrafter(layer=0)
