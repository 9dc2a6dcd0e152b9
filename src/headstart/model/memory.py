"""Will it fit? Bytes that weights and caches need against bytes that are free, before anything is allocated."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from headstart.base.errors import NotEnoughMemory

_GIB = 2**30

_DONTNEED = 4
"""MADV_DONTNEED of Linux."""
_WORTH_RELEASING = 2**24
"""Bytes; where less of checkpoints is mapped, it stays: to look at each page takes longer than to load a tiny model."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one model needs, in bytes. `weights` counts what is still to be loaded."""

    name: str
    weights: int
    cache: int
    states: int = 0
    """Of the cache, the recurrent states, which take as much for a shorter context."""

    @property
    def total(self) -> int:
        return self.weights + self.cache


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
    """Raise `NotEnoughMemory`, with the sum written out, unless all needs fit in what is free."""
    free = free_bytes(device)
    total = sum(need.total for need in needs)
    if total <= free:
        return
    parts = "; ".join(
        f"{need.name}: weights {need.weights / _GIB:.2f} GiB + KV cache {need.cache / _GIB:.2f} GiB" for need in needs
    )
    raise NotEnoughMemory(
        f"{total / _GIB:.2f} GiB are needed and {free / _GIB:.2f} GiB are free on {device} ({parts})",
        hint="lower max_length or max_batch_size (the KV cache grows with both), or load a smaller model",
    )


def release_files() -> None:
    """Give back the memory in which checkpoints are mapped, on Linux: what was copied from them is not read again, and
    what is still looked up there, such as rows of an embedding, comes back page by page.

    Mappings that hold numbers of their own, since somebody wrote to a weight in place, stay as they are, and so do
    those of tiny models. What the heap holds free after loading goes back, too.
    """
    try:
        mapped = _mapped_checkpoints(Path("/proc/self/maps"))
    except OSError:  # another system, which lets go of such pages when it needs them
        return
    library = ctypes.CDLL(None)
    if sum(end - begin for begin, end, _ in mapped) >= _WORTH_RELEASING:
        for begin, end, anonymous in _mapped_checkpoints(Path("/proc/self/smaps")):
            if anonymous == 0:
                library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def _mapped_checkpoints(listing: Path) -> list[tuple[int, int, int | None]]:
    """Where checkpoints are mapped, [begin, end), and the kB of each that hold numbers of their own, if the listing
    says so.

    Raises:
        OSError: there is no such listing.
    """
    found: list[tuple[int, int, int | None]] = []
    held = False
    for line in listing.read_text(errors="replace").splitlines():
        if line.endswith((".safetensors", ".gguf")):
            begin, end = (int(number, 16) for number in line.split(maxsplit=1)[0].split("-"))
            found.append((begin, end, None))
            held = True
        elif held and line.startswith("Anonymous:"):
            found[-1] = (*found[-1][:2], int(line.split()[1]))
            held = False
    return found


def _cgroup_allowance() -> int | None:
    root = Path("/sys/fs/cgroup")
    try:
        limit, used = (root / "memory.max").read_text().strip(), (root / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)
