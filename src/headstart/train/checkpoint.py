"""Checkpoints that survive a kill at any moment: a folder is complete or it is not there.

A checkpoint is a folder `step-00001234` of safetensors files and one `state.json`. It is written under another name and
renamed, which is atomic; the one before is removed only then. Nothing is pickled.

A `StateStore` keeps what was computed of windows of text: a few large safetensors files, read a window at a time. A
window is found by its tokens, so that neither another order of the data nor another run's leftovers can be mistaken for
it. Files are written whole or not at all, and are opened once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.base.errors import TrainingFailed
from headstart.base.files import replacing

PREFIX = "step-"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix(PREFIX))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors saved under this name."""
        found: dict[str, Tensor] = load_file(self.path / f"{name}.safetensors")
        return found

    def state(self) -> dict[str, Any]:
        """The plain values saved beside the tensors."""
        state: dict[str, Any] = json.loads((self.path / "state.json").read_text(encoding="utf-8"))
        return state


def latest(folder: Path) -> Checkpoint | None:
    """The newest complete checkpoint in the folder, or None."""
    found = [Checkpoint(p) for p in folder.glob(PREFIX + "*") if p.name.removeprefix(PREFIX).isdigit()]
    return max(found, key=lambda c: c.step, default=None)


def save(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Checkpoint:
    """Write one checkpoint (groups of tensors by name, and plain values), then remove the older ones.

    Raises:
        TrainingFailed: it could not be written, for example for want of room; the one before is still there.
    """
    final, partial = folder / f"{PREFIX}{step:08d}", folder / f"partial-{step:08d}"
    for left in folder.glob("partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    with writing(partial, checkpoints=folder):
        partial.mkdir(parents=True)
        for name, group in tensors.items():
            save_file({k: t.detach().contiguous() for k, t in group.items()}, partial / f"{name}.safetensors")
        (partial / "state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        for file in partial.iterdir():
            _flush(file)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    for other in folder.glob(PREFIX + "*"):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)
    return Checkpoint(final)


@contextmanager
def writing(partial: Path, *, checkpoints: Path) -> Iterator[None]:
    """Turn what a full disk raises into a typed error, and give back the room that an unfinished directory or file
    took."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)
        found = latest(checkpoints)
        kept = f"the checkpoint of step {found.step} is whole" if found else "there is no checkpoint yet"
        hint = "make room on the disk and run the same command again: it goes on from its last checkpoint"
        raise TrainingFailed(f"{partial.parent} cannot be written: {error}; {kept}", hint=hint) from error


def _flush(file: Path) -> None:
    """Have the bytes on the disk before the rename makes them count."""
    with file.open("r+b") as opened:  # Windows flushes only what could be written to
        os.fsync(opened.fileno())


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
