"""How many threads a forward of the row kernels may use: a number for each thread that runs forwards.

Where two models run at once, in two threads, each has its share of the cores.
"""

from __future__ import annotations

import threading

import torch

from headstart.base.cores import find_cores

_local = threading.local()


def use_threads(count: int | None) -> None:
    """From now on, forwards that the calling thread runs use so many threads; None is as many as PyTorch does."""
    _local.count = count


def threads() -> int:
    """The threads that a forward of the calling thread may use."""
    count: int | None = getattr(_local, "count", None)
    return torch.get_num_threads() if count is None else count


def use_in_process(count: int | None) -> None:
    """From now on, PyTorch uses so many threads, and with it all forwards of this process. None is as many as it does
    already, or fewer where `base.cores` finds fewer cores that are worth it."""
    if count is None:
        count = min(torch.get_num_threads(), find_cores().threads)
    if count != torch.get_num_threads():
        torch.set_num_threads(count)
