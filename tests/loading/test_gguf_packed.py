"""GGUF files on their own blocks, through `load`: what is asked for, what is said, and the text with drafts."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from support.gguf_files import Q, write
from support.tiny import random_model

import headstart as hs
from headstart.base.errors import InvalidOption, NotEnoughMemory
from headstart.loading.load import Target
from headstart.model import int4, native

GREEDY = hs.Sampling(max_tokens=16, temperature=0.0, ignore_eos=True, logprobs=0)
PROMPTS = [[5, 6, 7, 8], [9, 3, 11], list(range(3, 24))]

needs_blocks = pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no grouped products here")


@needs_blocks
@pytest.mark.parametrize("kind", [Q.Q4_0, Q.Q5_1, Q.Q8_0])
def test_greedy_text_is_the_plain_text_bit_for_bit(kind: Q, tmp_path: Path) -> None:
    """Target and draft on their blocks, drafts of several lengths, in a batch; log-probabilities included."""
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=kind)
    draft = write(tmp_path / "draft.gguf", random_model("llama", noise=0.02), kind=Q.Q4_1)
    target = Target(path)
    plain = target.engine("none")
    alone = [plain.generate(prompt, GREEDY) for prompt in PROMPTS]
    for k in (1, 3, 6):
        engine = target.engine(str(draft), num_speculative_tokens=k, pacing="fixed")
        drafted = engine.generate(PROMPTS, GREEDY)
        assert sum(out.stats.accepted for out in drafted) > 0
        for out, right in zip(drafted, alone, strict=True):
            assert out.tokens == right.tokens
            assert out.logprobs == right.logprobs


@needs_blocks
def test_what_runs_is_said_and_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    other = write(tmp_path / "o.gguf", random_model("llama"), kind=Q.Q8_0)
    packed, floats, same = Target(path), Target(path, quantize="none"), Target(other)
    assert packed.engine("none").describe()["weights"] == "GGUF blocks Q4_0; rows rounded to int8 by 32"
    assert floats.engine("none").describe()["weights"] in ("float32", "bfloat16")
    assert floats.runner.quantize is None
    assert packed.runner.memory() < same.runner.memory() < floats.runner.memory()
    assert packed.checkpoint.config.to_dict() == same.checkpoint.config.to_dict()
    known = [target.advised_by[-1] for target in (packed, floats, same)]
    assert known == ["None Q4_0", "none", "None Q8_0"]


@needs_blocks
def test_memory_is_counted_as_it_will_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    need = Target(path).checkpoint.need(0, None).weights
    monkeypatch.setattr("headstart.model.memory.free_bytes", lambda device: need + 1)
    assert Target(path).runner.blocks == ("Q4_0",)
    with pytest.raises(NotEnoughMemory):
        Target(path, quantize="none").runner  # noqa: B018
    monkeypatch.setattr("headstart.model.memory.free_bytes", lambda device: need - 1)
    with pytest.raises(NotEnoughMemory):
        Target(path).runner  # noqa: B018


def test_without_kernels_a_file_runs_in_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = native.Unavailable("there is no C++ compiler on this machine")
    monkeypatch.setattr(native, "_outcome", functools.cache(lambda: none))
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    runner = Target(path).runner
    assert (runner.blocks, runner.quantize) == ((), None)
    assert runner.memory() > 4 * Target(path).checkpoint.weight_bytes // 5


def test_a_file_of_floats_has_no_blocks(tmp_path: Path) -> None:
    runner = Target(write(tmp_path / "m.gguf", random_model("llama"), kind=Q.F16)).runner
    assert (runner.blocks, runner.quantize) == ((), None)


def test_a_way_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    with pytest.raises(InvalidOption, match="'off' does not exist"):
        Target(path, quantize="off")
