"""The row kernels against PyTorch, and their promise: a row's logits have the same bits in any forward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from support import grouped_twin as twin
from support.tiny import VOCAB
from transformers import AutoModelForCausalLM

from headstart.model import native
from headstart.model.cache import KVCache, Slots
from headstart.model.decoders.linears import Int8Linear, can_quantize, int8_rows
from headstart.model.loading import adopt
from headstart.model.native.weights import NativeWeights
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]
needs_int8 = pytest.mark.skipif(not can_quantize(torch.device("cpu")), reason="this CPU has no VNNI")


def tokens(n: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist())


def runner_of(path: str, dtype: torch.dtype, **options: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=dtype)), **options)


@cache
def with_weights(path: str, weights: str) -> ModelRunner:
    if weights not in ("int8", "int4"):
        return runner_of(path, getattr(torch, weights), decoder="fused")
    if not native.kernels().supported(native.INT8 if weights == "int8" else native.GROUPED4):
        pytest.skip(f"this processor has no {weights} products")
    return runner_of(path, torch.bfloat16, quantize=weights, decoder="fused")


# -- kernels ----------------------------------------------------------------------------------------------------------

KINDS = {
    "float32": native.FLOAT32,
    "bf16, wide": native.BF16_WIDE,
    "bf16, pairs": native.BF16_PAIRS,
    "int8": native.INT8,
}


def multiply(linear: torch.nn.Linear, kind: int, x: torch.Tensor, threads: int = 2) -> torch.Tensor:
    weights = NativeWeights(kind)
    product = weights.product(linear)
    y = torch.full((len(x), linear.out_features), float("nan"))
    native.kernels().multiply(product, x.data_ptr(), len(x), y.data_ptr(), threads)
    return y


def supported(kind: str) -> int:
    if not native.kernels().supported(KINDS[kind]):
        pytest.skip(f"this processor has no products of the kind {kind}")
    return KINDS[kind]


@pytest.mark.parametrize("shape", [(16, 97), (48, 32), (384, 1040), (1024, 7)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_the_tensor_product(kind: str, bias: bool, shape: tuple[int, int]) -> None:
    """Against float64 on the numbers the kernel really multiplies (rounded to bf16 or int8)."""
    number = supported(kind)
    torch.manual_seed(3)
    linear = torch.nn.Linear(*shape, bias=bias).to(torch.float32 if kind in ("float32", "int8") else torch.bfloat16)
    x = torch.randn(37, shape[0])
    weight, rows = linear.weight.detach().double(), x.double()
    if kind == "bf16, pairs":
        rows = x.bfloat16().double()
    if kind == "int8":
        scales = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        weight = (torch.round(linear.weight.detach() / scales) * scales).double()
        whole, scale = int8_rows(x)
        rows = (whole.double() - 128) * scale[:, None]
    want = rows @ weight.T + (linear.bias.detach().double() if bias else 0)
    # int8: a quotient on the edge may round either way
    tolerance = 0.02 if kind == "int8" else 2e-5
    torch.testing.assert_close(multiply(linear, number, x).double(), want, atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_computes_each_row_alike_in_any_company(kind: str) -> None:
    linear = torch.nn.Linear(192, 208)
    x = torch.randn(70, 192)
    number = supported(kind)
    alone = torch.cat([multiply(linear, number, row[None]) for row in x])
    for count in (2, 5, 8, 9, 16, 17, 31, 32, 33, 48, 70):
        assert torch.equal(multiply(linear, number, x[:count]), alone[:count]), count
    assert torch.equal(multiply(linear, number, x, threads=1), alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_not_finite_stays_so_and_harms_no_other(kind: str) -> None:
    """NaN must reach the logits of its own row, or a broken model would go unnoticed."""
    x = torch.randn(4, 64)
    x[1, 7], x[2, 9] = float("nan"), float("inf")
    y = multiply(torch.nn.Linear(64, 32), supported(kind), x)
    assert y.isfinite().all(dim=1).tolist() == [True, False, False, True]


@pytest.mark.parametrize("bias", [False, True])
def test_int8_products_have_the_bits_of_the_twin(bias: bool) -> None:
    """At whatever level runs: so they have the same at all."""
    for inputs, outputs in ((64, 81), (400, 33), (1040, 16)):
        linear, x = torch.nn.Linear(inputs, outputs, bias=bias), torch.randn(13, inputs)
        wanted = twin.int8_product(
            linear.weight.detach().numpy(), x.numpy(), linear.bias.detach().numpy() if bias else None
        )
        assert torch.equal(multiply(linear, supported("int8"), x), torch.from_numpy(wanted))


def test_int8_products_agree_with_pytorch_kernels() -> None:
    """The same whole sums as oneDNN's, for the same rounded rows."""
    if not can_quantize(torch.device("cpu")):
        pytest.skip("this CPU has no VNNI")
    linear, x = torch.nn.Linear(192, 80), torch.randn(6, 192)
    torch.testing.assert_close(multiply(linear, supported("int8"), x), Int8Linear(linear)(x), atol=0.01, rtol=1e-3)
    torch.testing.assert_close(Int8Linear(linear)(x), linear(x), atol=0.05, rtol=0.05)


