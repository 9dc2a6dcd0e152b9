"""Memory that the kernels' structures point to: kept alive, and aligned as the kernels read it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import time
from typing import Any

import torch
from torch import Tensor

from headstart.model import native
from headstart.model.threads import threads

_HUGE = 1 << 21
"""Bytes of a huge page of x86."""


class Pointed:
    """Tensors and structures kept alive for the structures that point to them."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._structures: list[ctypes.Structure | ctypes.Array[Any]] = []

    def pointer(self, tensor: Tensor) -> int:
        """The address of a tensor's numbers, without a gap between them."""
        self.tensors.append(tensor.detach().contiguous())
        return self.tensors[-1].data_ptr()

    def structure(self, structure: ctypes.Structure | ctypes.Array[Any]) -> int:
        """The address of a structure, or of several."""
        self._structures.append(structure)
        return ctypes.addressof(structure)

    def gain(self, gain: Tensor | None) -> int | None:
        """The address of a norm's gain in float32; None for no norm."""
        return None if gain is None else self.pointer(gain.float())


class Room:
    """Memory for so many pieces of the size of the first, in one block: a system gives a process some ten thousand
    blocks. Where others no longer fit, an eighth as many follow in another block, and so on."""

    def __init__(self, count: int) -> None:
        self._count, self._block = count, torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """Memory for the next piece, as `aligned` makes it."""
        whole = -(-size // 64) * 64
        if whole > len(self._block):
            self._block = aligned(self._count * whole)
            self._count = max(1, self._count // 8)
        found, self._block = self._block[:size], self._block[whole:]
        return found


def aligned(size: int) -> Tensor:
    """So many bytes, not set to anything. The first one begins a cache line, as a tile's rows must.

    Where they fill huge pages and Linux gives these, they lie in such pages, since a forward reads all weights once and
    would otherwise look up the address of every 4 KiB. The rest behind the last whole one has small pages, so that no
    memory is taken that is not used.
    """
    if size < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = torch.empty(size + 64, dtype=torch.uint8)
        return memory[-memory.data_ptr() % 64 :]
    block = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(block)) % _HUGE
    with contextlib.suppress(OSError):  # a kernel without huge pages
        block.madvise(mmap.MADV_HUGEPAGE, start, size // _HUGE * _HUGE)
    return torch.frombuffer(block, dtype=torch.uint8, count=size, offset=start)


def read_seconds(memory: Tensor) -> float:
    """Seconds in which the threads of a forward read memory and do nothing else: a product of weights of as many bytes
    takes no less."""
    if native.available():
        read, address, size, count = native.kernels().read, memory.data_ptr(), memory.nbytes, threads()
        start = time.perf_counter()
        read(address, size, count)
    else:
        start = time.perf_counter()
        memory.view(torch.uint8).view(torch.int64).sum()
    return time.perf_counter() - start


def read_bandwidth(size: int = 1 << 30, rounds: int = 5) -> float:
    """Bytes per second that they read of memory of so many bytes, most of which no cache may hold: the best round."""
    memory = aligned(max(8, size // 8 * 8)).fill_(1)  # pages that nothing was written to are all the same zeros
    return memory.nbytes / min(read_seconds(memory) for _ in range(rounds))
