"""Latent attention: one row of numbers for each token is all that is stored, and a row's logits have the same bits in
any company, whatever weights and heads there are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model import int4, native, slot_files
from headstart.model.cache import Slots
from headstart.model.decoders.fused import FusedDecoder
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.decoders.linears import can_quantize
from headstart.model.loading import adopt, cache_bytes
from headstart.model.packed import Segment
from headstart.model.prefixes import HeldText
from headstart.model.recipes import recipe_of
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
from headstart.types import Draft

VOCAB = 97
RANK, TURNING, LAYERS = 48, 16, 3
WEIGHTS = ("float32", "bfloat16", "int8", "int8-grouped", "int4")

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")


def tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist())


PROMPT, TEXT = tokens(150, 1), tokens(10, 2)
"""Of more rows than are scored together."""


def config_of(**more: Any) -> Any:
    """Five heads, which are neither a block of queries nor a whole number of what is scored at once."""
    sizes = {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": LAYERS,
        "num_attention_heads": 5, "num_key_value_heads": 5, "kv_lora_rank": RANK, "q_lora_rank": 32,
        "qk_rope_head_dim": TURNING, "qk_nope_head_dim": 32, "v_head_dim": 48, "first_k_dense_replace": LAYERS,
        "max_position_embeddings": 256, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    return tf.DeepseekV3Config(**sizes | more)


def model_of(dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    torch.manual_seed(0)
    model = tf.DeepseekV3ForCausalLM(config_of(**more))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2 if parameter.dim() > 1 else 1.0)
    return model.to(dtype).eval()


@cache
def runner_of(weights: str, **more: Any) -> ModelRunner:
    if "int" not in weights:
        return ModelRunner(adopt(model_of(getattr(torch, weights), **more)), decoder="fused")
    if not can_quantize(torch.device("cpu")) or not int4.can_run(torch.device("cpu")):
        pytest.skip("this processor has no products of whole numbers")
    return ModelRunner(adopt(model_of(torch.bfloat16, **more)), quantize=weights, decoder="fused")


def read(runner: ModelRunner, slots: Slots, prompt: tuple[int, ...], *pieces: int) -> int:
    """A slot with a prompt that was read in pieces, the last of which is what is left."""
    slot, begin = slots.acquire(), 0
    for piece in (*pieces, len(prompt)):
        part = prompt[begin : begin + piece]
        if part:
            runner.forward([Segment(slot, part)], slots)
            slots.keep(slot, len(part))
            begin += len(part)
    return slot


@cache
def one_by_one(weights: str, **more: Any) -> Tensor:
    """The logits of each token of the text, alone in its forward."""
    runner = runner_of(weights, **more)
    slots = runner.new_cache(1)
    slot, rows = read(runner, slots, PROMPT), []
    for token in TEXT:
        rows.append(runner.forward([Segment(slot, (token,))], slots).logits[0])
        slots.keep(slot, 1)
    return torch.stack(rows)


def after(runner: ModelRunner, slots: Slots, slot: int, number: int = 0) -> Tensor:
    """The logits of the text from token `number` on, as one chain."""
    chain = Segment(slot, TEXT[number : number + 1], Draft.chain(TEXT[number + 1 :]), judged=len(TEXT) - number)
    return runner.forward([chain], slots).logits


def scattered() -> tuple[Draft, list[int]]:
    """A tree with five tokens of the text among others, and the nodes that they are."""
    nodes: list[int] = []
    parents: list[int] = []
    path: list[int] = []
    for token in TEXT[1:6]:
        above = path[-1] if path else -1
        nodes += [(token + 1) % VOCAB, (token + 2) % VOCAB, token]
        parents += [above] * 3
        path.append(len(nodes) - 1)
    return Draft((*nodes, 7), (*parents, 0)), path


@pytest.mark.parametrize("weights", WEIGHTS)
class TestSameBits:
    @pytest.mark.parametrize("piece", [1, 3, 16, 17, 64, 150])
    def test_a_prompt_in_pieces(self, weights: str, piece: int) -> None:
        if piece == 1 and weights not in ("float32", "int4"):
            pytest.skip("as the other pieces")
        runner = runner_of(weights)
        slots = runner.new_cache(1)
        slot = read(runner, slots, PROMPT, *[piece] * (len(PROMPT) // piece))
        assert torch.equal(after(runner, slots, slot), one_by_one(weights))

    def test_a_tree_whose_path_is_kept(self, weights: str) -> None:
        runner, alone = runner_of(weights), one_by_one(weights)
        slots = runner.new_cache(1)
        slot = read(runner, slots, PROMPT)
        tree, path = scattered()
        found = runner.forward([Segment(slot, TEXT[:1], tree, judged=len(tree) + 1)], slots).logits
        assert torch.equal(found[[0, *(node + 1 for node in path)]], alone[:6])
        slots.keep(slot, 1, path)
        assert torch.equal(after(runner, slots, slot, 6), alone[6:])
        assert slots.rewind(slot, len(PROMPT) + 3) == len(PROMPT) + 3
        assert torch.equal(after(runner, slots, slot, 3), alone[3:])

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_batch_with_strangers(self, weights: str, threads: int) -> None:
        runner, alone = runner_of(weights), one_by_one(weights)
        slots = runner.new_cache(4)
        whole, pieces = read(runner, slots, PROMPT), read(runner, slots, PROMPT, 7, 90)
        tree, path = scattered()
        use_threads(threads)
        try:
            found = runner.forward(
                [
                    Segment(whole, TEXT[:1], Draft.chain(TEXT[1:]), judged=10),
                    Segment(slots.acquire(), tokens(33, 9), judged=0),
                    Segment(pieces, TEXT[:1], tree, judged=len(tree) + 1),
                    Segment(read(runner, slots, tokens(5, 4)), TEXT[:1]),
                ],
                slots,
            ).logits
        finally:
            use_threads(None)
        assert torch.equal(found[:10], alone)
        assert torch.equal(found[10:-1][[0, *(node + 1 for node in path)]], alone[:6])

    def test_a_copy_and_a_saved_slot(self, weights: str, tmp_path: Path) -> None:
        runner, alone = runner_of(weights), one_by_one(weights)
        slots = runner.new_cache(2)
        slots.keeps_texts = True
        slot = read(runner, slots, PROMPT)
        slots.release(slot, PROMPT)
        mine = slots.acquire((*PROMPT, *TEXT))
        other = slots.acquire((*PROMPT, 5, 6, 7))  # has a copy
        assert slots.lengths == [len(PROMPT)] * 2
        assert torch.equal(after(runner, slots, other), alone)
        slots.release(mine, PROMPT)
        path = tmp_path / "slot.safetensors"
        assert slot_files.save(path, slots, mine, HeldText(PROMPT, ""), "this model", lambda: True) is not None
        fresh = runner.new_cache(1)
        fresh.keeps_texts = True
        for _ in slot_files.restored(slot_files.opened(path, fresh, "this model"), fresh, len(PROMPT), ""):
            pass
        assert torch.equal(after(runner, fresh, fresh.acquire((*PROMPT, *TEXT))), alone)
        row = (RANK + TURNING) * runner.dtype.itemsize
        assert path.stat().st_size < len(PROMPT) * (LAYERS * row + 4) + 4096  # no second copy


@pytest.mark.parametrize(
    "more",
    [
        {"q_lora_rank": None},
        {"num_attention_heads": 1, "num_key_value_heads": 1, "qk_nope_head_dim": 96, "v_head_dim": 16},
        {"num_attention_heads": 12, "num_key_value_heads": 12, "kv_lora_rank": 16, "v_head_dim": 80},
    ],
    ids=str,
)
def test_other_shapes_have_the_same_bits(more: dict[str, Any]) -> None:
    """Queries wider than rows, values wider than both, one head, and more heads than a block of queries."""
    runner = runner_of("bfloat16", **more)
    slots = runner.new_cache(1)
    assert torch.equal(after(runner, slots, read(runner, slots, PROMPT, 11, 40)), one_by_one("bfloat16", **more))


@pytest.mark.parametrize("decoder", ["fused", "lean"])
def test_a_token_takes_one_row_for_all_heads(decoder: Any) -> None:
    """5 heads of keys [48] and values [48] would be 7.5 times as much."""
    runner = ModelRunner(adopt(model_of()), max_length=256, decoder=decoder)
    wanted = LAYERS * (RANK + TURNING) * 4 * 256
    assert runner.new_cache(2).memory() == runner.cache_bytes(2) == 2 * wanted
    assert cache_bytes(config_of(), torch.float32, slots=2, length=256) == 2 * wanted
    modules = ModelRunner(adopt(model_of()), max_length=256, decoder="modules")
    assert modules.cache_bytes(1) == wanted * 5 * (48 + 48) // (RANK + TURNING)


LIES: dict[str, Any] = {
    "kv_lora_rank": 64, "qk_nope_head_dim": 48, "qk_rope_head_dim": 32, "v_head_dim": 64, "num_attention_heads": 4,
}  # fmt: skip


@pytest.mark.parametrize("decoder", [FusedDecoder, LeanDecoder])
@pytest.mark.parametrize("lie", LIES)
def test_weights_of_another_shape_than_the_config_says_are_refused(lie: str, decoder: Any) -> None:
    """Kernels would read what is not there."""
    said = {lie: LIES[lie]} | ({"num_key_value_heads": 4} if lie == "num_attention_heads" else {})
    recipe, model = recipe_of(config_of(**said)), adopt(model_of())
    with pytest.raises(UnsupportedModel, match="by the config"):
        decoder(model, recipe, 256, *([native.FLOAT32] if decoder is FusedDecoder else []))


@pytest.mark.parametrize("field", ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank"])
@pytest.mark.parametrize("value", [0, -16, 7.5, "many", [4], True])
def test_a_size_that_is_none_is_refused(field: str, value: Any) -> None:
    config = config_of()
    object.__setattr__(config, field, value)
    with pytest.raises(UnsupportedModel):
        recipe_of(config)


def test_fewer_key_heads_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="num_key_value_heads=1"):
        recipe_of(config_of(num_key_value_heads=1))
