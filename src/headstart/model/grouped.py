"""Weights as whole numbers in groups, each group with a scale and a minimum: what 4-bit files hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import UnsupportedModel

GROUPS = (16, 32, 64, 128)
"""Inputs that may share a scale."""

UNIT = 256
"""Inputs whose scales may share a unit."""

_ROWS = 256  # outputs that are turned into numbers at a time, so that little memory is needed


Rows = slice | NDArray[np.int64]
"""Some outputs of a matrix."""


@dataclass(frozen=True, slots=True)
class BlockForm:
    """What the codes of a type of blocks are, whatever their numbers."""

    number: int
    """Of the type, in GGUF files."""
    bits: int
    group: int
    scales: int
    """How the kernels keep scales: see `native.grouping`."""
    minimum: int
    """The same of minimums."""
    table: NDArray[np.int8] | None = None


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows in a file's blocks of one type, which the kernels pack without a copy of them between."""

    tensors: str
    """Their names, for messages."""
    form: BlockForm
    rows: NDArray[np.intp]
    """[outputs]: where each begins in memory."""
    inputs: int
    within: tuple[NDArray[np.uint8], ...]
    """The tensors that they are of, which keep the file open."""
    order: NDArray[np.int32] | None = None
    """See `GroupedWeights.order`."""


