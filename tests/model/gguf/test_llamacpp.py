"""llama.cpp reads the same files: its logits and tokens, recorded by `benchmarks/gguf_logits.py`, are headstart's."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from support.gguf_files import Q, write
from support.gguf_models import off, run
from support.llamacpp import (
    BLOCKS,
    CUT,
    FILES,
    FLOATS,
    JUDGED,
    OTHERWISE,
    RECORD,
    allowed,
    crossing,
    same_tokens,
    write_case,
)
from support.tiny import random_model
from torch import Tensor

from headstart.model import native
from headstart.model.gguf.checkpoint import load_tokenizer
from headstart.model.gguf.splits import SPLITS


def recorded(name: str) -> np.ndarray:
    with np.load(RECORD) as record:
        found: np.ndarray = record[name]
    return found


def logits(name: str) -> Tensor:
    return torch.from_numpy(recorded(name))


def tokens(pre: str) -> dict[str, list[int]]:
    """By text."""
    ids = recorded(f"cut {pre}")
    ends = np.flatnonzero(ids < 0)
    return dict(zip(CUT, ([int(i) for i in each if i >= 0] for each in np.split(ids, ends)), strict=False))


def test_all_that_is_asked_is_recorded() -> None:
    with np.load(RECORD) as record:
        assert set(record) == {*FILES, *(f"cut {pre}" for pre in SPLITS)}
    assert RECORD.stat().st_size < 310_000


@pytest.mark.parametrize("name", FLOATS)
def test_logits_of_each_architecture(name: str, tmp_path: Path) -> None:
    write_case(tmp_path / "m.gguf", name)
    assert off(run(tmp_path / "m.gguf", packed=False)[0][-JUDGED:], logits(name)) < allowed(name)


MOST = {"Q4_K": 0.006, "Q5_K": 0.006, "IQ4_NL": 0.012, "F16": 0.004, "BF16": 0.03}
"""What the rounding of rows may change, by type; 0.1 otherwise. Random blocks of these types change little else."""


def in_fast_suite(name: str) -> bool:
    """Whether a file is one of Llama's, which hold every type of block, or one of the model whose turn a type is."""
    model, _, kind = name.rpartition(", ")
    turn = [each.name for each in BLOCKS].index(kind) % 4
    return model in ("llama", ("gemma4", "qwen3_moe", "granite", "qwen3_moe")[turn])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if in_fast_suite(name) else pytest.mark.slow) for name in FILES if name not in FLOATS],
)
def test_logits_of_each_type_of_block(name: str, tmp_path: Path) -> None:
    """llama.cpp rounds rows to 8 bits, and so does headstart on a file's own blocks."""
    write_case(tmp_path / "m.gguf", name)
    most = MOST.get(name.rpartition(", ")[2], 0.1)
    assert off(run(tmp_path / "m.gguf", packed=False)[0][-JUDGED:], logits(name)) < most
    if native.available() and not name.endswith("16"):
        found, runner = run(tmp_path / "m.gguf")
        assert runner.decoder == "fused"
        assert off(found[-JUDGED:], logits(name)) < most


@pytest.mark.parametrize("kind", [kind for kind in BLOCKS if kind not in (Q.F16, Q.BF16)])
def test_a_wrong_code_would_be_seen(kind: Q, tmp_path: Path) -> None:
    """The second half of every block in another order: codes, and in Q6_K scales too."""
    name = f"llama, {kind.name}"
    write_case(tmp_path / "m.gguf", name)
    for tensor in gguf.GGUFReader(tmp_path / "m.gguf", "r+").tensors:
        if tensor.tensor_type == kind:
            size = gguf.GGML_QUANT_SIZES[kind][1]
            blocks = tensor.data.reshape(-1, size)
            end = size - (4 if kind == Q.Q2_K else 2)  # where the scales may stand that all of a block share
            blocks[:, size // 2 : end] = blocks[:, size // 2 : end][:, ::-1].copy()
    assert off(run(tmp_path / "m.gguf", packed=False)[0][-JUDGED:], logits(name)) > 2 * MOST.get(kind.name, 0.1)


@pytest.mark.parametrize("pre", SPLITS)
def test_tokens_of_each_cut(pre: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write(tmp_path / "m.gguf", random_model("llama"), tokenizer=crossing(pre))))
    theirs = tokens(pre)
    assert theirs.keys() == set(CUT)
    for text, ids in theirs.items():
        if same_tokens(pre, text):
            assert tokenizer(text)["input_ids"] == ids, text
        elif text in OTHERWISE.get(pre, ()):
            assert tokenizer(text)["input_ids"] != ids, text
        else:
            assert tokenizer(text)["input_ids"] == theirs[unicodedata.normalize("NFC", text)], text


def test_the_vocabulary_shows_every_cut() -> None:
    """No two ways to cut are taken for each other: only those have the same tokens that llama.cpp cuts alike too."""
    alike: dict[bytes, set[str]] = {}
    for pre in SPLITS:
        alike.setdefault(recorded(f"cut {pre}").tobytes(), set()).add(pre)
    assert {frozenset(each) for each in alike.values()} == {
        frozenset(each)
        for each in (
            {"gpt-2", "phi-2", "exaone4"}, {"llama-bpe", "llama3", "llama-v3", "lfm2"}, {"dbrx", "smaug-bpe"}, {"glm4"},
            {"qwen2", "deepseek-r1-qwen"}, {"smollm", "starcoder", "refact", "command-r"}, {"seed-coder"}, {"tekken"},
            {"gpt-4o"}, {"qwen35"}, {"deepseek-coder"}, {"deepseek-v3", "hunyuan-dense"},
        )
    }  # fmt: skip