def test_the_gate_is_silu() -> None:
    """Also where e^x would overflow: the kernel has its own exponential."""
    x = torch.cat((torch.linspace(-120, 120, 4096), torch.tensor([0.0, -0.0, 1e-20, 500.0, -500.0] + [1.0] * 11)))
    y = torch.empty_like(x)
    native.kernels().activate(0, x.data_ptr(), None, y.data_ptr(), len(x))
    torch.testing.assert_close(y, torch.nn.functional.silu(x), rtol=2e-6, atol=1e-30)


# -- width invariance -------------------------------------------------------------------------------------------------


def logits_one_by_one(runner: ModelRunner, prompt: tuple[int, ...], text: tuple[int, ...]) -> torch.Tensor:
    """Plain decoding: every token of `text` alone in its forward."""
    cache = runner.new_cache(1)
    slot = read(runner, cache, prompt)
    rows = []
    for token in text:
        rows.append(runner.forward([Segment(slot, (token,))], cache).logits[0])
        cache.keep(slot, 1)
    return torch.stack(rows)


def read(runner: ModelRunner, cache: Slots, prompt: tuple[int, ...]) -> int:
    slot = cache.acquire()
    runner.forward([Segment(slot, prompt)], cache)
    cache.keep(slot, len(prompt))
    return slot


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("name", FAMILIES)
class TestWidthInvariance:
    """Bit for bit: alone, in a chain of 9, in a tree of 16, in a batch of 8 beside a prompt being read."""

    prompt, text = tokens(21, 1), tokens(10, 2)

    def test_chain(self, name: str, weights: str, tiny: Callable[..., str]) -> None:
        runner = with_weights(tiny(name), weights)
        assert runner.width_invariant
        alone = logits_one_by_one(runner, self.prompt, self.text)
        cache = runner.new_cache(1)
        slot = read(runner, cache, self.prompt)
        chain = Segment(slot, self.text[:1], Draft.chain(self.text[1:]), judged=10)
        assert torch.equal(runner.forward([chain], cache).logits, alone)

    def test_tree(self, name: str, weights: str, tiny: Callable[..., str]) -> None:
        """A tree of 16 nodes whose true path is scattered among siblings; afterwards its keys are gathered."""
        runner = with_weights(tiny(name), weights)
        alone = logits_one_by_one(runner, self.prompt, self.text)
        cache = runner.new_cache(1)
        slot = read(runner, cache, self.prompt)
        nodes: list[int] = []
        parents: list[int] = []
        path: list[int] = []
        for depth, token in enumerate(self.text[1:6]):
            above = path[-1] if path else -1
            nodes += [(token + 1) % VOCAB, (token + 2) % VOCAB, token][: 3 if depth else 2] + [token][depth:1]
            parents += [above] * (3)
            path.append(len(nodes) - 1)
        nodes.append(7)
        parents.append(0)
        tree = Draft(tuple(nodes), tuple(parents))
        assert len(tree) == 16
        out = runner.forward([Segment(slot, self.text[:1], tree, judged=17)], cache).logits
        assert torch.equal(out[[0, *(node + 1 for node in path)]], alone[:6])
        cache.keep(slot, 1, path)
        rest = Segment(slot, self.text[6:7], Draft.chain(self.text[7:]), judged=4)
        assert torch.equal(runner.forward([rest], cache).logits, alone[6:])

    def test_batch(self, name: str, weights: str, tiny: Callable[..., str]) -> None:
        runner = with_weights(tiny(name), weights)
        prompts = [tokens(n, n) for n in (3, 5, 17, 21, 30, 8, 9, 40)]
        alone = [logits_one_by_one(runner, prompt, self.text[:4]) for prompt in prompts]
        cache = runner.new_cache(9)
        slots = [read(runner, cache, prompt) for prompt in prompts]
        segments = [Segment(s, self.text[:1], Draft.chain(self.text[1:4]), judged=4) for s in slots]
        segments.insert(3, Segment(cache.acquire(), tokens(33, 9), judged=0))
        out = runner.forward(segments, cache).logits.reshape(8, 4, -1)
        for mine, want in zip(out, alone, strict=True):
            assert torch.equal(mine, want)


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_reading_a_prompt_in_pieces_changes_no_bit(chunk: int, tiny: Callable[..., str]) -> None:
    runner = runner_of(tiny("qwen3"), torch.bfloat16, decoder="fused")
    prompt = tokens(48, 5)
    cache = runner.new_cache(2)
    whole = runner.forward([Segment(cache.acquire(), prompt)], cache).logits[-1]
    slot = cache.acquire()
    for begin in range(0, len(prompt), chunk):
        piece = prompt[begin : begin + chunk]
        last = runner.forward([Segment(slot, piece)], cache).logits[-1]
        cache.keep(slot, len(piece))
    assert torch.equal(last, whole)


