"""Weights as the kernels read them, in a file: the same bits as laid out in memory, and never believed unseen."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from support import families
from support.gguf_files import Q, write
from support.tiny import random_model

import headstart as hs
from headstart.base.files import cache_directory
from headstart.loading import checkpoint as checkpoints
from headstart.loading.info import describe
from headstart.loading.load import Target
from headstart.model import mapped, native
from headstart.model.native import product_file
from headstart.model.native.product_file import _HEAD

GREEDY = hs.Sampling(max_tokens=8, temperature=0.0, ignore_eos=True, logprobs=0)

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here")


@pytest.fixture(autouse=True)
def tiny_files(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any size are worth a file."""
    monkeypatch.setattr(checkpoints, "WORTH_MAPPING", 1)
    monkeypatch.setattr(checkpoints, "WORTH_MAPPING_AS_STORED", 1)
    monkeypatch.setattr(mapped, "_SPARE", 0)


def written(source: Path, **options: Any) -> tuple[Target, Any]:
    target = Target(source, max_length=96, **options)
    found = target.engine("none", pacing="fixed").generate([5, 6, 7, 8, 9, 3, 11], GREEDY)
    return target, (found.tokens, found.logprobs)


def files() -> list[Path]:
    return sorted(cache_directory(mapped.KIND).glob("*.weights"))


def addresses(target: Target) -> list[bool]:
    """Of each product that may lie in a file, whether it does."""
    file = next((each for each in target.runner.weights() if each.dtype == torch.uint8 and _is_file(each)), None)
    begin, end = (0, 0) if file is None else (file.data_ptr(), file.data_ptr() + len(file))
    return [begin <= product.weights < end for _, product in target.runner.laid_out()]


def _is_file(memory: torch.Tensor) -> bool:
    return any(len(memory) == each.stat().st_size for each in files())


def folder(path: Path, name: str = "llama", dtype: torch.dtype = torch.bfloat16) -> Path:
    families.random_model(families.config_of(name), dtype).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("name", "quantize"),
    [("llama", None), ("llama", "int8"), ("llama", "int4"), ("gemma2", "int8-grouped"), ("qwen3_5_text", None)],
)
def test_the_same_bits_from_the_file_as_from_memory(
    name: str, quantize: str | None, tmp_path: Path, made: list[str]
) -> None:
    source = folder(tmp_path / "m", name)
    _, right = written(source, quantize=quantize, packed_file=False)
    made.clear()
    assert not files()
    (first, one), (second, two) = (written(source, quantize=quantize) for _ in range(2))
    assert made == []  # how it passed the probe was kept before
    assert one == right
    assert two == right
    assert not any(addresses(first))
    assert all(addresses(second))
    assert second.runner.quantize == first.runner.quantize
    assert second.runner.weights_in_words == first.runner.weights_in_words


def test_blocks_of_a_gguf_file_and_the_first_start(tmp_path: Path, made: list[str]) -> None:
    source = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    assert describe(source).packed_file is not None
    (_, right), (second, found) = written(source), written(source)
    assert len(made) == 1
    assert found == right
    assert all(addresses(second))
    assert describe(source).packed_file == str(files()[0])


@pytest.mark.parametrize("quantize", [None, "int4"])
def test_a_number_that_no_sample_sees_is_seen(
    quantize: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One bit of the last matrix that is in the file, which then is made again."""
    monkeypatch.setattr(product_file, "_samples", lambda *_: "")
    source = folder(tmp_path / "m")
    _, right = written(source, quantize=quantize)
    whole = files()[0].read_bytes()
    data = bytearray(whole)
    data[_HEAD.unpack(data[: _HEAD.size])[2] // 2] ^= 0x40
    files()[0].write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert written(source, quantize=quantize)[1] == right
    assert "cannot be used" in caplog.text
    assert files()[0].read_bytes() == whole
    files()[0].write_bytes(whole[: len(whole) // 2])
    assert written(source, quantize=quantize)[1] == right
    assert files()[0].read_bytes() == whole


def test_where_no_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was not asked for, nothing of the model is kept, it is small, or the disk has no room to spare."""
    source = folder(tmp_path / "m")
    for options in ({"packed_file": False}, {"probe": "always"}):
        written(source, **options)
    monkeypatch.setattr(mapped, "_SPARE", 2**60)
    written(source)
    assert describe(source).packed_file is None
    monkeypatch.setattr(mapped, "_SPARE", 0)
    monkeypatch.setattr(checkpoints, "WORTH_MAPPING_AS_STORED", 2**31)
    written(source)
    assert not files()
    written(source, quantize="int8")
    assert len(files()) == 1
