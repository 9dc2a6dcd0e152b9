"""Bytes of weights, as they lie in memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
import torch
from support import families
from support.gguf_mixtures import MIXTURES
from support.tiny import random_model
from transformers import AutoModelForCausalLM

from headstart.model import native
from headstart.model.cache import cache_bytes
from headstart.model.heads.medusa import HeadWeights, MedusaHeads
from headstart.model.loading import adopt, forward_bytes
from headstart.model.memory import bytes_of, free_bytes, mapped_checkpoints, release_copied, release_files
from headstart.model.native.memory import aligned
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.threads import threads, use_threads


def test_shared_memory_counts_once() -> None:
    one = torch.zeros(6, 4)
    assert bytes_of([one, one, one[2:], one.T]) == 96
    assert bytes_of([one, one.clone(), torch.zeros(3, dtype=torch.int8)]) == 195


@pytest.mark.parametrize("decoder", ["fused", "lean", "modules"])
def test_a_runner_counts_every_matrix_once(decoder: Any, tiny: Callable[..., str]) -> None:
    """All decoders hold the same numbers, but for padding and tables."""
    model = random_model("llama")
    numbers = sum(parameter.numel() for parameter in model.parameters())
    runner = ModelRunner(
        adopt(AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)), decoder=decoder
    )
    assert 4 * numbers <= runner.memory() < 6 * numbers


def test_free_memory_is_known_where_there_is_neither_proc_nor_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where every load would fail otherwise."""

    def nothing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(Path, "read_text", nothing)
    assert 2**20 < free_bytes(torch.device("cpu")) < 2**50


@pytest.mark.parametrize("quantize", [None, "auto"])
def test_medusa_heads(quantize: str | None) -> None:
    heads = [HeadWeights(((torch.randn(32, 32), torch.randn(32)),), torch.randn(64, 32)) for _ in range(3)]
    made = MedusaHeads(heads, dtype=torch.float32, device=torch.device("cpu"), quantize=quantize)
    least = 3 * (32 * 32 + 64 * 32) * (1 if made.kind.startswith("int8") else 4)
    assert least <= made.memory() < 3 * least


def test_medusa_heads_use_the_threads_of_their_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a target that verifies, a drafter has its share of the cores and no more."""
    if not native.available():
        pytest.skip("no C++ compiler")
    heads = [HeadWeights(((torch.randn(32, 32), torch.randn(32)),), torch.randn(64, 32))]
    made = MedusaHeads(heads, dtype=torch.float32, device=torch.device("cpu"), quantize=None)
    used: list[int] = []
    monkeypatch.setattr(native.kernels(), "multiply", lambda *arguments: used.append(arguments[-1]))
    use_threads(3)
    try:
        made.logits(torch.randn(1, 32))
    finally:
        use_threads(None)
    assert set(used) == {3}


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="only Linux says which pages are in memory")
def test_pages_of_checkpoints_are_given_back_and_come_back(tmp_path: Path) -> None:
    """Those that nobody wrote to; what was written in place stays what it is."""
    numbers = torch.arange(1 << 16, dtype=torch.float32)
    mapped = {}
    for name in ("read.safetensors", "written.safetensors", "other.bin"):
        (tmp_path / name).write_bytes(numbers.numpy().tobytes())
        mapped[name] = torch.from_file(str(tmp_path / name), shared=False, size=len(numbers))
        assert torch.equal(mapped[name], numbers)
    mapped["written.safetensors"][5] = -1.0

    def in_memory(name: str) -> int:
        text = Path("/proc/self/smaps").read_text()
        return int(text.partition(str(tmp_path / name))[2].partition("Rss:")[2].split()[0])

    for each in mapped.values():
        release_copied(each[: 1 << 15], mapped_checkpoints())
    assert 0 < in_memory("read.safetensors") <= 1 << 7  # KiB: half of it
    assert in_memory("other.bin") == 1 << 8
    assert mapped["written.safetensors"][5] == -1.0
    release_files()
    assert in_memory("read.safetensors") == 0
    assert in_memory("written.safetensors") > 0
    assert in_memory("other.bin") > 0
    assert torch.equal(mapped["read.safetensors"], numbers)
    assert mapped["written.safetensors"][5] == -1.0


@pytest.mark.parametrize("size", [1, 100, (1 << 21) - 1, 1 << 21, (5 << 20) + 17])
def test_memory_of_the_kernels_is_aligned_and_as_large_as_asked(size: int) -> None:
    memory = aligned(size)
    assert len(memory) >= size
    assert memory.data_ptr() % 64 == 0
    memory[:size] = 7
    assert int(memory[:size].sum(dtype=torch.int64)) == 7 * size


@pytest.mark.parametrize("name", ["qwen3_moe", "glm4_moe_lite", "qwen3_5_moe"])
def test_what_a_forward_takes_for_its_rows(name: str) -> None:
    """The estimate from the config against the private memory by which a process grows at its first prompt."""
    if not native.available():
        pytest.skip("no row kernels here")
    config = MIXTURES[name]()
    config.num_experts_per_tok, config.moe_intermediate_size = 8, 512
    if name == "glm4_moe_lite":
        config.q_lora_rank = 512  # of a row, and not of each head
    model = families.random_model(config)
    runner = ModelRunner(adopt(model), max_length=256)
    cache, process, rows = runner.new_cache(8), psutil.Process(), 8 * 250
    segments = [Segment(cache.acquire(), tuple(range(3, 53)) * 5) for _ in range(8)]
    grown = 0

    def forward() -> None:  # in a thread of its own, which has no buffers of an earlier forward
        nonlocal grown
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)  # what other tests have freed would be taken without growing
        before = process.memory_full_info().uss
        runner.forward(segments, cache)
        grown = process.memory_full_info().uss - before

    thread = Thread(target=forward)
    thread.start()
    thread.join()
    taken = forward_bytes(config, torch.float32, torch.device("cpu"), rows=rows, length=256)
    kept = cache_bytes(runner.shapes, runner._decoder.states, slots=8, capacity=256, dtype=torch.float32)
    assert 0.6 * (grown - kept) < taken < 1.6 * grown, (grown, kept, taken)


def test_attention_by_tiles_counts() -> None:
    """It is of bf16 alone. Latent rows of 576 numbers take a thread nearly two megabytes."""
    config = MIXTURES["glm4_moe_lite"]()
    config.kv_lora_rank, config.qk_rope_head_dim = 512, 64
    if not native.available():
        pytest.skip("no row kernels here")
    room = 4 * (4 * (288 * 16 + 16 * 576) + 4 * (64 * 576 + 128 * 576)) * threads()
    float32, bf16 = (
        forward_bytes(config, dtype, torch.device("cpu"), rows=1, length=256)
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert float32 < room <= bf16 < float32 + room