@needs_int8
@pytest.mark.parametrize("name", ["llama", "gemma2", "opt"])
def test_int8_stays_near_the_unquantised_model(name: str, tiny: Callable[..., str]) -> None:
    """Other architectures run int8 products among transformers' modules."""
    plain, int8 = (runner_of(tiny(name), torch.float32, quantize=q) for q in (None, "int8"))
    prompt = tokens(24, 6)
    rows = []
    for runner in (plain, int8):
        cache = runner.new_cache(1)
        rows.append(runner.forward([Segment(cache.acquire(), prompt, judged=24)], cache).logits)
    error = (rows[0] - rows[1]).norm() / rows[0].norm()
    assert 0 < error < 0.1


def test_auto_quantises_only_where_the_row_kernels_run(tiny: Callable[..., str]) -> None:
    if can_quantize(torch.device("cpu")):
        assert runner_of(tiny("llama"), torch.float32, quantize="auto").quantize == "int8"
    assert runner_of(tiny("gemma2"), torch.float32, quantize="auto").quantize is None
    assert runner_of(tiny("llama"), torch.float32, quantize="auto", decoder="lean").quantize is None


def test_without_a_compiler_the_lean_forward_runs(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    none = native.Unavailable("there is no C++ compiler on this machine")
    monkeypatch.setattr(native, "_outcome", functools.cache(lambda: none))
    with caplog.at_level("INFO"):
        runner = runner_of(tiny("llama"), torch.float32)
    assert runner.decoder == "lean"
    assert "no C++ compiler" in caplog.text
    assert isinstance(runner.new_cache(1), KVCache)
    if can_quantize(torch.device("cpu")):
        assert runner_of(tiny("llama"), torch.float32, quantize="int8").decoder == "modules"
