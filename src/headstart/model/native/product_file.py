"""Products in a file, laid out as the kernels read them: written once, and mapped afterwards.

A head of 64 bytes says where the index is, how long it is, and its digest; the index is JSON and says of each product
what its structure holds, with places in the file instead of addresses. What a file says is checked before the kernels
see it: sizes, kinds and places must be such that no number in the file makes them read elsewhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import mmap
import os
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from headstart.model import native
from headstart.model.grouped import GROUPS
from headstart.model.native.grouping import POWERS, STORED, bits_of_kind, kind_of_codes
from headstart.model.native.structs import Product

VERSION = 2
_MARK = b"headstp\n"
_HEAD = struct.Struct("<8sQQQ32s")
"""Mark, version, where the index begins, its bytes, its digest."""
_PAGE, _LINE = 4096, 64
"""Groups begin at a page, and arrays at a cache line."""
_LONGEST = 1 << 28
"""Bytes of an index, of which a damaged head could claim any number."""
_SAMPLES, _SAMPLE = 32, 1 << 14
_NUMBERS = ("inputs", "outputs", "kind", "group", "scales", "minimum", "results")
_MOST_MINIMUM = 128
_MOST = 1 << 28
"""Inputs or outputs, so that bytes of a product are a number of 64 bits."""


class Writer:
    """Writes products, some at a time; the file is whole after `finish`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._groups = file, dict[str, list[Any]]()
        file.write(bytes(_PAGE))

    def add(self, name: str, products: Iterable[Product]) -> None:
        """Write products, to be found under a name.

        Raises:
            OSError: there is no room.
        """
        self._align(_PAGE)
        self._groups[name] = [[self._record(each) for each in _chain(product)] for product in products]

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the index, and wait until all of it is on the disk. facts: what the products depend on."""
        file, begin = self._file, self._align(_PAGE)
        samples = _samples(file, begin)
        index = json.dumps({"facts": facts, "samples": samples, "groups": self._groups}, default=str).encode()
        file.seek(begin)
        file.write(index)
        file.seek(0)
        file.write(_HEAD.pack(_MARK, VERSION, begin, len(index), hashlib.sha256(index).digest()))
        file.flush()
        os.fsync(file.fileno())

    def _record(self, product: Product) -> dict[str, int]:
        made = {name: int(getattr(product, name)) for name in _NUMBERS}
        for name, size in _sizes(product).items():
            if address := getattr(product, name):
                made[name] = self._align(_LINE)
                self._file.write((ctypes.c_char * size).from_address(address))
        return made

    def _align(self, to: int) -> int:
        """Go on at the next multiple, and say where that is."""
        at = self._file.tell()
        self._file.write(bytes(-at % to))
        return at + -at % to


class ProductFile:
    """A file of products, mapped: what was not read yet is read from the disk when a forward needs it, and processes
    that map the same file share its memory.

    Raises:
        ValueError, KeyError, TypeError, OSError: it is none, is damaged, or of other facts.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(mapped) < _PAGE:
                raise ValueError("it is cut short")
            mark, version, begin, length, digest = _HEAD.unpack(mapped[: _HEAD.size])
            if (mark, version) != (_MARK, VERSION):
                raise ValueError("it is no file of products, or of another version")
            if begin < _PAGE or length > _LONGEST or begin + length != len(mapped):
                raise ValueError("it is cut short")
            index = mapped[begin : begin + length]
            if hashlib.sha256(index).digest() != digest:
                raise ValueError("the digest of its index is another")
            found = json.loads(index)
            if found["facts"] != json.loads(json.dumps(facts, default=str)):
                raise ValueError("it is of another model, or of other kernels")
            if found["samples"] != _samples(file, begin):
                raise ValueError("the digest of its samples is another")
        self._end, self._groups = begin, found["groups"]
        self._more: list[Product] = []
        with warnings.catch_warnings():  # that the mapping cannot be written to is the point of it
            warnings.simplefilter("ignore", UserWarning)
            self.memory: Tensor = torch.frombuffer(mapped, dtype=torch.uint8)
        """All of it."""

    @property
    def bytes(self) -> int:
        return len(self.memory)

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def products(self, name: str, count: int, inputs: int, outputs: int) -> list[Product]:
        """The products of a name, of which there must be so many of this shape. They live as long as this object
        and `memory`.

        Raises:
            ValueError, KeyError, TypeError: what the file says does not fit.
        """
        records = self._groups[name]
        if len(records) != count:
            raise ValueError(f"{name} has {len(records)} products, not {count}")
        return [self._product(record, inputs, outputs) for record in records]

    def _product(self, record: list[dict[str, int]], inputs: int, outputs: int) -> Product:
        parts = [self._part(each) for each in record]
        fits = sum(part.outputs for part in parts) == outputs
        if not fits or any((part.inputs, part.results) != (inputs, outputs) for part in parts):
            raise ValueError("a product has another shape")
        for part, more in itertools.pairwise(parts):
            part.more = ctypes.addressof(more)
            self._more.append(more)
        return parts[0]

    def _part(self, record: dict[str, int]) -> Product:
        made = Product(**{name: _whole(record[name]) for name in _NUMBERS})
        _check(made)
        for name, size in _sizes(made).items():
            at = record.get(name)
            if at is None:
                if name not in ("bias", "order", "table"):
                    raise ValueError(f"a product has no {name}")
                continue
            if _whole(at) % _LINE or not _PAGE <= at <= self._end - size:
                raise ValueError(f"the {name} of a product lies outside of the file")
            setattr(made, name, self.memory.data_ptr() + at)
            if name == "order":
                order = self.memory[at : at + size].numpy().view(np.int32)
                if order.min() < 0 or order.max() >= made.inputs:
                    raise ValueError("inputs are out of order")
        return made


