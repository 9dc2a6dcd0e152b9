"""The rows that compiled code lays out are those of their plain description, and none that lies outside is taken."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bounds import runs_within_bounds

from headstart.base.errors import InvalidBatch
from headstart.model import native
from headstart.model.decoders.rows import Rows
from headstart.model.native import structs
from headstart.model.packed import Packed, Segment
from headstart.types import Draft

TOKENS, POSITIONS, SLOTS, PLACES = LIMITS = (50, 90, 3, 80)
WINDOWS = (None, 1, 3, 40)
LENGTHS = (0, 7, 20)


@pytest.fixture(autouse=True)
def compiled() -> None:
    if not native.available():
        pytest.skip(str(native.reason()))


class Lengths:
    """What `Packed` asks of a cache."""

    lengths = list(LENGTHS)


def packed_of(segments: list[Segment]) -> Packed:
    cache: Any = Lengths()
    return Packed(segments, cache, torch.float32, torch.device("cpu"))


class Laid:
    """A batch's struct, and what it leads to."""

    def __init__(self) -> None:
        self.struct, self.visible = structs.Batch(), (structs.Visible * len(WINDOWS))()
        self.rows = Rows(self.struct, self.visible, WINDOWS, LIMITS)

    def lay(self, packed: Packed) -> list[Any]:
        self.rows.lay(packed)
        struct, count = self.struct, self.struct.count
        found: list[Any] = [numbers(getattr(struct, name), count) for name in ("ids", "positions", "slots", "places")]
        found += [numbers(struct.judged, struct.judged_count), numbers(struct.segments, struct.segment_count + 1)]
        for seen in self.visible:
            begin = numbers(seen.extra_begin, count + 1)
            sight = [numbers(seen.first, count), numbers(seen.last, count), begin, numbers(seen.extra, begin[-1])]
            found.append(sight)
        return found


def numbers(at: int, count: int) -> list[int]:
    return (ctypes.c_int64 * count).from_address(at)[:] if count else []


def expected(packed: Packed) -> list[Any]:
    """The same from the lists that other forwards read, and from who is whose ancestor."""
    slots: list[int] = []
    places: list[int] = []
    for segment, start in zip(packed.segments, packed.starts, strict=True):
        slots += [segment.slot] * len(segment)
        places += range(start + segment.held, start + segment.held + len(segment))
    bounds = [0, *(end for _, end in packed.bounds)]
    sights = [sight(packed, window) for window in WINDOWS]
    return [packed.token_ids, packed.token_positions, slots, places, packed.judged_rows, bounds, *sights]


def sight(packed: Packed, window: int | None) -> list[list[int]]:
    first: list[int] = []
    last: list[int] = []
    begin, extra = [0], list[int]()
    for segment, start in zip(packed.segments, packed.starts, strict=True):
        draft, end = segment.draft, start + len(segment.causal)
        plain = len(segment) if draft.is_chain else len(segment.causal)
        for place in range(start + segment.held, start + segment.held + plain):
            first.append(max(0, place + 1 - window) if window else 0)
            last.append(place + 1)
            begin.append(len(extra))
        for node in range(segment.held, len(draft)) if plain < len(segment) else ():
            oldest = max(0, end + draft.depths[node] - window) if window else 0
            first.append(oldest)
            last.append(max(oldest, end))
            path = [end + each for each in draft.path(node)]
            extra += path[max(0, oldest - end) :]
            begin.append(len(extra))
    return [first, last, begin, extra]


@st.composite
def segments_of(draw: st.DrawFn) -> list[Segment]:
    found = []
    for slot in draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=3, unique=True)):
        causal = tuple(draw(st.lists(st.integers(0, TOKENS - 1), max_size=5)))
        parents: list[int] = []
        for node in range(draw(st.integers(0, 9))):
            parents.append(node - 1 if draw(st.booleans()) else draw(st.integers(-1, node - 1)))
        draft = Draft(tuple(draw(st.integers(0, TOKENS - 1)) for _ in parents), tuple(parents))
        held = 0 if causal or not parents else draw(st.integers(0, len(parents) - 1))
        fed = len(causal) + len(parents) - held
        if fed:
            found.append(Segment(slot, causal, draft, judged=draw(st.integers(0, fed)), held=held))
    return found or [Segment(0, (1,))]


