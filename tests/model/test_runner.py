"""A forward over ragged trees equals transformers' plain forward on every path, for every architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
import transformers as tf
from support.tiny import ARCHITECTURES, VOCAB, random_model
from transformers import AutoModelForCausalLM

from headstart.base.errors import UnsupportedModel
from headstart.model.decoders.linears import PackedLinear, can_pack, prepare
from headstart.model.loading import adopt
from headstart.model.packed import Forward, Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

TREES = [
    Draft((11, 12, 13, 14, 15), (-1, -1, 0, 0, 2)),
    Draft.chain((20, 21, 22)),
    Draft(),
    Draft((30, 31, 32), (-1, 0, 0)),
]
PREFIXES = (9, 16, 1, 12)


def tokens(n: int, seed: int) -> list[int]:
    return torch.randint(3, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_ragged_trees_equal_the_plain_forward(name: str, tiny: Callable[..., str]) -> None:
    plain = AutoModelForCausalLM.from_pretrained(tiny(name), dtype=torch.float32)
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(tiny(name), dtype=torch.float32)))
    cache = runner.new_cache(slots=len(TREES))
    slots = [cache.acquire() for _ in TREES]
    texts = [tokens(n + 1, seed) for seed, n in enumerate(PREFIXES)]

    # the prefixes, in one packed forward; then x0 and the trees, in another
    runner.forward([Segment(slot, tuple(text[:-1]), judged=0) for slot, text in zip(slots, texts, strict=True)], cache)
    for slot, text in zip(slots, texts, strict=True):
        cache.keep(slot, len(text) - 1)
    segments = [
        Segment(slot, (text[-1],), tree, judged=len(tree) + 1)
        for slot, text, tree in zip(slots, texts, TREES, strict=True)
    ]
    got = runner.forward(segments, cache, taps=(1, runner.layers))

    row = 0
    for text, tree, hidden in zip(texts, TREES, got.hidden_of(segments), strict=True):
        for node in range(-1, len(tree)):
            path = [*text, *(tree.tokens[n] for n in tree.path(node))]
            with torch.no_grad():
                want = plain(torch.tensor([path]), output_hidden_states=True)
            torch.testing.assert_close(got.logits[row], want.logits[0, -1], atol=2e-5, rtol=1e-4)
            for layer in (1, runner.layers):
                torch.testing.assert_close(
                    hidden[layer][node + 1], want.hidden_states[layer][0, -1], atol=2e-5, rtol=1e-4
                )
            row += 1
    assert row == len(got.logits)


def ragged(runner: ModelRunner) -> Forward:
    """Two trees, one of them after a long prompt, with taps at the ends and in the middle."""
    cache = runner.new_cache(slots=2)
    segments = [
        Segment(cache.acquire(), tuple(tokens(20, 1)), TREES[0], judged=6),
        Segment(cache.acquire(), tuple(tokens(3, 2)), TREES[1], judged=4),
    ]
    return runner.forward(segments, cache, taps=(0, 2, 4))


@pytest.mark.parametrize("decoder", ["fused", "lean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["mistral", "qwen3"])
def test_a_fast_forward_equals_its_twin(
    name: str, dtype: torch.dtype, decoder: Literal["fused", "lean"], tiny: Callable[..., str]
) -> None:
    """The same ragged trees through a fast forward and through transformers' modules."""
    results = []
    for each in (decoder, "modules"):
        model = AutoModelForCausalLM.from_pretrained(tiny(name), dtype=dtype)
        runner = ModelRunner(adopt(model), decoder=each)
        assert runner.decoder == each
        results.append(ragged(runner))
    ours, plain = results
    tolerance = {"atol": 2e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.15, "rtol": 0.1}
    torch.testing.assert_close(ours.logits.float(), plain.logits.float(), **tolerance)
    assert ours.hidden.keys() == plain.hidden.keys() == {0, 2, 4}
    for layer in (0, 2, 4):
        torch.testing.assert_close(ours.hidden[layer], plain.hidden[layer], **tolerance)


