"""The reader of files: it reads what the package `gguf` writes and reads, and refuses everything that is damaged."""

from __future__ import annotations

import itertools
import re
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gguf_files import Q, byte_level, trained, write
from support.tiny import random_model

from headstart.base.errors import DamagedModel, HeadstartError, ModelNotFound, UnsupportedModel
from headstart.model.gguf import checkpoint
from headstart.model.gguf.files import is_gguf, open_gguf, parts
from headstart.model.gguf.header import Texts, read_header
from headstart.model.gguf.types import OTHERS


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    more = {"text": "naïve 漢字", "flag": True, "real": 0.25, "list": [1, 2, 3], "reals": [0.5, 1.5]}
    model = random_model("llama")
    return write(
        path, model, kind=Q.Q8_0, metadata={"vocab_size": None}, tokenizer={**byte_level(trained("gpt-2")), **more}
    )


@pytest.fixture(scope="module")
def content(good: Path) -> bytes:
    return good.read_bytes()


def test_it_reads_what_the_package_gguf_reads(good: Path) -> None:
    ours, theirs = open_gguf(good), gguf.GGUFReader(good)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for name, value in fields.items():
        found = ours.metadata.get(name)
        found = found.read() if isinstance(found, Texts) else found
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == value, name
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(tensor.shape.tolist())[::-1]
        assert mine.type.name == tensor.tensor_type.name
        np.testing.assert_array_equal(mine.data.reshape(-1), tensor.data.view(np.uint8).reshape(-1))


def test_split_files_are_one_model(tmp_path: Path) -> None:
    model = random_model("llama")
    whole = open_gguf(write(tmp_path / "whole.gguf", model))
    write(tmp_path / "m.gguf", model, split=9)
    files = sorted(tmp_path.glob("m-*.gguf"))
    assert len(files) == 5
    for part in (files[0], files[3]):
        found = open_gguf(part)
        assert found.paths == tuple(files)
        assert found.tensors == whole.tensors
    files[2].unlink()
    with pytest.raises(ModelNotFound, match=r"one of 5 files, and 1 are missing: m-00003-of-00005"):
        open_gguf(files[0])
    files[1].rename(files[2])
    files[3].rename(files[1])
    files[4].rename(files[3])
    (tmp_path / "m-00005-of-00005.gguf").write_bytes(files[0].read_bytes())
    with pytest.raises(DamagedModel, match="it is part 3, counted from 0, not 1"):
        open_gguf(files[0])


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", random_model("llama"), split=9)
    alone = (tmp_path / "m-00001-of-00005.gguf").rename(tmp_path / "alone.gguf")
    with pytest.raises(DamagedModel, match="one of 5 parts, and 1 were found"):
        open_gguf(alone)


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"))
    first = open_gguf(path)
    assert open_gguf(path) is first
    write(path, random_model("qwen3"))
    assert open_gguf(path).metadata.text("general.architecture") == "qwen3"


def test_what_is_gguf(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "model.bin"
    other.write_bytes(good.read_bytes()[:100])
    assert is_gguf(good)
    assert is_gguf(other)
    assert not is_gguf(tmp_path)
    assert not is_gguf(tmp_path / "nothing.gguf")
    assert parts(good) == (good,)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({0: b"GGML"}, UnsupportedModel, "does not begin with GGUF"),
        ({4: struct.pack("<I", 4)}, UnsupportedModel, "version 4, and versions 2 and 3 are known"),
        ({4: struct.pack("<I", 1)}, UnsupportedModel, "version 1"),
        ({4: struct.pack(">I", 3)}, UnsupportedModel, "big-endian"),
        ({8: struct.pack("<Q", 1 << 60)}, DamagedModel, "claims to hold 1152921504606846976 tensors"),
        ({16: struct.pack("<Q", 1 << 40)}, DamagedModel, "1099511627776 pairs of metadata"),
        ({24: struct.pack("<Q", 1 << 62)}, DamagedModel, "ends within a key"),
    ],
)
def test_a_wrong_head(content: bytes, change: dict[int, bytes], error: Any, message: str) -> None:
    data = bytearray(content)
    for at, new in change.items():
        data[at : at + len(new)] = new
    with pytest.raises(error, match=message):
        read_header(bytes(data), "m.gguf")