def _same(one: NDArray[np.int32] | None, other: NDArray[np.int32] | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def below(parts: Sequence[BlockRows]) -> tuple[BlockRows, ...]:
    """Rows one after the other, those of one form as one."""
    found: list[BlockRows] = []
    for each in parts:
        last = found[-1] if found else None
        same = last is not None and _same(last.order, each.order)
        if last is not None and same and last.form is each.form:
            names = dict.fromkeys((last.tensors, each.tensors))
            found[-1] = replace(
                last, tensors=", ".join(names), rows=np.append(last.rows, each.rows), within=last.within + each.within
            )
        else:
            found.append(each)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Coded weights in a file, which are read each time that they are needed: they take no memory between."""

    shape: tuple[int, int]
    """Outputs, inputs."""
    bits: int
    read_rows: Callable[[Rows], GroupedWeights | ChannelWeights | JoinedWeights]
    by_output: bool = False
    """Whether they are `ChannelWeights`."""
    blocks: Callable[[], tuple[BlockRows, ...]] | None = None
    """All of them as blocks, outputs of different types one after the other; None where they are stored otherwise."""

    def read(self, rows: Rows = slice(None)) -> GroupedWeights | ChannelWeights | JoinedWeights:
        """The weights of some outputs."""
        return self.read_rows(rows)


@dataclass(frozen=True, slots=True)
class ChannelWeights:
    """A weight matrix [outputs, inputs] as int8 numbers with a scale for each output, for rows that are rounded to int8
    with a scale for each row.

    Raises:
        UnsupportedModel: the arrays do not fit together.
    """

    codes: NDArray[np.int8]
    """[outputs, inputs]."""
    scales: NDArray[np.float32]
    """[outputs]."""
    bits = 8

    def __post_init__(self) -> None:
        if self.codes.dtype != np.int8 or self.scales.dtype != np.float32 or self.scales.shape != self.codes.shape[:1]:
            raise UnsupportedModel(
                f"the scales of int8 weights {list(self.codes.shape)} do not fit",
                hint="each output has a float32 scale",
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        outputs, inputs = self.codes.shape
        return outputs, inputs

    def read(self, rows: Rows = slice(None)) -> ChannelWeights:
        """The weights of some outputs."""
        return ChannelWeights(self.codes[rows], self.scales[rows])

    def dequantise(self) -> NDArray[np.float32]:
        """The weights [outputs, inputs], each rounded once."""
        return self.codes * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """A weight matrix [outputs, inputs] as codes: weight = scale * code - minimum, by groups along the inputs. With a
    table it is scale * table[code], and minimums are zeros.

    Raises:
        UnsupportedModel: the arrays do not fit together.
    """

    codes: NDArray[np.uint8]
    """[outputs, inputs]: one code a byte, below 2 ** bits."""
    bits: int
    """How many bits a code needs: 2, 3, 4, 5, 6 or 8."""
    group: int
    """Inputs that share a scale: one of `GROUPS`. The last group may be shorter."""
    scales: NDArray[np.float32]
    """[outputs, groups], where groups = ceil(inputs / group)."""
    minimums: NDArray[np.float32]
    """[outputs, groups]."""
    scale_units: NDArray[np.float32] | None = None
    """[outputs, ceil(inputs / 256)] if each scale is a whole number from -128 to 127 times the unit of its 256 inputs,
    as in K-quants: the kernels then keep a byte for a scale. The scales are the same numbers with and without."""
    minimum_units: NDArray[np.float32] | None = None
    """The same for minimums."""
    order: NDArray[np.int32] | None = None
    """[inputs], where the codes of some inputs were brought together into groups: the input that each belongs to."""
    table: NDArray[np.int8] | None = None
    """[16], where codes of 4 bits stand for other numbers than themselves."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        outputs, inputs = self.codes.shape
        return outputs, inputs

    def read(self, rows: Rows = slice(None)) -> GroupedWeights:
        """The weights of some outputs."""
        return replace(
            self,
            codes=self.codes[rows],
            scales=self.scales[rows],
            minimums=self.minimums[rows],
            scale_units=None if self.scale_units is None else self.scale_units[rows],
            minimum_units=None if self.minimum_units is None else self.minimum_units[rows],
        )

    def __post_init__(self) -> None:
        outputs, inputs = self.codes.shape
        groups, units = (outputs, -(-inputs // self.group)), (outputs, -(-inputs // UNIT))
        fits = self.group in GROUPS and self.bits in (2, 3, 4, 5, 6, 8) and self.codes.dtype == np.uint8
        given = (self.scales, groups), (self.minimums, groups), (self.scale_units, units), (self.minimum_units, units)
        for array, shape in given:
            fits = fits and (array is None or (array.dtype == np.float32 and array.shape == shape))
        if self.table is not None:
            shaped = self.bits == 4 and self.table.dtype == np.int8 and self.table.shape == (16,)
            fits = fits and shaped and not self.minimums.any()
        if self.order is not None:
            fits = fits and np.array_equal(np.sort(self.order), np.arange(inputs))
        if not fits:
            raise UnsupportedModel(
                f"the scales of weights [{outputs}, {inputs}] of {self.bits} bits in groups of {self.group} do not fit",
                hint=f"groups have {', '.join(map(str, GROUPS))} inputs, and each a float32 scale and minimum",
            )

    def dequantise(self) -> NDArray[np.float32]:
        """The weights [outputs, inputs], their inputs in their own order, each rounded once: in float32 where its
        products are exact, else in float64."""
        outputs, inputs = self.codes.shape
        bits = self.bits if self.table is None else 8
        unused = np.uint32((1 << bits) - 1)  # bits that a product with a code, or with a table's number, can fill
        exact = not (self.scales.view(np.uint32) & unused).any()
        wide = np.float32 if exact else np.float64
        out = np.empty((outputs, inputs), np.float32)
        for begin in range(0, outputs, _ROWS):
            rows = slice(begin, begin + _ROWS)
            out[rows, slice(None) if self.order is None else self.order] = self._numbers(rows, wide)
        return out

    def _numbers(self, rows: slice, wide: type[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Of some outputs, in the order of the codes."""
        # numpy's `take` is 2.5 times as fast as its indexing, and threads do not wait for each other in it
        codes: Any = self.codes[rows] if self.table is None else np.take(self.table.astype(wide), self.codes[rows])
        scales, minimums = self.scales[rows].astype(wide), self.minimums[rows].astype(wide)
        if self.codes.shape[1] % self.group == 0:
            made: Any = codes.reshape(*scales.shape, self.group) * scales[..., None]
            if self.table is None:
                made -= minimums[..., None]
            whole: NDArray[np.floating[Any]] = made.reshape(len(scales), -1)
            return whole
        repeated, least = (np.repeat(each, self.group, axis=1)[:, : codes.shape[1]] for each in (scales, minimums))
        numbers: NDArray[np.floating[Any]] = repeated * codes - least
        return numbers


@dataclass(frozen=True, slots=True)
class JoinedWeights:
    """Matrices of the same inputs as one, their outputs in order, whose codes are of different kinds."""

    parts: tuple[GroupedWeights, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    @property
    def bits(self) -> int:
        """Of the smallest codes."""
        return min(part.bits for part in self.parts)

    def read(self, rows: Rows = slice(None)) -> JoinedWeights:
        """The weights of some outputs."""
        ends = np.cumsum([part.shape[0] for part in self.parts])
        wanted = np.arange(ends[-1])[rows]
        among = np.searchsorted(ends, wanted, side="right")
        runs = np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(among)) + 1)
        found = []
        for run in runs:
            part = self.parts[among[run[0]]]
            found.append(part.read(wanted[run] - (ends[among[run[0]]] - part.shape[0])))
        return JoinedWeights(tuple(found))

    def dequantise(self) -> NDArray[np.float32]:
        """The weights [outputs, inputs], as `GroupedWeights.dequantise` gives them."""
        return np.concatenate([part.dequantise() for part in self.parts])


def stacked(weights: Sequence[GroupedWeights]) -> GroupedWeights:
    """Matrices of the same inputs and of codes of the same kind as one, their outputs in order."""
    if len(weights) == 1:
        return weights[0]
    first = weights[0]
    return replace(
        first,
        codes=np.concatenate([each.codes for each in weights]),
        scales=np.concatenate([each.scales for each in weights]),
        minimums=np.concatenate([each.minimums for each in weights]),
        scale_units=_all([each.scale_units for each in weights]),
        minimum_units=_all([each.minimum_units for each in weights]),
    )


def side_by_side(
    weights: Sequence[GroupedWeights | ChannelWeights | JoinedWeights],
) -> GroupedWeights | ChannelWeights | JoinedWeights:
    """Matrices of the same inputs as one, their outputs in order.

    Raises:
        UnsupportedModel: some have a scale for each output and others for groups.
    """
    parts = [part for each in weights for part in (each.parts if isinstance(each, JoinedWeights) else (each,))]
    channels = [each for each in parts if isinstance(each, ChannelWeights)]
    if len(channels) == len(parts):
        return ChannelWeights(
            np.concatenate([each.codes for each in channels]), np.concatenate([each.scales for each in channels])
        )
    if channels:
        raise UnsupportedModel(
            "layers of the same input have scales of different kinds", hint="load it with quantize='none'"
        )
    runs: list[list[GroupedWeights]] = []
    for each in parts:
        if isinstance(each, GroupedWeights):
            if runs and _alike(runs[-1][0], each):
                runs[-1].append(each)
            else:
                runs.append([each])
    kinds = tuple(stacked(run) for run in runs)
    return kinds[0] if len(kinds) == 1 else JoinedWeights(kinds)


def stored_together(weights: Sequence[StoredWeights]) -> StoredWeights:
    """Matrices of the same inputs as one that is read when it is needed, their outputs in order."""
    blocks = [each.blocks for each in weights]
    outputs = sum(each.shape[0] for each in weights)
    return StoredWeights(
        (outputs, weights[0].shape[1]),
        min(each.bits for each in weights),
        lambda rows: side_by_side([each.read() for each in weights]).read(rows),
        weights[0].by_output,
        None if None in blocks else lambda: below([part for each in blocks if each is not None for part in each()]),
    )


def _alike(one: GroupedWeights, other: GroupedWeights) -> bool:
    """Whether their codes are of the same kind, so that one product takes both."""
    shared = (one.table, other.table), (one.order, other.order)
    units = (one.scale_units, other.scale_units), (one.minimum_units, other.minimum_units)
    return (
        (one.bits, one.group) == (other.bits, other.group)
        and all((a is None) == (b is None) for a, b in (*shared, *units))
        and all(np.array_equal(a, b) for a, b in shared if a is not None and b is not None)
    )


def _all(arrays: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """These below one another, if there are all of them."""
    found = [array for array in arrays if array is not None]
    return np.concatenate(found) if len(found) == len(arrays) else None