def test_a_fast_forward_is_not_taken_for_what_it_does_not_compute() -> None:
    """A family without a recipe, or a field that a recipe does not know: transformers' modules run."""
    assert ModelRunner(adopt(random_model("persimmon"))).decoder == "modules"
    other = random_model("llama")
    other.config.rope_parameters = {**other.config.rope_parameters, "rope_type": "dynamic", "factor": 2.0}
    assert ModelRunner(adopt(other)).decoder == "modules"


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt2", "mixtral"])
def test_a_kept_tree_path_continues_as_if_it_had_been_read(name: str, tiny: Callable[..., str]) -> None:
    """Compaction: after the accepted path is gathered, the next logits are those of the plain text."""
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(tiny(name), dtype=torch.float32)))
    cache = runner.new_cache(slots=2)
    tree = Draft((11, 12, 13, 14, 15), (-1, -1, 0, 1, 3))
    text = tokens(10, 3)
    slot = cache.acquire()
    runner.forward([Segment(slot, tuple(text), tree, judged=1)], cache)
    cache.keep(slot, len(text), (1, 3, 4))
    assert cache.lengths[slot] == 13
    after = runner.forward([Segment(slot, (16,))], cache).logits[0]

    other = cache.acquire()
    want = runner.forward([Segment(other, (*text, 12, 14, 15, 16))], cache).logits[0]
    torch.testing.assert_close(after, want, atol=2e-5, rtol=1e-4)
    cache.release(slot)
    cache.release(other)
    cache.check()


def test_prefill_in_chunks_equals_prefill_at_once(tiny: Callable[..., str]) -> None:
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(tiny("mistral"), dtype=torch.float32)))
    cache = runner.new_cache(slots=2)
    text = tokens(40, 8)
    whole, chunked = cache.acquire(), cache.acquire()
    want = runner.forward([Segment(whole, tuple(text))], cache).logits[0]
    for begin in range(0, 40, 7):
        got = runner.forward([Segment(chunked, tuple(text[begin : begin + 7]))], cache).logits[0]
        cache.keep(chunked, len(text[begin : begin + 7]))
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


def test_rewinding_forward_is_an_error(tiny: Callable[..., str]) -> None:
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)))
    cache = runner.new_cache(slots=1)
    with pytest.raises(ValueError, match="cannot rewind"):
        cache.rewind(cache.acquire(), 3)


_SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def test_layers_that_pass_no_keyword_arguments_on_are_driven() -> None:
    """Those of Nemotron, which with this activation has no recipe."""
    model = AutoModelForCausalLM.from_config(tf.NemotronConfig(**_SIZES, hidden_act="tanh")).eval()
    text = list(range(3, 20))
    want = model(torch.tensor([text]), use_cache=False).logits[0, -1].detach()
    runner = ModelRunner(adopt(model))
    assert runner.decoder == "modules"
    cache = runner.new_cache(slots=1)
    got = runner.forward([Segment(cache.acquire(), tuple(text))], cache).logits[0]
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


def test_a_model_whose_attention_is_not_ours_is_refused() -> None:
    """The probe: DiffLlama takes one half of its heads from the other after attention."""
    model = AutoModelForCausalLM.from_config(tf.DiffLlamaConfig(**_SIZES)).eval()
    with pytest.raises(UnsupportedModel, match="does not give its own logits"):
        ModelRunner(adopt(model))


def test_the_probe_finds_positions_that_are_not_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that ignores position_ids gives other logits on a tree, and is refused with the error's size."""
    model = adopt(random_model("persimmon"))
    rotary = model.model.rotary_emb
    original = rotary.forward

    def ignores(hidden: Any, position_ids: Any) -> Any:
        return original(hidden, torch.arange(position_ids.shape[1])[None])

    monkeypatch.setattr(rotary, "forward", ignores)
    with pytest.raises(UnsupportedModel, match="relative error"):
        ModelRunner(model)


@pytest.mark.skipif(
    not can_pack(torch.bfloat16, torch.device("cpu")), reason="this processor or build has no packed bf16 kernel"
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 33])
def test_packed_linear_equals_its_plain_twin(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(96, 160, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn(1, rows, 96, dtype=torch.bfloat16)
    torch.testing.assert_close(PackedLinear(plain)(x), plain(x), atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(
    not can_pack(torch.bfloat16, torch.device("cpu")), reason="this processor or build has no packed bf16 kernel"
)
def test_packing_leaves_a_tied_embedding_alone() -> None:
    model = adopt(random_model("gemma2").to(torch.bfloat16))
    before = model.model.embed_tokens.weight.clone()
    prepare(model, None)
    assert isinstance(model.lm_head, PackedLinear)
    assert torch.equal(model.model.embed_tokens.weight, before)
