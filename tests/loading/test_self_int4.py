"""The target's own copy on 4 bits as its draft, and 8-bit codes in groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import capabilities
from headstart.loading.load import Target
from headstart.model import int4
from headstart.model.packed import Segment

GREEDY = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=0)

pytestmark = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")


@pytest.mark.parametrize("quantize", [None, "int8-grouped"])
def test_text_is_the_targets_own_to_the_bit(quantize: str | None, tiny: Callable[..., str]) -> None:
    target = Target(tiny("llama"), quantize=quantize)
    engine = target.engine("self-int4", num_speculative_tokens=3, pacing="fixed")
    assert engine.describe()["drafter"] == "self-int4"
    draft = target.draft("self-int4").runner("int4")
    assert (draft.quantize, target.runner.quantize) == ("int4", quantize and "int8")
    out, plain = engine.generate([5, 6, 7, 8], GREEDY), engine.plain().generate([5, 6, 7, 8], GREEDY)
    assert out.stats.accepted > 0
    assert (out.tokens, out.logprobs) == (plain.tokens, plain.logprobs)


def test_a_target_on_four_bits_has_nothing_to_gain(tiny: Callable[..., str]) -> None:
    with pytest.raises(InvalidOption, match="the target is on 4 bits itself"):
        hs.load(tiny("llama"), "self-int4", quantize="int4")


def test_eight_bits_in_groups_are_nearer_than_four_and_say_what_they_are(tiny: Callable[..., str]) -> None:
    prompt, found = tuple(range(3, 27)), {}
    for quantize in (None, "int8-grouped", "int4"):
        runner = Target(tiny("llama"), quantize=quantize).runner
        cache = runner.new_cache(1)
        found[runner.weights_in_words] = runner.forward([Segment(cache.acquire(), prompt, judged=24)], cache).logits
    names, (floats, eight, four) = list(found), found.values()
    assert names[1:] == [f"rounded to int{bits} by 32; rows rounded to int8 by 32" for bits in (8, 4)]
    assert (eight - floats).norm() < 0.5 * (four - floats).norm()


@pytest.mark.parametrize("drafter", ["self-int4", "self-int4(ngram)"])
def test_a_seeds_text_depends_on_no_other_prompt(drafter: str, tiny: Callable[..., str]) -> None:
    """A copy of the target could take over what it has read; in which step that is depends on who reads beside it."""
    engine = Target(tiny("llama")).engine(
        drafter, rule="exact", prefill_chunk=16, pacing="fixed", num_speculative_tokens=3
    )
    prompt, beside = [3 + n % 20 for n in range(18)], [5 + n % 11 for n in range(15)]
    for seed in range(4):
        sampling = hs.Sampling(max_tokens=12, temperature=1.0, seed=seed, ignore_eos=True)
        alone = engine.generate(prompt, sampling)
        _, together = engine.generate([beside, prompt], [hs.Sampling(max_tokens=12, ignore_eos=True), sampling])
        assert together.tokens == alone.tokens


@pytest.mark.parametrize("drafter", ["self-int4", "self-int4(ngram)", "ahead:self-int4", "ngram"])
def test_pacing_knows_a_copy_of_the_target(drafter: str, tiny: Callable[..., str]) -> None:
    """Also where it is in a stack, or drafts ahead and so reads the text by itself."""
    engine = Target(tiny("llama")).engine(drafter, pacing="fixed")
    assert capabilities.same_model(engine.drafter) == ("self-int4" in drafter)
