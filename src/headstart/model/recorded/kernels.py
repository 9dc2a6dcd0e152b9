"""Attention of a `Grid` in two kernels of Triton: rows are written into their slots, then attended to.

Nothing here is a number of the host: slots, lengths and who sees whom are read from the grid's buffers, so one recorded
launch serves every text. Keys are cut into shares that are attended to beside each other, and put together at the end
by their sums of exponentials. No key behind a request's last row is read, whatever was left there.

`grid.attend_plainly` is the plain twin.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headstart.model.decoders.attention import Scores
from headstart.model.recorded.grid import COLUMNS, Grid

_PROGRAMS = 256
"""So many programs keep a large GPU busy: keys are cut into no more shares than that takes."""
_SHARES = 16


@triton.jit(do_not_specialize=["rows"])
def _write(
    new_keys, new_values, keys, values, places, slots,
    new_key_row, new_key_head, new_value_row, new_value_head, key_slot, key_head, value_slot, value_head,
    rows, DIM: tl.constexpr, WIDE: tl.constexpr, DIM_UP: tl.constexpr, WIDE_UP: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    place, slot = tl.load(places + row), tl.load(slots + row // rows)
    d, e = tl.arange(0, DIM_UP), tl.arange(0, WIDE_UP)  # a row that only fills the grid up has no place
    key = tl.load(new_keys + row * new_key_row + head * new_key_head + d, mask=d < DIM, other=0.0)
    value = tl.load(new_values + row * new_value_row + head * new_value_head + e, mask=e < WIDE, other=0.0)
    tl.store(keys + slot * key_slot + head * key_head + place * DIM + d, key, mask=d < tl.where(place < 0, 0, DIM))
    tl.store(
        values + slot * value_slot + head * value_head + place * WIDE + e, value, mask=e < tl.where(place < 0, 0, WIDE)
    )


@triton.jit(do_not_specialize=["rows", "group", "kv_heads", "shares"])
def _attend(
    queries, keys, values, bits, columns, positions, slots, starts, extents, sums, peaks, totals,
    query_row, query_head, key_slot, key_head, value_slot, value_head, scale, softcap,
    rows, group, kv_heads, shares,
    DIM: tl.constexpr, WIDE: tl.constexpr, DIM_UP: tl.constexpr, WIDE_UP: tl.constexpr, COLUMNS: tl.constexpr,
    WINDOW: tl.constexpr, CAPPED: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    pair, share, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    request, head = pair // kv_heads, pair % kv_heads
    slot = tl.load(slots + request)
    start = tl.load(starts + request).to(tl.int32)
    end = start + tl.load(extents + request).to(tl.int32)
    each = ((end + shares - 1) // shares + STEP - 1) // STEP * STEP
    low = share * each
    high = tl.minimum(low + each, end)

    r = block * BLOCK + tl.arange(0, BLOCK)
    row, asked = request * rows + r // group, r < rows * group
    d, e = tl.arange(0, DIM_UP), tl.arange(0, WIDE_UP)
    at = row[:, None] * query_row + (head * group + r % group)[:, None] * query_head + d[None, :]
    query = tl.load(queries + at, mask=asked[:, None] & (d < DIM)[None, :], other=0.0)
    seen_of_draft = tl.load(bits + row, mask=asked, other=0)
    position = tl.load(positions + row, mask=asked, other=0)

    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    found = tl.zeros([BLOCK, WIDE_UP], tl.float32)
    for begin in range(low, high, STEP):
        column = begin + tl.arange(0, STEP)
        inside = column < high
        at_key = keys + slot * key_slot + head * key_head + column[None, :] * DIM + d[:, None]
        key = tl.load(at_key, mask=inside[None, :] & (d < DIM)[:, None], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if CAPPED:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        behind = column - start
        nth = tl.minimum(tl.maximum(behind, 0), COLUMNS - 1)
        ancestor = (seen_of_draft[:, None] >> nth[None, :].to(tl.int64)) & 1
        sees = inside[None, :] & ((behind < 0)[None, :] | (ancestor == 1))
        if WINDOW > 0:
            of_draft = tl.load(columns + request * COLUMNS + nth, mask=inside, other=0)
            sees = sees & (position[:, None] - tl.where(behind < 0, column.to(tl.int64), of_draft)[None, :] < WINDOW)
        scores = tl.where(sees, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        shrunk = tl.exp(peak - base)
        total = total * shrunk + tl.sum(weights, 1)
        at_value = values + slot * value_slot + head * value_head + column[:, None] * WIDE + e[None, :]
        value = tl.load(at_value, mask=inside[:, None] & (e < WIDE)[None, :], other=0.0)
        found = found * shrunk[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        peak = higher

    into = (pair * shares + share) * rows * group + r
    tl.store(peaks + into, peak, mask=asked)
    tl.store(totals + into, total, mask=asked)
    tl.store(sums + into[:, None] * WIDE + e[None, :], found, mask=asked[:, None] & (e < WIDE)[None, :])


@triton.jit(do_not_specialize=["rows", "group", "kv_heads"])
def _together(
    sums, peaks, totals, sinks, out,
    rows, group, kv_heads, SHARES: tl.constexpr, WIDE: tl.constexpr, WIDE_UP: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    pair = (row // rows) * kv_heads + head // group
    share, e = tl.arange(0, SHARES), tl.arange(0, WIDE_UP)
    at = (pair * SHARES + share) * rows * group + (row % rows) * group + head % group
    peak, total = tl.load(peaks + at), tl.load(totals + at)
    highest = tl.max(peak, 0)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32)
        highest = tl.maximum(highest, sink)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    factor = tl.exp(peak - base)
    whole = tl.sum(factor * total, 0)
    if SINKS:
        whole += tl.exp(sink - base)
    part = tl.load(sums + at[:, None] * WIDE + e[None, :], mask=(e < WIDE)[None, :], other=0.0)
    found = tl.sum(part * factor[:, None], 0) / tl.where(whole == 0, 1.0, whole)
    tl.store(out + (row * kv_heads * group + head) * WIDE + e, found.to(out.dtype.element_ty), mask=e < WIDE)


def attend(grid: Grid, layer: int, query: Tensor, new: tuple[Tensor, Tensor] | None, how: Scores) -> Tensor:
    """As `attention.attend_packed` does it, of the rows of a grid: query [1, heads, M, dim], new keys and values
    [1, kv_heads, M, dim]; returns [1, M, heads, dim]."""
    keys, values = grid.cache.keys[layer], grid.cache.values[layer]
    query = query if query.stride(-1) == 1 else query.contiguous()
    _, heads, count, dim = query.shape
    kv_heads, wide, rows = keys.shape[1], values.shape[-1], grid.rows
    group, pairs = heads // kv_heads, grid.requests * kv_heads
    widths = {"WIDE": wide, "WIDE_UP": max(16, triton.next_power_of_2(wide))}  # matrix units take no less
    both = {**widths, "DIM": dim, "DIM_UP": max(16, triton.next_power_of_2(dim))}
    lies = (*keys.stride()[:2], *values.stride()[:2])
    if new is not None:
        key, value = (part if part.stride(-1) == 1 else part.contiguous() for part in new)
        apart = (key.stride(2), key.stride(1), value.stride(2), value.stride(1))
        _write[count, kv_heads](key, value, keys, values, grid.places, grid.slots, *apart, *lies, rows, **both)
    exact = query.dtype == torch.float32  # products without matrix units: larger tiles take a minute to compile
    block, step = (16, 16) if exact else (16 if rows * group <= 16 else 64, 64)
    blocks = triton.cdiv(rows * group, block)
    shares = min(_SHARES, triton.next_power_of_2(max(1, _PROGRAMS // (pairs * blocks))))
    peaks, totals = query.new_empty(2, pairs, shares, rows * group, dtype=torch.float32)
    sums = query.new_empty(pairs, shares, rows * group, wide, dtype=torch.float32)
    scale = dim**-0.5 if how.scaling is None else how.scaling
    _attend[pairs, shares, blocks](
        query, keys, values, grid.bits, grid.columns, grid.positions, grid.slots, grid.lengths, grid.extents,
        sums, peaks, totals, query.stride(2), query.stride(1), *lies, float(scale), float(how.softcap or 1),
        rows, group, kv_heads, shares, **both, COLUMNS=COLUMNS, WINDOW=how.window or 0,
        CAPPED=how.softcap is not None, BLOCK=block, STEP=step,
    )  # fmt: skip
    out = query.new_empty(1, count, heads, wide)
    _together[count, heads](
        sums, peaks, totals, how.sinks, out, rows, group, kv_heads, SHARES=shares, **widths, SINKS=how.sinks is not None
    )
    return out