def file_of(
    *tensors: tuple[str, tuple[int, ...], int, int], pairs: bytes = b"", count: int = 0, size: int = 4096
) -> bytes:
    """A file with these tensors (name, shape as it is stored, type, offset), and so many bytes in all."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + pairs
    for name, shape, kind, offset in tensors:
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return head.ljust(size, b"\0")


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (file_of(("t", (32,), 0, 0), ("t", (32,), 0, 128)), DamagedModel, "'t' occurs twice"),
        (file_of(("a", (32,), 0, 0), ("b", (32,), 0, 96)), DamagedModel, "'b' overlaps"),
        (file_of(("a", (32,), 0, 0), ("b", (32,), 0, 192)), DamagedModel, "64 bytes before tensor 'b' belong to none"),
        (file_of(("a", (32,), 0, 0)) + b"b", DamagedModel, "bytes after the last tensor belong to none"),
        (file_of(("a", (32,), 0, 8)), DamagedModel, "begins at 8, which is no multiple of 32"),
        (file_of(("a", (32,), 0, 1 << 40)), DamagedModel, "ends at byte 1099511627"),
        (file_of(("a", (1 << 40, 1 << 40), 0, 0)), DamagedModel, "ends at byte"),
        (file_of(("a", (33,), 8, 0)), DamagedModel, r"of type Q8_0 has the shape \[33\]"),
        (file_of(("a", (0,), 0, 0)), DamagedModel, r"has the shape \[0\]"),
        (file_of(("a", (), 0, 0)), DamagedModel, r"has the shape \[\]"),
        (file_of(("a", (1,) * 5, 0, 0)), DamagedModel, "claims to hold 5 dimensions"),
        (file_of(("a", (256,), 16, 0)), UnsupportedModel, "'a' is of type IQ2_XXS"),
        (file_of(("a", (256,), 99, 0)), UnsupportedModel, "'a' is of type 99"),
        (file_of(pairs=_text("k") + struct.pack("<I", 13), count=1), DamagedModel, "'k' is of kind 13"),
        (file_of(pairs=(_text("k") + struct.pack("<IB", 0, 1)) * 2, count=2), DamagedModel, "'k' occurs twice"),
        (file_of(pairs=_text("k") + struct.pack("<IIQ", 9, 9, 1), count=1), DamagedModel, "array of kind 9"),
        (file_of(pairs=_text("k") + struct.pack("<IIQ", 9, 8, 1 << 50), count=1), DamagedModel, "entries of 'k'"),
        (file_of(pairs=_text("general.alignment") + struct.pack("<II", 4, 12), count=1), DamagedModel, "is 12"),
    ],
)
def test_what_contradicts_itself_is_refused(data: bytes, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        read_header(data, "m.gguf")


@pytest.mark.parametrize(("number", "name"), OTHERS.items())
def test_types_that_cannot_be_read_are_refused_by_name(number: int, name: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'a' is of type {name}, which cannot be read") as refused:
        read_header(file_of(("a", (256,), number, 0)), "m.gguf")
    assert refused.value.hint is not None
    assert "Q4_K_M, for one" in refused.value.hint


def test_every_truncation_is_refused(content: bytes) -> None:
    """At each byte of the head's beginning, and at many beyond."""
    for length in itertools.chain(range(400), range(400, len(content) - 64, 997)):
        with pytest.raises(HeadstartError):
            read_header(content[:length], "m.gguf")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(at=st.integers(0, 20000), new=st.binary(min_size=1, max_size=9), cut=st.integers(0, 20000) | st.none())
def test_damage_is_refused_or_harmless(tmp_path: Path, good: Path, at: int, new: bytes, cut: int | None) -> None:
    """Some bytes of the head changed, or the file cut short: config, tokenizer and weights load or are refused with a
    typed error, and memory stays small."""
    data = bytearray(good.read_bytes())  # an argument of so many bytes could not be shown with a failure
    data[at : at + len(new)] = new
    read_or_refused(tmp_path, bytes(data[:cut]))


_ODD = st.sampled_from([0, 1, 2, 7, 255, 10**9, 1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1])


@pytest.mark.slow
@settings(
    max_examples=500,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes=st.lists(st.tuples(st.integers(0, 20000), st.sampled_from([1, 4, 8]), _ODD), min_size=1, max_size=4))
def test_odd_numbers_in_many_places(tmp_path: Path, good: Path, changes: list[tuple[int, int, int]]) -> None:
    """Counts, lengths, shapes, kinds and offsets of nothing, of billions, or beyond all bounds."""
    data = bytearray(good.read_bytes())
    for at, size, number in changes:
        data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    read_or_refused(tmp_path, bytes(data))


def read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with suppress(HeadstartError):
            checkpoint.load_config(str(path))
            checkpoint.load_tokenizer(str(path))
            checkpoint.generation_config(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000


def test_an_empty_file_and_a_folder(tmp_path: Path) -> None:
    empty = tmp_path / "m.gguf"
    empty.touch()
    with pytest.raises(DamagedModel, match="empty"):
        open_gguf(empty)
    with pytest.raises(ModelNotFound, match=re.escape("No such file")):
        open_gguf(tmp_path / "none.gguf")
