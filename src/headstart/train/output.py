"""The output directory: whose run it holds, the one moment at which it becomes a finished drafter, and the record of
where its weights came from.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headstart.base.errors import TrainingFailed
from headstart.base.files import replacing
from headstart.train import checkpoint
from headstart.train.acceptance import Acceptance
from headstart.train.options import Training
from headstart.train.run import Run
from headstart.train.sources import Corpus
from headstart.train.student import weights_sha256

FILE = "provenance.json"
NOTE = "run.json"
PHASES = "phases.json"
LIBRARIES = ("headstart", "torch", "transformers", "tokenizers", "safetensors")


def refuse_occupied(options: Training) -> None:
    """Raise `TrainingFailed` if the directory holds a finished drafter, or an unfinished run with other options."""
    folder = options.folder
    if (folder / FILE).exists():
        raise TrainingFailed(f"{folder} holds a finished drafter", hint="choose another output, or remove it")
    note, mine = folder / NOTE, json.loads(json.dumps(options.identity()))
    theirs = json.loads(note.read_text(encoding="utf-8")) if note.exists() else mine
    changed = sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))
    if changed:
        problem = f"{folder} holds an unfinished run with other options: {', '.join(changed)}"
        raise TrainingFailed(problem, hint="use the same options to resume it, or another output")


def claim(options: Training) -> None:
    """Record in the directory whose it is, before anything else is written there."""
    folder = options.folder
    with replacing(folder / NOTE) as partial:
        partial.write_text(json.dumps(options.identity(), indent=2) + "\n", encoding="utf-8")


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
    write_record(folder, record)
    for name in ("checkpoints", "best", "generations", "hidden"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (NOTE, PHASES):
        (folder / name).unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Versions of what made the drafter."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def describe(
    options: Training,
    corpus: Corpus,
    target: Any,
    *,
    kind: str,
    run: Run,
    acceptance: Acceptance,
) -> dict[str, Any]:
    """Everything about the run, as JSON values."""
    return {
        "kind": f"headstart {kind}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": {
            "name": options.target,
            "architecture": target.config.architectures,
            "commit": getattr(target.config, "_commit_hash", None),
            "parameters": sum(p.numel() for p in target.parameters()),
            "weights_sha256": weights_sha256(str(options.target)),
        },
        "data": [{"path": f.path, "sha256": f.sha256, "documents": f.documents} for f in corpus.files],
        "options": options.record(),
        "versions": versions(),
        "steps": run.step,
        "tokens": run.tokens,
        "seconds": round(run.clock.seconds, 1),
        "phases": run.phases.record(),
        "read_with": None if run.student.states is None else run.student.states.read_with,
        "stopped_early": run.stopped or None,
        "heldout": acceptance.record(),
    }


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """Write the record under its name in one atomic move."""
    partial = folder / (FILE + ".partial")
    partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return partial.rename(folder / FILE)


def add_to_record(folder: Path, facts: dict[str, Any]) -> Path:
    """Add what was found out about a finished drafter to its record."""
    return write_record(folder, {**json.loads((folder / FILE).read_text(encoding="utf-8")), **facts})
