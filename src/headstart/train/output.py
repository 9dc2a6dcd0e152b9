"""The output directory: whose run it holds, and the one moment at which it becomes a finished drafter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.base.errors import TrainingFailed
from headstart.base.files import replacing
from headstart.train import checkpoint, provenance
from headstart.train.options import Training

NOTE = "run.json"
PHASES = "phases.json"


def refuse_occupied(options: Training) -> None:
    """Raise `TrainingFailed` if the directory holds a finished drafter, or an unfinished run with other options."""
    folder = options.folder
    if (folder / provenance.FILE).exists():
        raise TrainingFailed(f"{folder} holds a finished drafter", hint="choose another output, or remove it")
    note, mine = folder / NOTE, json.loads(json.dumps(options.identity()))
    theirs = json.loads(note.read_text()) if note.exists() else mine
    changed = sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))
    if changed:
        raise TrainingFailed(
            f"{folder} holds an unfinished run with other options: {', '.join(changed)}",
            hint="use the same options to resume it, or another output",
        )


def claim(options: Training) -> None:
    """Record in the directory whose it is, before anything else is written there."""
    folder = options.folder
    with replacing(folder / NOTE) as partial:
        partial.write_text(json.dumps(options.identity(), indent=2) + "\n")


def finish(folder: Path, write: Callable[[Path], None], record: dict[str, Any]) -> None:
    """Let the drafter write its files, then the provenance, which marks it as complete; then tidy up."""
    partial = folder / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    with checkpoint.writing(partial, checkpoints=folder / "checkpoints"):
        partial.mkdir()
        write(partial)
    for file in partial.iterdir():
        if file.is_dir():
            shutil.rmtree(folder / file.name, ignore_errors=True)
        file.rename(folder / file.name)
    partial.rmdir()
    provenance.write(folder, record)
    for name in ("checkpoints", "best", "generations", "hidden"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (NOTE, PHASES):
        (folder / name).unlink(missing_ok=True)
