"""The row kernels against PyTorch, and the promise of int8: a row's logits have the same bits in any forward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny import VOCAB
from transformers import AutoModelForCausalLM

from headstart.model import native
from headstart.model.cache import KVCache, Slots
from headstart.model.linears import Int8Linear, Int8Module, can_quantize, int8_rows
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]
needs_int8 = pytest.mark.skipif(not can_quantize(torch.device("cpu")), reason="this CPU has no VNNI")


def tokens(n: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist())


def runner_of(path: str, dtype: torch.dtype, **options: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=dtype)), **options)


# -- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [16, 48, 384, 2048])
def test_int8_rows_are_those_of_pytorch(width: int) -> None:
    """norm into int8, with a gain of one and rows already normed, rounds as the tensor twin does."""
    x = torch.randn(5, width, generator=torch.Generator().manual_seed(width))
    x[3] = 0
    x /= x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-20)
    out, scale, gain = torch.empty(5, width, dtype=torch.uint8), torch.empty(5), torch.ones(width)
    kernels = native.kernels()
    kernels.norm(
        x.data_ptr(), None, 0, None, None, gain.data_ptr(), 0.0 if width < 0 else 1e-12, None, 5, width,
        out.data_ptr(), native.INT8, scale.data_ptr(), 1,
    )  # fmt: skip
    whole, want = int8_rows(x)
    torch.testing.assert_close(scale, want, rtol=1e-5, atol=1e-7)
    assert (out.int() - whole.int()).abs().max() <= 1  # a quotient on the edge may round either way
    assert (out.int() != whole.int()).float().mean() < 0.01


def test_a_row_that_is_not_finite_shows_in_its_scale_and_in_no_other() -> None:
    """NaN must reach the logits of its own row, or a broken model would go unnoticed."""
    x = torch.randn(4, 64)
    x[1, 7], x[2, 9] = float("nan"), float("inf")
    out, scale, gain = torch.empty(4, 64, dtype=torch.uint8), torch.empty(4), torch.ones(64)
    native.kernels().norm(
        x.data_ptr(), None, 0, None, None, gain.data_ptr(), 1e-6, None, 4, 64, out.data_ptr(), native.INT8,
        scale.data_ptr(), 1,
    )  # fmt: skip
    assert scale.isfinite().tolist() == [True, False, False, True]


@pytest.mark.parametrize("magnitude", [0.01, 1.0, 30.0, 200.0])
def test_the_gate_is_silu(magnitude: float) -> None:
    """Also where e^x would overflow: the kernel has its own exponential."""
    y = torch.randn(3, 2 * 64, generator=torch.Generator().manual_seed(1)) * magnitude
    out, scale = torch.empty(3, 64), torch.empty(3)
    native.kernels().gated(
        y.data_ptr(), native.FLOAT32, None, None, 3, 64, out.data_ptr(), native.FLOAT32, scale.data_ptr(), 1
    )
    gate, up = y.chunk(2, -1)
    torch.testing.assert_close(out, torch.nn.functional.silu(gate) * up, rtol=2e-6, atol=1e-30)


def test_bf16_is_rounded_to_even_as_pytorch_rounds() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(2)) * 1e3
    x = torch.cat((x, x.bfloat16().float() + x.bfloat16().float() * 2**-8))  # ties
    y = torch.cat((torch.full_like(x, 100.0), x), dim=-1)  # silu(100) is 100 in float32
    out, scale = torch.empty(x.shape, dtype=torch.bfloat16), torch.empty(len(x))
    native.kernels().gated(
        y.data_ptr(), native.FLOAT32, None, None, len(x), 64, out.data_ptr(), native.BFLOAT16, scale.data_ptr(), 1
    )
    assert torch.equal(out, (x * 100.0).bfloat16())


# -- int8 -------------------------------------------------------------------------------------------------------------


@needs_int8
def test_int8_products_are_close_and_exact_sums() -> None:
    linear = torch.nn.Linear(192, 80)
    x = torch.randn(6, 192)
    whole, scale = int8_rows(x)
    product = Int8Linear(linear)
    assert product.late_bias is not None
    ours = product(whole) * scale[:, None] + product.late_bias
    torch.testing.assert_close(ours, linear(x), atol=0.05, rtol=0.05)
    torch.testing.assert_close(Int8Module(linear)(x), ours, atol=0, rtol=0)
    # the sums themselves are whole numbers: one-hot rows read the rounded weights back without error
    hot = torch.full((192, 192), 128, dtype=torch.uint8)
    hot.fill_diagonal_(129)
    scales = linear.weight.detach().abs().amax(1) / 127
    want = torch.round(linear.weight.detach() / scales[:, None]) * scales[:, None]
    torch.testing.assert_close(product(hot).T, want, atol=0, rtol=0)


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


@needs_int8
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
class TestWidthInvariance:
    """Bit for bit: alone, in a chain of 9, in a tree of 16, in a batch of 8 beside a prompt being read."""

    prompt, text = tokens(21, 1), tokens(10, 2)

    def test_chain(self, name: str, dtype: torch.dtype, tiny: Callable[..., str]) -> None:
        runner = runner_of(tiny(name), dtype, quantize="int8")
        assert runner.width_invariant
        alone = logits_one_by_one(runner, self.prompt, self.text)
        cache = runner.new_cache(1)
        slot = read(runner, cache, self.prompt)
        chain = Segment(slot, self.text[:1], Draft.chain(self.text[1:]), judged=10)
        assert torch.equal(runner.forward([chain], cache).logits, alone)

    def test_tree(self, name: str, dtype: torch.dtype, tiny: Callable[..., str]) -> None:
        """A tree of 16 nodes whose true path is scattered among siblings; afterwards its keys are gathered."""
        runner = runner_of(tiny(name), dtype, quantize="int8")
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

    def test_batch(self, name: str, dtype: torch.dtype, tiny: Callable[..., str]) -> None:
        runner = runner_of(tiny(name), dtype, quantize="int8")
        prompts = [tokens(n, n) for n in (3, 5, 17, 21, 30, 8, 9, 40)]
        alone = [logits_one_by_one(runner, prompt, self.text[:4]) for prompt in prompts]
        cache = runner.new_cache(9)
        slots = [read(runner, cache, prompt) for prompt in prompts]
        segments = [Segment(s, self.text[:1], Draft.chain(self.text[1:4]), judged=4) for s in slots]
        segments.insert(3, Segment(cache.acquire(), tokens(33, 9), judged=0))
        out = runner.forward(segments, cache).logits.reshape(8, 4, -1)
        for mine, want in zip(out, alone, strict=True):
            assert torch.equal(mine, want)


@needs_int8
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_reading_a_prompt_in_pieces_changes_no_bit(chunk: int, tiny: Callable[..., str]) -> None:
    runner = runner_of(tiny("qwen3"), torch.bfloat16, quantize="int8")
    prompt = tokens(48, 5)
    cache = runner.new_cache(2)
    whole = runner.forward([Segment(cache.acquire(), prompt)], cache).logits[-1]
    slot = cache.acquire()
    for piece in itertools.batched(prompt, chunk) if hasattr(itertools, "batched") else _batched(prompt, chunk):
        last = runner.forward([Segment(slot, piece)], cache).logits[-1]
        cache.keep(slot, len(piece))
    assert torch.equal(last, whole)


def _batched(items: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


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
    monkeypatch.setattr(native, "_outcome", lambda: native.Unavailable("there is no C++ compiler on this machine"))
    with caplog.at_level("INFO"):
        runner = runner_of(tiny("llama"), torch.float32)
    assert runner.decoder == "lean"
    assert "no C++ compiler" in caplog.text
    assert isinstance(runner.new_cache(1), KVCache)
    if can_quantize(torch.device("cpu")):
        assert runner_of(tiny("llama"), torch.float32, quantize="int8").decoder == "modules"
