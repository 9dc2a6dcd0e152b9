"""The head of a GGUF file: its metadata, and where its tensors are. Every length is checked before it is believed."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.gguf.types import MAGIC, OTHERS, TYPES, TensorType

VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"

# More than any real file has: a damaged count must not become a long loop or a large allocation
_MOST_PAIRS, _MOST_TENSORS, _MOST_ENTRIES = 1 << 16, 1 << 17, 1 << 22
_LONGEST_NAME, _LONGEST_TEXT = 1 << 12, 1 << 26
_MOST_DIMENSIONS = 4

_TEXT, _ARRAY, _FLAG = 8, 9, 7
_SIZE = struct.Struct("<Q")
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "|b1", 10: "<u8", 11: "<i8"}
_NUMBERS[12] = "<f8"
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file, as it is stored."""

    name: str
    shape: tuple[int, ...]
    """Slowest dimension first, as in NumPy: [outputs, inputs] for a matrix."""
    type: TensorType
    data: NDArray[np.uint8] = field(repr=False, compare=False)
    """Its blocks [rows, bytes of a row]: a view of the file."""

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of one file says."""

    metadata: dict[str, Any]
    """Numbers, flags, texts; arrays as `Texts` or as NumPy arrays."""
    tensors: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts in a file, which are made when they are read: a vocabulary is of no use to the model."""

    data: mmap.mmap | bytes = field(repr=False, compare=False)
    at: int
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self) -> list[str]:
        """All of them."""
        data, at, size_at = self.data, self.at, _SIZE.unpack_from
        found: list[str] = []
        for _ in range(self.count):
            begin = at + 8
            at = begin + size_at(data, at)[0]
            found.append(data[begin:at].decode("utf-8", "replace"))
        return found


class Reader:
    """Reads values one after another; never beyond the end."""

    def __init__(self, data: mmap.mmap | bytes, label: str) -> None:
        self.data, self.label, self.at = data, label, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def damaged(self, what: str) -> DamagedModel:
        return DamagedModel(f"{self.label}: {what}", hint="the file is damaged or cut short: copy or download it again")

    def number(self, form: str, what: str) -> Any:
        size = struct.calcsize(form)
        if size > self.left:
            raise self.damaged(f"it ends within {what}")
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += size
        return value

    def text(self, what: str, longest: int = _LONGEST_TEXT) -> str:
        size = self.number("<Q", what)
        if size > self.left:
            raise self.damaged(f"it ends within {what}")
        if size > longest:
            raise self.damaged(f"{what} is a text of {size} bytes")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", errors="replace")

    def texts(self, count: int, what: str, longest: int) -> Texts:
        """So many texts. A vocabulary has hundreds of thousands: their lengths are checked, and nothing is made yet."""
        data, at, end, size_at = self.data, self.at, len(self.data), _SIZE.unpack_from
        found = Texts(data, at, count)
        for _ in range(count):
            begin = at + 8
            if begin > end:
                raise self.damaged(f"it ends within {what}")
            (size,) = size_at(data, at)
            at = begin + size
            if at > end:
                raise self.damaged(f"it ends within {what}")
            if size > longest:
                raise self.damaged(f"{what} is a text of {size} bytes")
        self.at = at
        return found

    def count(self, form: str, what: str, *, most: int, least_bytes: int) -> int:
        """A number of things of at least so many bytes each, which must fit in the rest of the file."""
        found = int(self.number(form, f"the number of {what}"))
        if found > most or found * least_bytes > self.left:
            raise self.damaged(f"it claims to hold {found} {what}")
        return found


