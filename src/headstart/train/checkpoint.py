"""Checkpoints that survive a kill at any moment: a folder is complete or it is not there.

A checkpoint is a folder `step-00001234` of safetensors files and one `state.json`. It is written under another name and
renamed, which is atomic; the one before is removed only then. Nothing is pickled.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.base.errors import TrainingFailed

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
        state: dict[str, Any] = json.loads((self.path / "state.json").read_text())
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
        (partial / "state.json").write_text(json.dumps(state, indent=2) + "\n")
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
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
