"""The rows of a forward in a fixed shape: so many requests of so many rows each, in buffers that stay where they are.

It is what a `Packed` is to other forwards. Who sees whom is one whole number a row, whose bits are the rows of its
request that it sees: drafts have at most 64 nodes, so nothing as long as the text is made for it. A request with fewer
rows, or a missing one, is filled up by rows that are written nowhere and looked at by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from headstart.model.cache import KVCache
from headstart.model.decoders.attention import Scores
from headstart.model.packed import Packed, Segment

COLUMNS = 64
"""Rows of a request behind its text, at most: the bits of a whole number."""
MOST_ROWS = 256
"""Of a grid: forwards of more rows, such as prompts, keep a GPU busy as they are."""

Attend = Callable[["Grid", int, Tensor, tuple[Tensor, Tensor] | None, Scores], Tensor]
"""See `attention.attend_packed`."""


class Grid(Packed):
    """requests x rows = M rows, in buffers of whole numbers:

    ids, positions [1, M]. places [M]: where a row is written in its slot, or -1. bits [M]: the rows behind the text
    that it sees. slots, lengths, extents [requests]: where the text is, how long it is, and how many rows there are
    behind it. columns [requests, COLUMNS]: the positions of those. judged [M]: the rows that get logits, and then
    anything. real [M]: the rows of `packed`, in its order, and then anything.
    """

    def __init__(self, cache: KVCache, requests: int, rows: int, device: torch.device, attend: Attend) -> None:
        count = requests * rows
        sizes = (count,) * 6 + (requests,) * 3 + (requests * COLUMNS,)
        self._numbers = torch.zeros(sum(sizes), dtype=torch.long, device=device)
        parts = self._numbers.split_with_sizes(sizes)
        ids, positions, self.places, self.bits, self.judged, self.real = parts[:6]
        self.slots, self.lengths, self.extents, columns = parts[6:]
        self.ids, self.positions, self.columns = ids[None], positions[None], columns.view(requests, COLUMNS)
        self.cache: KVCache = cache
        self.requests, self.rows = requests, rows
        self.attends = partial(attend, self)

    def fill(self, packed: Packed) -> None:
        """Take the rows of a forward. The numbers go to the device in one piece, and nobody waits for them."""
        rows, count = self.rows, self.requests * self.rows
        ids, positions, places, bits = [0] * count, [0] * count, [-1] * count, [0] * count
        judged, real, columns = [0] * count, [0] * count, [0] * (self.requests * COLUMNS)
        slots, starts, extents = ([0] * self.requests for _ in range(3))
        for r, (segment, start, (begin, end)) in enumerate(
            zip(packed.segments, packed.starts, packed.bounds, strict=True)
        ):
            at, n, held = r * rows, end - begin, segment.held
            ids[at : at + n] = packed.token_ids[begin:end]
            positions[at : at + n] = packed.token_positions[begin:end]
            places[at : at + n] = range(start + held, start + held + n)
            seen, found = seen_rows(segment, start)
            bits[at : at + n] = seen[held:]
            columns[r * COLUMNS : r * COLUMNS + len(found)] = found
            real[begin:end] = range(at, at + n)
            slots[r], starts[r], extents[r] = segment.slot, start, held + n
        judged[: len(packed.judged_rows)] = [real[row] for row in packed.judged_rows]
        parts = (ids, positions, places, bits, judged, real, slots, starts, extents, columns)
        numbers = torch.tensor([number for part in parts for number in part])
        self._numbers.copy_(numbers, non_blocking=True)  # pageable memory: it has been read when this returns


def seen_rows(segment: Segment, start: int) -> tuple[list[int], list[int]]:
    """Of the rows of a segment, those that are held first: the rows that each sees, as bits of a signed whole number;
    and their positions."""
    causal, draft = len(segment.causal), segment.draft
    bits = [(1 << (row + 1)) - 1 for row in range(causal)]
    for node, parent in enumerate(draft.parents):
        above = bits[causal + parent] if parent >= 0 else (1 << causal) - 1
        bits.append(above | 1 << (causal + node))
    positions = [*range(start, start + causal), *(start + causal - 1 + depth for depth in draft.depths)]
    return [number - (1 << 64) if number >> 63 else number for number in bits], positions


def attend_plainly(grid: Grid, layer: int, query: Tensor, new: tuple[Tensor, Tensor] | None, scores: Scores) -> Tensor:
    """The attention of a grid in plain operations, request by request: the twin of the kernels, which reads lengths on
    the host."""
    keys, values = grid.cache.keys[layer], grid.cache.values[layer]
    _, heads, rows, dim = query.shape
    out = query.new_zeros(1, rows, heads, values.shape[-1])
    for r in range(grid.requests):
        slot, start, extent = (int(each[r]) for each in (grid.slots, grid.lengths, grid.extents))
        real = [row for row in range(r * grid.rows, (r + 1) * grid.rows) if grid.places[row] >= 0]
        if not real:
            continue
        if new is not None:
            keys[slot][:, grid.places[real]], values[slot][:, grid.places[real]] = (part[0, :, real] for part in new)
        end = start + extent
        column = torch.arange(end)
        behind = column - start
        sees = (behind < 0) | ((grid.bits[real, None] >> behind.clamp(min=0)) & 1 == 1)
        if scores.window is not None:
            of_draft = grid.columns[r, behind.clamp(min=0)]
            sees &= grid.positions[0, real, None] - torch.where(behind < 0, column, of_draft) < scores.window
        group = heads // keys.shape[1]
        k, v = (part[slot, :, :end].repeat_interleave(group, 0) for part in (keys, values))
        found = query[0, :, real] @ k.transpose(-1, -2) * (dim**-0.5 if scores.scaling is None else scores.scaling)
        if scores.softcap is not None:
            found = torch.tanh(found / scores.softcap) * scores.softcap
        found = found.masked_fill(~sees, float("-inf"))
        if scores.sinks is not None:
            found = torch.cat((found, scores.sinks.view(-1, 1, 1).expand(-1, len(real), 1).to(found.dtype)), -1)
        weights = found.softmax(-1, dtype=torch.float32).to(query.dtype)[..., :end]
        out[0, real] = (weights @ v).transpose(0, 1)
    return out


def shape_of(segments: Sequence[Segment]) -> tuple[int, int] | None:
    """The smallest grid (requests, rows of each) for these; None where no grid holds them."""
    longest, drafted = max(map(len, segments)), max(segment.held + len(segment) for segment in segments)
    if drafted > COLUMNS:
        return None
    requests, rows = _up(len(segments)), _up(longest)
    return (requests, rows) if requests * rows <= MOST_ROWS else None


def _up(number: int) -> int:
    return 1 << (number - 1).bit_length()
