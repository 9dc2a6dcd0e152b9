"""The rows of a packed batch as the row kernels read them, laid out by compiled code."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from headstart.base.errors import InvalidBatch
from headstart.model import native
from headstart.model.native import structs
from headstart.model.packed import Packed

HINT = "a drafter that runs forwards of its own must stay within its slots; otherwise this is a bug of headstart's"
_PARTS = ("token", "position", "slot", "place in its slot", "judged row")


class Rows:
    """The numbers of a batch's rows, in one array of int64 that is kept from forward to forward while it has room.

    struct: of the batch; its pointers lead there. visible: of each window. limits: of tokens, positions, slots and
    places.
    """

    def __init__(
        self, struct: structs.Batch, visible: Any, windows: Sequence[int | None], limits: tuple[int, int, int, int]
    ) -> None:
        self._struct, self._visible, self._limits = struct, visible, limits
        self._windows = (ctypes.c_int64 * len(windows))(*[window or 0 for window in windows])
        self._bounds = (ctypes.c_int64 * len(limits))(*limits)
        self._room = self._more = -1

    def lay(self, packed: Packed) -> None:
        """Lay out the rows of a batch.

        Raises:
            InvalidBatch: the kernels would read or write outside a table or a slot.
        """
        given, rows, room, ancestors = list[int](), 0, 0, 0
        for segment, start in zip(packed.segments, packed.starts, strict=True):
            causal, draft = segment.causal, segment.draft
            nodes = len(draft.tokens)
            given += (segment.slot, start, len(causal), segment.held, nodes, segment.judged)
            given += causal
            given += draft.tokens
            given += draft.parents
            fed = len(causal) + nodes - segment.held
            rows += fed
            room = max(room, nodes)
            if nodes > 1 and not draft.is_chain:  # nodes of chains see them as they see committed tokens
                ancestors += (nodes - segment.held) * nodes
        segments = len(packed.segments)
        room = max(room, rows, segments)
        if room > self._room or ancestors > self._more:
            self._make(max(room, self._room), max(ancestors, self._more))
        try:
            numbers = array("q", given)
        except OverflowError:
            raise InvalidBatch("a row has a number of more than 63 bits", hint=HINT) from None
        windows, where = self._windows, (self._room, self._more, self._numbers)
        lay = native.kernels().rows
        judged = lay(numbers.buffer_info()[0], segments, windows, len(windows), self._bounds, *where)
        if judged <= 0:
            raise self._invalid(-1 - judged, rows)
        struct = self._struct
        struct.count, struct.judged_count, struct.segment_count = rows, judged, segments

    def _invalid(self, part: int, rows: int) -> InvalidBatch:
        if part < 0:
            return InvalidBatch("a forward without rows", hint=HINT)
        name, wrong, limit = _PARTS[part], self._numbers[0], (*self._limits, rows)[part]
        return InvalidBatch(f"a row has the {name} {wrong}, which is not below {limit}", hint=HINT)

    def _make(self, room: int, more: int) -> None:
        """Make room for so many rows, and for so many places that they see in trees, as `RowsRoom` of rows.h says."""
        sizes = [*[room] * 5, room + 1, room, *[room, room, room + 1, more] * len(self._windows)]
        self._room, self._more, self._numbers = room, more, (ctypes.c_int64 * sum(sizes))()
        at = [ctypes.addressof(self._numbers) + 8 * begin for begin in accumulate(sizes[:-1], initial=0)]
        struct = self._struct
        struct.ids, struct.positions, struct.slots, struct.places, struct.judged, struct.segments = at[:6]
        for seen, first in zip(self._visible, range(7, len(at), 4), strict=True):
            seen.first, seen.last, seen.extra_begin, seen.extra = at[first : first + 4]
