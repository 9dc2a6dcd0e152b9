"""Masks of tokens, one bit each: where a bit is 0, -inf is added to the token's logit.

On the host the work is compiled code where there is a C++ compiler, and NumPy where there is none; on a device all rows
are masked at once. The results are the same to the bit.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base import compiling

Mask = NDArray[np.uint32]
"""[ceil(V / 32)]: bit i % 32 of word i // 32 is 1 where token i may come."""
Apply = Callable[[NDArray[np.float32], Mask], None]
"""Adds -inf to the logits [V] of the tokens that may not come."""

_SOURCE = Path(__file__).with_name("mask.cpp")
log = logging.getLogger(__name__)


def empty(size: int) -> Mask:
    """A mask of so many tokens, its bits not set to anything."""
    return np.empty((size + 31) // 32, dtype=np.uint32)


def one(token: int, size: int) -> Mask:
    """The mask of `size` tokens that lets one of them come."""
    made = np.zeros((size + 31) // 32, dtype=np.uint32)
    made[token >> 5] = 1 << (token & 31)
    return made


def cut(mask: Mask, size: int) -> Mask:
    """The mask of the first `size` tokens, with no bits beyond them."""
    words, bits = divmod(size, 32)
    if bits:
        mask[words] &= np.uint32((1 << bits) - 1)
    return mask[: words + (bits > 0)]


def allows(mask: Mask, token: int) -> bool:
    """Whether the token may come; not one from outside the mask."""
    word = token >> 5
    return 0 <= word < len(mask) and bool(mask.item(word) >> (token & 31) & 1)


def only(mask: Mask) -> int | None:
    """The one token that may come; None where none may, or several."""
    some = mask != 0
    if np.count_nonzero(some) != 1:
        return None
    at = int(some.argmax())
    word = mask.item(at)
    return None if word & (word - 1) else 32 * at + word.bit_length() - 1


def first(mask: Mask) -> int:
    """The lowest token that may come; 0 where none may."""
    at = int((mask != 0).argmax())
    word = mask.item(at)
    return 32 * at + (word & -word).bit_length() - 1 if word else 0


def count(mask: Mask) -> int:
    """How many tokens may come."""
    return int(np.bitwise_count(mask).sum())


def apply(x: NDArray[np.float32], mask: Mask) -> None:
    """Add -inf to the logits [V] of the tokens that may not come."""
    compiled()(x, mask)


def apply_to_columns(x: NDArray[np.float32], ids: NDArray[np.int64], mask: Mask) -> None:
    """The same for some columns of the vocabulary: x [W] are the logits of the tokens ids [W]."""
    x[(mask[ids >> 5] >> (ids & 31).astype(np.uint32) & 1) == 0] += np.float32(-np.inf)


def apply_to_rows(x: Tensor, rows: Sequence[int], masks: Sequence[Mask]) -> None:
    """The same for rows of logits [R, V] on any device, in place."""
    words = torch.from_numpy(np.stack(masks).view(np.int32)).to(x.device)
    bits = torch.arange(32, dtype=torch.int32, device=x.device)
    allowed = ((words[:, :, None] >> bits) & 1).flatten(1)[:, : x.shape[1]] > 0
    at = torch.tensor(rows, device=x.device)
    chosen = x[at]
    x[at] = torch.where(allowed, chosen, chosen - torch.inf)


def in_numpy(x: NDArray[np.float32], mask: Mask) -> None:
    """What the compiled code does."""
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little", count=len(x))
    x[allowed == 0] += np.float32(-np.inf)


@functools.cache
def compiled() -> Apply:
    """The compiled function of this process, built at the first call; `in_numpy` where it cannot be had."""
    try:
        library = ctypes.CDLL(str(compiling.library(_SOURCE).path))
    except (compiling.Unavailable, OSError) as reason:
        log.info("masks of grammars are slower here: %s", reason)
        return in_numpy
    return bound_to(library)


def bound_to(library: Any) -> Apply:
    """The function of a compiled library."""
    function = library.headstart_mask
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    function.restype = None

    def applied(x: NDArray[np.float32], mask: Mask) -> None:
        if not x.flags.c_contiguous:
            in_numpy(x, mask)
            return
        function(compiling.address(x), len(x), compiling.address(mask))

    return applied
