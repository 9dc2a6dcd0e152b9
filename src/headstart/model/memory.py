"""Will it fit? Bytes that weights and caches need against bytes that are free, before anything is allocated."""

from __future__ import annotations

import ctypes
import logging
import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import NotEnoughMemory

log = logging.getLogger(__name__)

_GIB = 2**30

_WILLNEED, _DONTNEED = 3, 4
"""MADV_WILLNEED and MADV_DONTNEED of Linux."""


_PAGES = 2**16
"""Of a mapping, that are asked for at once."""

WORTH_RELEASING = 2**23
"""Bytes of weights. To look where files are mapped takes longer than to load a tiny model."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one model needs, in bytes. `weights` counts what is still to be loaded."""

    name: str
    weights: int
    cache: int
    states: int = 0
    """Of the cache, the recurrent states, which take as much for a shorter context."""
    mapped: int = 0
    """Weights beside those that lie in a mapped file: what of them is not in memory is read when it is needed."""
    rows: int = 0
    """What a forward of the most rows takes for itself: those of a prompt, mostly."""

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.rows


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes that tensors take in memory. Whole storages count, and those that several tensors share count once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        if tensor.is_mkldnn:  # laid out by a library, without a storage that can be asked
            found[id(tensor)] = tensor.numel() * tensor.element_size()
        else:
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on the device: free GPU memory, or the host's available memory.

    The least of the system's own estimate and, on Linux, the control group's allowance.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    allowance = _cgroup_allowance()
    return available if allowance is None else min(available, allowance)


def preflight(needs: list[MemoryNeed], device: torch.device) -> None:
    """Raise `NotEnoughMemory`, with the sum written out, unless all needs fit in what is free. Where mapped weights do
    not fit beside them a warning is logged."""
    free = free_bytes(device)
    total, mapped = sum(need.total for need in needs), sum(need.mapped for need in needs)
    if total <= free:
        if mapped and total + mapped > free:
            log.warning(
                "%.1f GiB of experts lie in a file, for which %.1f GiB of memory are left: a forward waits for the "
                "disk where it needs others than those that are in memory",
                mapped / _GIB,
                (free - total) / _GIB,
            )
        return
    parts = "; ".join(
        f"{need.name}: weights {need.weights / _GIB:.2f} GiB + KV cache {need.cache / _GIB:.2f} GiB"
        + (f" + rows of a forward {need.rows / _GIB:.2f} GiB" if need.rows else "")
        for need in needs
    )
    raise NotEnoughMemory(
        f"{total / _GIB:.2f} GiB are needed and {free / _GIB:.2f} GiB are free on {device} ({parts})",
        hint="lower max_length or max_batch_size (the KV cache grows with both), or load a smaller model",
    )


def release(data: NDArray[Any]) -> None:
    """Give back the memory in which a part of a file is mapped, on Linux; its pages come back when they are read."""
    _advise(data, _DONTNEED)


def prefetch(data: NDArray[Any]) -> None:
    """Begin to read a part of a mapped file from the disk, on Linux; elsewhere it is read page by page."""
    _advise(data, _WILLNEED)


def _advise(data: NDArray[Any], advice: int) -> None:
    begin = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (data.ctypes.data + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    owner: Any = data
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if sys.platform == "linux" and isinstance(owner, mmap.mmap):
        _madvise(begin, end, advice)


def _madvise(begin: int, end: int, advice: int) -> None:
    """Advise on the pages between two addresses."""
    if end > begin:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def release_files() -> None:
    """Give back the memory in which checkpoints are mapped, on Linux: what was copied from them is not read again, and
    what is still looked up there, such as rows of an embedding, comes back page by page.

    What the heap holds free after loading goes back, too.
    """
    for begin, end in mapped_checkpoints():
        _madvise(begin, end, _DONTNEED)
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def mapped_checkpoints() -> list[tuple[int, int]]:
    """The addresses, from and to, where checkpoints are mapped, on Linux.

    Mappings that hold numbers of their own, since somebody wrote to a weight in place, are left out.
    """
    try:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
    except OSError:  # another system, which lets go of such pages when it needs them
        return []
    places = [line.split(maxsplit=1)[0].split(b"-") for line in lines if line.endswith((b".safetensors", b".gguf"))]
    found = [(int(begin, 16), int(end, 16)) for begin, end in places]
    return [place for place in found if not _written(*place)]


def _written(begin: int, end: int) -> bool:
    """Whether a private mapping of a file has pages of its own, or nobody says. Source:
    Documentation/admin-guide/mm/pagemap.rst of Linux. `smaps` would say it too, but counts the pages of every mapping
    of the process."""
    first, last = begin // mmap.PAGESIZE, end // mmap.PAGESIZE
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            file.seek(8 * first)
            for at in range(first, last, _PAGES):
                count = min(_PAGES, last - at)
                pages = np.frombuffer(file.read(8 * count), dtype=np.uint64)
                present, swapped, of_file = (pages >> np.uint64(bit) & np.uint64(1) for bit in (63, 62, 61))
                if len(pages) < count or np.any(swapped | (present & ~of_file)):
                    return True
    except OSError:
        return True
    return False


def release_copied(weight: Tensor, files: Iterable[tuple[int, int]]) -> None:
    """Give back the memory of a weight that has been copied, where it lies in one of these mappings (see
    `mapped_checkpoints`)."""
    begin, end = weight.data_ptr(), weight.data_ptr() + weight.nbytes
    if any(first <= begin and end <= last for first, last in files):
        _madvise(-(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE, _DONTNEED)


def _cgroup_allowance() -> int | None:
    root = Path("/sys/fs/cgroup")
    try:
        limit, used = (
            (root / "memory.max").read_text(encoding="utf-8").strip(),
            (root / "memory.current").read_text(encoding="utf-8").strip(),
        )
    except OSError:
        return None
    if limit == "max":
        return None
    return max(int(limit) - int(used) + _pages_of_files(root), 0)


def _pages_of_files(root: Path) -> int:
    """Bytes of files that the control group's use counts, such as mapped experts, and that the system lets go of when
    it needs them."""
    try:
        lines = (root / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return sum(int(found.get(name, 0)) for name in ("active_file", "inactive_file"))
