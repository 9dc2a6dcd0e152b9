"""What was computed of windows of text, on disk: a few large safetensors files, read a window at a time.

A window is found by its tokens, so that neither another order of the data nor another run's leftovers can be mistaken
for it. Files are written whole or not at all, and are opened once.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.base.files import replacing

GIGABYTE = 1e9
SHARD_BYTES = 1 << 28
USUAL, SHARE = 20.0, 4  # the default in gigabytes, and at most this part of what is free

KEYS = "windows"


def key_of(window: Tensor) -> int:
    """64 bits that tell windows of tokens [T] apart."""
    digest = hashlib.blake2b(window.to("cpu", torch.int32).numpy().tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def usual_gigabytes(folder: Path) -> float:
    """How much of the disk states may take by default: 20 GB, or a quarter of what is free."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return min(USUAL, shutil.disk_usage(place).free / GIGABYTE / SHARE)


@dataclass(frozen=True, slots=True)
class _Place:
    shard: Any
    row: int


class StateStore:
    """Tensors of windows, by the windows' keys, up to so many gigabytes.

    What is added is kept in memory until it makes a file of `shard_bytes`, or `flush` is called. A kill leaves whole
    files alone. Where the limit or the disk is reached, nothing more is kept.
    """

    def __init__(self, folder: Path, gigabytes: float, *, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._limit, self._shard_bytes = folder, gigabytes * GIGABYTE, shard_bytes
        self._places: dict[int, _Place] = {}
        self._waiting: dict[int, dict[str, Tensor]] = {}
        self._waiting_bytes = self._used = self._shards = 0
        for shard in sorted(folder.glob("*.safetensors")):
            self._open(shard)

    def __contains__(self, key: int) -> bool:
        return key in self._places or key in self._waiting

    def __len__(self) -> int:
        return len(self._places) + len(self._waiting)

    def add(self, key: int, tensors: Mapping[str, Tensor]) -> bool:
        """Keep the tensors of one window, if they fit; all windows have the same names, shapes and types."""
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        if key in self or self._used + self._waiting_bytes + size > self._limit:
            return key in self
        self._waiting[key] = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        self._waiting_bytes += size
        if self._waiting_bytes >= self._shard_bytes:
            self.flush()
        return key in self

    def flush(self) -> None:
        """Write what waits in memory."""
        if not self._waiting:
            return
        keys, waiting = list(self._waiting), list(self._waiting.values())
        self._waiting, self._waiting_bytes = {}, 0
        tensors = {name: torch.stack([each[name] for each in waiting]) for name in waiting[0]}
        shard = self._folder / f"{self._shards:05d}.safetensors"
        try:
            with replacing(shard) as partial:
                save_file({KEYS: torch.tensor(keys), **tensors}, partial)
        except (OSError, SafetensorError):  # a full disk, most likely: what is on it already stays
            self._limit = 0.0
            return
        self._open(shard)

    def window(self, key: int) -> dict[str, Tensor]:
        """The tensors of a window that is here."""
        if key in self._waiting:
            return self._waiting[key]
        place = self._places[key]
        return {name: place.shard.get_slice(name)[place.row] for name in place.shard.keys() if name != KEYS}  # noqa: SIM118

    def _open(self, file: Path) -> None:
        shard: Any = safe_open(file, framework="pt")
        for row, key in enumerate(shard.get_tensor(KEYS).tolist()):
            self._places[key] = _Place(shard, row)
        self._shards = int(file.stem) + 1
        self._used += file.stat().st_size