def _check(product: Product) -> None:
    """Raise `ValueError` for what no product can be: its sizes are then those that the kernels read."""
    kind, grouped = product.kind, native.GROUPED4 <= product.kind <= native.GROUPED3
    fits = 0 < product.inputs < _MOST and 0 < product.outputs < _MOST and product.inputs % native.LANES == 0
    fits = fits and native.FLOAT32 <= kind <= native.GROUPED3 and bool(native.kernels().supported(kind))
    if fits and grouped:
        fits = product.group in GROUPS and 0 <= product.scales <= POWERS
        fits = fits and (product.minimum == STORED or 0 <= product.minimum <= _MOST_MINIMUM)
        fits = fits and kind_of_codes(bits_of_kind(kind), product.group, product.inputs) == kind
    if not fits:
        raise ValueError("a product is of a kind that there is not")


def _sizes(product: Product) -> dict[str, int]:
    """Bytes of the arrays that a product may point to."""
    kernels, kind, inputs, outputs = native.kernels(), product.kind, product.inputs, product.outputs
    if native.GROUPED4 <= kind <= native.GROUPED3:
        sizes = {"weights": kernels.grouped_bytes(product), "order": 4 * inputs}
        if kind == native.GROUPED4:
            sizes["table"] = 16
    else:
        sizes = {"weights": kernels.packed_bytes(kind, inputs, outputs)}
        if kind == native.INT8:
            sizes |= {"scale": 4 * outputs, "shift": 4 * outputs}
    return {**sizes, "bias": 4 * outputs}


def _chain(product: Product) -> Iterator[Product]:
    """A product, and those of its further outputs."""
    while True:
        yield product
        if not product.more:
            return
        product = Product.from_address(product.more)


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError("a number of a product is none")
    return number


def _samples(file: IO[bytes], end: int) -> str:
    """The digest of parts of a file's products, up to here, evenly spread: that of all would take as long as to read
    them."""
    found = hashlib.sha256()
    for number in range(_SAMPLES):
        file.seek(_PAGE + number * max(0, end - _PAGE - _SAMPLE) // (_SAMPLES - 1))
        found.update(file.read(min(_SAMPLE, end - _PAGE)))
    return found.hexdigest()
