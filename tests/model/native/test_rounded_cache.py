"""Keys and values in int8: what is computed, the same bits in any company, and texts whose distribution is that of the
model on rounded keys and values, with drafts and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from support import hybrids
from support.rounded_cache import RoundedCache
from support.sampled_distribution import p_value
from support.tiny import VOCAB
from torch import Tensor
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import InvalidBatch, InvalidOption, UnsupportedModel
from headstart.measure.audit.engines import EngineReference
from headstart.model.cache import Slots
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

CAPACITY = 60
FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]
DTYPES = [torch.float32, torch.bfloat16]


def runner_of(path: str, dtype: torch.dtype = torch.float32, **options: Any) -> ModelRunner:
    model = adopt(AutoModelForCausalLM.from_pretrained(path, dtype=dtype))
    return ModelRunner(model, max_length=CAPACITY, **options)


def rounded(path: str, dtype: torch.dtype = torch.float32) -> ModelRunner:
    return runner_of(path, dtype, decoder="fused", cache_dtype=torch.int8)


def tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist())


def read(runner: ModelRunner, cache: Slots, text: tuple[int, ...], *, pieces: int = 1000) -> Tensor:
    """The logits of all of a text, so many tokens of it at a time."""
    slot, found = cache.acquire(), []
    for begin in range(0, len(text), pieces):
        part = text[begin : begin + pieces]
        found.append(runner.forward([Segment(slot, part, judged=len(part))], cache).logits.clone())
        cache.keep(slot, len(part))
    return torch.cat(found)


# -- what is computed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernels_round_as_they_say(family: str, tiny: Callable[..., str]) -> None:
    path, text = tiny(family), tokens(40)
    ours, plain = rounded(path), runner_of(path, decoder="lean")
    twin = RoundedCache(plain.shapes, slots=1, capacity=CAPACITY, dtype=torch.float32, device=plain.device)
    found = read(ours, ours.new_cache(1), text)
    off = (found - read(plain, twin, text)).abs().max()
    change = (found - read(plain, plain.new_cache(1), text)).abs().max()
    assert change > 1e-4, "something was rounded"
    assert off < change / 10  # a number halfway between two codes may go either way


def test_what_is_kept_can_be_read(tiny: Callable[..., str]) -> None:
    path, text = tiny("llama"), tokens(21)
    found = []
    for runner in (rounded(path), runner_of(path, decoder="fused")):
        cache = runner.new_cache(1)
        read(runner, cache, text)
        found.append(cache.read(0, 0, len(text)))
    for mine, exact in zip(*found, strict=True):
        assert mine.shape == exact.shape
        assert ((mine - exact).abs() <= exact.abs().amax(-1, keepdim=True) / 253).all()


def test_it_takes_less_memory(tiny: Callable[..., str]) -> None:
    path = tiny("llama")
    for dtype, share in ((torch.float32, 20 / 64), (torch.bfloat16, 20 / 32)):  # codes of 16 numbers and a scale
        mine, whole = rounded(path, dtype), runner_of(path, dtype, decoder="fused")
        assert mine.new_cache(2).memory() == share * whole.new_cache(2).memory()
        assert mine.cache_bytes(2) == share * whole.cache_bytes(2)


# -- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_have_the_same_bits_in_any_company(family: str, dtype: torch.dtype, tiny: Callable[..., str]) -> None:
    runner, text = rounded(tiny(family), dtype), tokens(40)
    alone = read(runner, runner.new_cache(1), text)
    for pieces in (1, 7, 19):
        assert torch.equal(alone, read(runner, runner.new_cache(1), text, pieces=pieces)), pieces
    cache = runner.new_cache(3)
    read(runner, cache, text[:30])
    read(runner, cache, tokens(11, 1))
    together = [Segment(0, text[30:], judged=10), Segment(1, tokens(5, 2), judged=2)]
    assert torch.equal(alone[30:], runner.forward(together, cache).logits[:10])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_path_of_a_draft_is_gathered(dtype: torch.dtype, tiny: Callable[..., str]) -> None:
    """Keys and values of the accepted nodes, with their scales, to consecutive places, over the edge of a tile."""
    runner, text = rounded(tiny("llama"), dtype), tokens(24)
    alone = read(runner, runner.new_cache(1), text)
    cache = runner.new_cache(1)
    read(runner, cache, text[:14])
    # Nodes 1, 3 and 4 go on as the text does; 0 and 2 are others
    draft = Draft((5, text[15], 6, text[16], text[17]), (-1, -1, 0, 1, 3))
    runner.forward([Segment(0, text[14:15], draft, judged=1)], cache)
    cache.keep(0, 1, (1, 3, 4))
    rest = runner.forward([Segment(0, text[18:], judged=6)], cache).logits
    assert torch.equal(alone[18:], rest)


def test_a_text_goes_to_another_slot(tiny: Callable[..., str]) -> None:
    runner, text = rounded(tiny("qwen3")), tokens(37)
    cache = runner.new_cache(2)
    alone = read(runner, cache, text)
    cache.copy_from(cache, 0, slot := cache.acquire(), 30)
    cache.lengths[slot] = 30
    assert torch.equal(alone[30:], runner.forward([Segment(slot, text[30:], judged=7)], cache).logits)


# -- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["ngram", "early-exit", "near", "tree", "self-int4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_greedy_texts_are_the_plain_ones(dtype: str, drafter: str, tiny: Callable[..., str]) -> None:
    target = hs.Target(tiny("llama"), dtype=dtype, max_length=100, kv_cache_dtype="int8")
    near = {"near": tiny("llama", noise=0.02), "tree": tiny("llama", noise=0.02)}.get(drafter, drafter)
    engine = target.engine(near, pacing="fixed", draft_tree="top-k" if drafter == "tree" else "auto")
    assert engine.describe()["kv_cache_dtype"] == "int8"
    prompts = [list(tokens(9)), [5, 6, 7] * 4, [9]]
    sampling = hs.Sampling(max_tokens=50, ignore_eos=True)
    outs = engine.generate(prompts, sampling)
    assert [out.tokens for out in outs] == [out.tokens for out in engine.plain().generate(prompts, sampling)]
    assert sum(out.stats.accepted for out in outs) > 0
    engine.cache.check()


@pytest.mark.parametrize("kind", ["lfm2", "falcon_h1"])
def test_hybrids_keep_their_texts(kind: str, root: Path) -> None:
    """Layers that attend between recurrent ones, or beside them."""
    target = hs.Target(hybrids.checkpoint(root, kind), dtype="float32", max_length=60, kv_cache_dtype="int8")
    engine = target.engine("ngram", pacing="fixed")
    sampling = hs.Sampling(max_tokens=30, ignore_eos=True)
    mine, plain = (each.generate([4, 5, 4, 5, 4], sampling).tokens for each in (engine, engine.plain()))
    assert mine == plain


def test_drawn_texts_follow_the_distribution_on_rounded_keys(tmp_path: Path) -> None:
    """Chi-square against the distribution that teacher forcing on such a cache gives, which is another one than the
    model's."""
    torch.manual_seed(3)
    config = tf.LlamaConfig(
        vocab_size=8, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=32, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    made = AutoModelForCausalLM.from_config(config)
    for matrix in (each.data for each in made.parameters() if each.dim() > 1):
        matrix.normal_(0, 0.35)
    made.save_pretrained(tmp_path)
    engine = hs.Target(str(tmp_path), dtype="float32", kv_cache_dtype="int8").engine(
        "ngram", pacing="fixed", max_batch_size=50
    )
    prompt, length = [1, 3, 2, 3, 2, 1, 3], 3
    reference, sampling = EngineReference.of(engine), hs.Sampling(temperature=1.0)
    joint = {}
    for begin in product(range(8), repeat=length - 1):
        rows = reference.distributions(prompt, begin, sampling)
        for token in range(8):
            chances = [rows[at][each] for at, each in enumerate((*begin, token))]
            joint[(*begin, token)] = float(chances[0] * chances[1] * chances[2])
    samplings = [hs.Sampling(max_tokens=length + 2, temperature=1.0, seed=seed) for seed in range(1000)]
    outs = engine.generate([prompt] * 1000, samplings)
    assert p_value(Counter(out.tokens[:length] for out in outs), joint) > 1e-3
    assert sum(out.stats.accepted for out in outs) > 0


# -- refused ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_rounded_is_refused(tiny: Callable[..., str]) -> None:
    for family in ("gemma2", "gpt_neox"):
        with pytest.raises(InvalidOption, match=f"kv_cache_dtype='int8' is not for this {family}.*multiples of 16"):
            hs.Target(tiny(family), kv_cache_dtype="int8")
    with pytest.raises(InvalidOption, match="kv_cache_dtype"):
        hs.Target(tiny("llama"), kv_cache_dtype="int7")
    for decoder in ("lean", "modules"):
        with pytest.raises(UnsupportedModel, match="int8"):
            runner_of(tiny("llama"), decoder=decoder, cache_dtype=torch.int8).new_cache(1)


def test_a_cache_of_other_shapes_is_refused(tiny: Callable[..., str], root: Path) -> None:
    hybrid = hybrids.checkpoint(root, "falcon_h1")
    mine, other = rounded(tiny("llama")), rounded(hybrid)
    cache = other.new_cache(1)
    with pytest.raises(InvalidBatch, match="own model"):
        mine.forward([Segment(cache.acquire(), (3,))], cache)