def read_header(data: mmap.mmap | bytes, label: str) -> Header:
    """Parse a file. label: its name, for messages.

    Raises:
        DamagedModel: it is cut short or contradicts itself.
        UnsupportedModel: another format, a version or a type of tensor that is not known.
    """
    reader = Reader(data, label)
    _check_version(reader)
    tensors = reader.count("<Q", "tensors", most=_MOST_TENSORS, least_bytes=24)
    metadata: dict[str, Any] = {}
    for key, _, value in _pairs(reader):
        if key in metadata:
            raise reader.damaged(f"the key {key!r} occurs twice")
        metadata[key] = value
    alignment = metadata.get(ALIGNMENT, 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
        raise reader.damaged(f"{ALIGNMENT} is {alignment!r}, which is no power of two from 8")
    placed = [_tensor_info(reader) for _ in range(tensors)]
    begin = -(-reader.at // alignment) * alignment
    return Header(metadata, _place(reader, placed, begin, alignment))


def stored_pairs(data: mmap.mmap | bytes, label: str, prefix: str) -> dict[str, bytes]:
    """The pairs of metadata whose keys begin so: kind and value of each, as they are stored.

    Raises: as `read_header`.
    """
    reader = Reader(data, label)
    _check_version(reader)
    reader.count("<Q", "tensors", most=_MOST_TENSORS, least_bytes=24)
    return {key: bytes(data[begin : reader.at]) for key, begin, _ in _pairs(reader) if key.startswith(prefix)}


def _pairs(reader: Reader) -> Iterator[tuple[str, int, Any]]:
    """Key, the place where its kind and value begin, and the value; the reader stands behind it."""
    for _ in range(reader.count("<Q", "pairs of metadata", most=_MOST_PAIRS, least_bytes=13)):
        key = reader.text("a key of the metadata", _LONGEST_NAME)
        begin = reader.at
        yield key, begin, _value(reader, reader.number("<I", f"the kind of {key!r}"), key)


def _check_version(reader: Reader) -> None:
    if reader.data[: len(MAGIC)] != MAGIC:
        raise UnsupportedModel(
            f"{reader.label} is no GGUF file: it does not begin with {MAGIC.decode()}",
            hint="give a .gguf file, or a directory with config.json and *.safetensors",
        )
    reader.at = len(MAGIC)
    version = reader.number("<I", "its version")
    if version in VERSIONS:
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise UnsupportedModel(f"{reader.label} is big-endian", hint="get the usual, little-endian file")
    raise UnsupportedModel(
        f"{reader.label} is of GGUF version {version}, and versions {' and '.join(map(str, VERSIONS))} are known",
        hint="convert the model again with a current llama.cpp" if version < 2 else "use a newer headstart",
    )


def _value(reader: Reader, kind: int, key: str) -> Any:
    if kind == _TEXT:
        return reader.text(repr(key))
    if kind == _ARRAY:
        return _array(reader, key)
    if kind not in _FORMATS:
        raise reader.damaged(f"the value of {key!r} is of kind {kind}, which does not exist")
    value = reader.number(_FORMATS[kind], repr(key))
    return bool(value) if kind == _FLAG else value


def _array(reader: Reader, key: str) -> Any:
    kind = reader.number("<I", repr(key))
    if kind == _TEXT:
        count = reader.count("<Q", f"entries of {key!r}", most=_MOST_ENTRIES, least_bytes=8)
        return reader.texts(count, f"an entry of {key!r}", _LONGEST_NAME * 4)
    if kind not in _NUMBERS:
        raise reader.damaged(f"{key!r} is an array of kind {kind}, which is not known")
    dtype = np.dtype(_NUMBERS[kind])
    count = reader.count("<Q", f"entries of {key!r}", most=_MOST_ENTRIES, least_bytes=dtype.itemsize)
    raw = reader.data[reader.at : reader.at + count * dtype.itemsize]
    reader.at += count * dtype.itemsize
    return np.frombuffer(raw, "|u1").astype(bool) if kind == _FLAG else np.frombuffer(raw, dtype)


def _tensor_info(reader: Reader) -> tuple[str, tuple[int, ...], TensorType, int]:
    """Name, shape, type and offset of a tensor."""
    name = reader.text("the name of a tensor", _LONGEST_NAME)
    dimensions = reader.count("<I", f"dimensions of {name!r}", most=_MOST_DIMENSIONS, least_bytes=8)
    shape = tuple(int(reader.number("<Q", f"the shape of {name!r}")) for _ in range(dimensions))[::-1]
    number = reader.number("<I", f"the type of {name!r}")
    if number not in TYPES:
        raise UnsupportedModel(
            f"{reader.label}: tensor {name!r} is of type {OTHERS.get(number, number)}, which cannot be read",
            hint=f"get a file whose tensors are {', '.join(each.name for each in TYPES.values())}: Q4_K_M, for one",
        )
    kind = TYPES[number]
    if not shape or 0 in shape or shape[-1] % kind.inputs:
        raise reader.damaged(f"tensor {name!r} of type {kind.name} has the shape {list(shape)}")
    return name, shape, kind, int(reader.number("<Q", f"the offset of {name!r}"))


def _place(
    reader: Reader, infos: list[tuple[str, tuple[int, ...], TensorType, int]], begin: int, alignment: int
) -> dict[str, Tensor]:
    """The tensors, each in its own bytes of the file."""
    data = np.frombuffer(reader.data, np.uint8)
    found: dict[str, Tensor] = {}
    free = begin
    for name, shape, kind, offset in sorted(infos, key=lambda info: info[3]):
        row = shape[-1] // kind.inputs * kind.size
        first = begin + offset
        end = first + math.prod(shape[:-1]) * row
        if name in found:
            raise reader.damaged(f"tensor {name!r} occurs twice")
        if offset % alignment:
            raise reader.damaged(f"tensor {name!r} begins at {offset}, which is no multiple of {alignment}")
        if first < free:
            raise reader.damaged(f"tensor {name!r} overlaps another one")
        if end > len(data):
            raise reader.damaged(f"tensor {name!r} ends at byte {end}, and the file at byte {len(data)}")
        if first - free >= alignment:
            raise reader.damaged(f"{first - free} bytes before tensor {name!r} belong to none")
        found[name] = Tensor(name, shape, kind, data[first:end].reshape(-1, row))
        free = end
    if infos and bool(data[free:].any()):  # zeros fill up a block of a disk
        raise reader.damaged(f"{len(data) - free} bytes after the last tensor belong to none")
    return {name: found[name] for name, *_ in infos}