@given(st.lists(segments_of(), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_rows_are_those_of_their_description(forwards: list[list[Segment]]) -> None:
    """One after the other on the same array, in which there is room at times and at times not."""
    laid = Laid()
    for segments in forwards:
        packed = packed_of(segments)
        assert laid.lay(packed) == expected(packed)


@pytest.mark.parametrize(
    ("segment", "words"),
    [
        (Segment(0, (1, TOKENS)), f"the token {TOKENS}, which is not below {TOKENS}"),
        (Segment(0, (-1,)), "the token -1"),
        (Segment(-1, (1,)), "the slot -1"),
        (Segment(2, (1,) * 61), f"the place in its slot {PLACES}, which is not below {PLACES}"),
        (Segment(2, (1,) * 71), f"the position {POSITIONS}, which is not below {POSITIONS}"),
        (Segment(0, (1,), judged=2), "the judged row -1, which is not below 1"),
        (Segment(1, ()), "the judged row -1, which is not below 0"),
        (Segment(1, (), judged=0), "a forward without rows"),
        (Segment(0, (1,), Draft((3, TOKENS), (-1, -1))), f"the token {TOKENS}"),
    ],
    ids=str,
)
def test_rows_outside_are_refused(segment: Segment, words: str) -> None:
    with pytest.raises(InvalidBatch, match=words):
        Laid().lay(packed_of([segment]))


def test_a_number_that_is_none_of_64_bits_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="63 bits"):
        Laid().lay(packed_of([Segment(0, (1 << 63,))]))


def test_a_long_chain_takes_no_room_for_ancestors() -> None:
    """They see what lies before them, as committed tokens do: a room for each pair would be half a gigabyte."""
    rows = Rows(structs.Batch(), (structs.Visible * 1)(), (None,), (9, 9999, 1, 9999))
    rows.lay(packed_of([Segment(0, (1,), Draft.chain((2,) * 6000))]))
    assert ctypes.sizeof(rows._numbers) < 1 << 20


def test_it_reads_and_writes_within_its_bounds(tmp_path: Path) -> None:
    main = """
    #include <vector>
    #include "rows.h"
    int main() {
        const int64_t windows[2] = {0, 2}, limits[4] = {9, 99, 2, 99};
        for (int64_t nodes = 0; nodes < 12; ++nodes)
            for (int64_t causal = 0; causal < 3; ++causal)
                for (int64_t held = 0; held <= (causal ? 0 : nodes); ++held)
                    for (int64_t wanted = 0; wanted < 15; ++wanted) {
                        std::vector<int64_t> given = {1, 5, causal, held, nodes, wanted};
                        for (int64_t i = 0; i < causal + nodes; ++i) given.push_back(i % 9);
                        for (int64_t i = 0; i < nodes; ++i) given.push_back(i % 3 ? i - 1 : -1);
                        const int64_t fed = causal + nodes - held, room = std::max<int64_t>({fed, nodes, 1});
                        const int64_t more = (nodes - held) * nodes;
                        std::vector<int64_t> out(7 * room + 1 + 2 * (3 * room + 1 + more));
                        const RowsRoom to(room, more, out.data());
                        const int64_t judged = lay_rows(
                            std::vector<int64_t>(given).data(), 1, windows, 2, limits, to);
                        const int64_t right = wanted > fed ? -5 : fed == 0 ? 0 : std::max<int64_t>(wanted, 1);
                        if (judged != right) return 1;
                    }
    }"""
    runs_within_bounds(main, native.MAIN.parent, tmp_path)
