"""How many threads a forward of the row kernels may use: a number for the process, and one for each thread that has a
share of its own.

Where two models run at once, in two threads, each has its share of the cores.
"""

from __future__ import annotations

import threading

import torch

from headstart.base.cores import Cores, find_cores

_local = threading.local()
_chosen: int | None = None
"""What `use_in_process` chose last. PyTorch's own number differs between threads: OpenMP keeps one for each."""
_before = 0
"""PyTorch's number before that."""


def use_threads(count: int | None) -> None:
    """From now on, forwards that the calling thread runs use so many threads; None is as many as the process does."""
    _local.count = count


def threads() -> int:
    """The threads that a forward of the calling thread may use."""
    count: int | None = getattr(_local, "count", None)
    return process_threads() if count is None else count


def process_threads() -> int:
    """What `use_in_process` said last, in whatever thread; before it was called, as many as PyTorch uses."""
    return torch.get_num_threads() if _chosen is None else _chosen


def default_threads() -> Cores:
    """What a process uses that is told nothing: as many as PyTorch does by itself or by its program, or fewer where
    `base.cores` finds fewer cores that are worth it."""
    now, cores = torch.get_num_threads(), find_cores()
    own = _before if now == _chosen else now  # of an earlier choice nothing is left
    return cores if cores.threads <= own else Cores(own, "as many as PyTorch uses")


def use_in_process(count: int | None) -> None:
    """From now on, all forwards of the row kernels in this process use so many threads, whatever thread runs them, and
    so does PyTorch in the calling thread and in those that it has not run in yet. None is `default_threads`."""
    global _chosen, _before
    count = default_threads().threads if count is None else count
    now = torch.get_num_threads()
    _before = _before if now == _chosen else now
    torch.set_num_threads(count)
    _chosen = count
