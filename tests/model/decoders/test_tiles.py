"""Attention by the processor's tiles: as near to float32 as transformers' bf16, and the same bits in any company."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
import transformers as tf
from support.rounded_cache import RoundedCache
from torch import Tensor

from headstart.model import native
from headstart.model.cache import Slots
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
from headstart.types import Draft

VOCAB, LENGTH = 97, 640
_SIZES = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "head_dim": 32,
}  # fmt: skip
_IN_TURN = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, Any] = {
    "llama": lambda: tf.LlamaConfig(**_SIZES),
    "one head of keys": lambda: tf.LlamaConfig(**{**_SIZES, "num_key_value_heads": 1, "head_dim": 96}),
    "as many heads of keys": lambda: tf.LlamaConfig(**{**_SIZES, "num_key_value_heads": 4}),
    "window": lambda: tf.MistralConfig(**_SIZES, sliding_window=150),
    "softcap": lambda: tf.Gemma2Config(
        **_SIZES, sliding_window=40, attn_logit_softcapping=2.0, query_pre_attn_scalar=8, layer_types=_IN_TURN
    ),
    "sinks": lambda: tf.GptOssConfig(
        **_SIZES, num_local_experts=4, sliding_window=7, layer_types=_IN_TURN, rope_scaling=None
    ),
}


@pytest.fixture(autouse=True)
def _tiles() -> Iterator[None]:
    if not (native.available() and native.kernels().rows_of_keys(32)):
        pytest.skip("the kernels of this machine have no tiles")
    yield
    use_threads(None)


@cache
def model_of(name: str) -> Any:
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(CONFIGS[name]())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2 if parameter.dim() > 1 else 1.0)
    return model.bfloat16().eval()


@cache
def runner_of(name: str, kv: torch.dtype = torch.bfloat16) -> ModelRunner:
    return ModelRunner(adopt(copy.deepcopy(model_of(name))), decoder="fused", cache_dtype=kv)


TEXT = tuple(torch.randint(3, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1)).tolist())


def read(runner: ModelRunner, pieces: int = LENGTH, text: tuple[int, ...] = TEXT, slots: Slots | None = None) -> Tensor:
    slots, found = slots or runner.new_cache(1), []
    slot = slots.acquire()
    for begin in range(0, len(text), pieces):
        part = text[begin : begin + pieces]
        found.append(runner.forward([Segment(slot, part, judged=len(part))], slots).logits.float().clone())
        slots.keep(slot, len(part))
    return torch.cat(found)


@cache
def alone(name: str, kv: torch.dtype = torch.bfloat16) -> Tensor:
    return read(runner_of(name, kv))


KEPT = pytest.mark.parametrize("kv", [torch.bfloat16, torch.int8], ids=str)
"""Keys and values as they are computed, and rounded to 8 bits."""


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_the_model(name: str) -> None:
    exact = read(ModelRunner(adopt(copy.deepcopy(model_of(name)).float()), decoder="lean"))
    modules = read(ModelRunner(adopt(copy.deepcopy(model_of(name))), decoder="modules"))
    assert (alone(name) - exact).abs().mean() < 1.1 * (modules - exact).abs().mean()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_on_rounded_keys_are_those_of_the_twin(name: str) -> None:
    """They differ from float32 on keys and values that are rounded alike no more than bf16 from float32 without it."""
    plain = ModelRunner(adopt(copy.deepcopy(model_of(name)).float()), decoder="lean")
    twin = RoundedCache(plain.shapes, slots=1, capacity=LENGTH, dtype=torch.float32, device=plain.device)
    exact, unrounded = read(plain, slots=twin), read(plain)
    modules = read(ModelRunner(adopt(copy.deepcopy(model_of(name))), decoder="modules"))
    assert not torch.equal(exact, unrounded)
    assert (alone(name, torch.int8) - exact).abs().mean() < 1.1 * (modules - unrounded).abs().mean()


@KEPT
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_have_the_same_bits_in_pieces(name: str, kv: torch.dtype) -> None:
    for pieces in (1, 5, 127, 513):
        end = 150 if pieces == 1 else LENGTH
        assert torch.equal(alone(name, kv)[:end], read(runner_of(name, kv), pieces, TEXT[:end])), pieces


@KEPT
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("held", [3, 126, 250, 300])
@pytest.mark.parametrize("name", CONFIGS)
def test_nodes_of_a_tree_have_the_bits_of_their_text(name: str, held: int, threads: int, kv: torch.dtype) -> None:
    """A path of twelve, longer than the shortest window, with siblings between; over the edges of chunks."""
    runner = runner_of(name, kv)
    slots = runner.new_cache(2)
    slot, other = slots.acquire(), slots.acquire()
    use_threads(threads)
    for each, text in ((slot, TEXT[:held]), (other, TEXT[9:40])):
        runner.forward([Segment(each, text)], slots)
        slots.keep(each, len(text))
    tokens, parents, path, last = [], [], [], -1
    for step in range(12):
        tokens += [5, TEXT[held + 1 + step]]
        parents += [last, last]
        last = len(tokens) - 1
        path.append(last)
    draft = Draft(tuple(tokens), tuple(parents))
    beside = Segment(other, (7, 8), judged=2)
    segments = [beside, Segment(slot, (TEXT[held],), draft, judged=1 + len(tokens))]
    logits = runner.forward(segments, slots).logits[2:]
    assert torch.equal(logits[[0, *(1 + node for node in path)]], alone(name, kv)[held : held + 13])
    slots.keep(slot, 1, path)
    rest = runner.forward([Segment(slot, TEXT[held + 13 : held + 40], judged=27)], slots).logits
    assert torch.equal(rest, alone(name, kv)[held + 13 : held + 40])


@KEPT
def test_what_is_kept_can_be_read_and_copied(kv: torch.dtype) -> None:
    runner = runner_of("llama", kv)
    slots = runner.new_cache(2)
    slot = slots.acquire()
    runner.forward([Segment(slot, TEXT[:37])], slots)
    slots.keep(slot, 37)
    keys, values = slots.read(1, slot, 37)
    assert keys.shape == values.shape == (1, 2, 37, 32)
    slots.copy_from(slots, slot, into := slots.acquire(), 30)
    slots.lengths[into] = 30
    rest = runner.forward([Segment(into, TEXT[30:50], judged=20)], slots).logits
    assert torch.equal(rest, alone("llama", kv)[30:50])


@KEPT
def test_a_row_of_no_numbers_spoils_no_other(kv: torch.dtype) -> None:
    """A key that is no number belongs to the text of its own row alone."""
    runner = runner_of("llama", kv)
    slots = runner.new_cache(1)
    slot = slots.acquire()
    runner.forward([Segment(slot, TEXT[:20])], slots)
    slots.keep(slot, 20)
    for layer in slots.keys:  # behind the text: scratch, of which nobody sees anything
        for rows in (slots.keys[layer], slots.values[layer]):
            rows[slot, :, 21:] = -1 if kv == torch.int8 else float("nan")  # of four such bytes the scale is none
    found = runner.forward([Segment(slot, TEXT[20:21], judged=1)], slots).logits
    assert torch.equal(found, alone("llama", kv)[20:21])


@KEPT
def test_a_token_that_left_the_window_spoils_nothing(kv: torch.dtype) -> None:
    """It lies in the chunk in which the window begins."""
    runner = runner_of("window", kv)
    slots = runner.new_cache(1)
    slot, held, window = slots.acquire(), 300, 150
    runner.forward([Segment(slot, TEXT[:held])], slots)
    slots.keep(slot, held)
    for layer in slots.keys:
        for rows in (slots.keys[layer], slots.values[layer]):
            rows[slot, :, held - window] = -1 if kv == torch.int8 else float("nan")
    found = runner.forward([Segment(slot, TEXT[held : held + 1], judged=1)], slots).logits
    assert torch.equal(found, alone("window", kv)[held : held + 1])
