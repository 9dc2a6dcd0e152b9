"""Where a trained drafter came from: written beside its weights, so that the question never comes up."""

from __future__ import annotations

import hashlib
import json
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headstart.train.acceptance import Acceptance
from headstart.train.options import Training
from headstart.train.run import Run
from headstart.train.sources import Corpus

FILE = "provenance.json"
LIBRARIES = ("headstart", "torch", "transformers", "tokenizers", "safetensors")


def versions() -> dict[str, str]:
    """Versions of what made the drafter."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def weights_sha256(source: str) -> dict[str, str]:
    """Hash of each weight file, for a target in a local directory; empty for a hub id (its commit is in the config)."""
    return {p.name: _sha256(p) for p in sorted(Path(source).glob("*.safetensors"))}


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


def write(folder: Path, record: dict[str, Any]) -> Path:
    """Write the record under its name in one atomic move."""
    partial = folder / (FILE + ".partial")
    partial.write_text(json.dumps(record, indent=2) + "\n")
    return partial.rename(folder / FILE)


def add(folder: Path, facts: dict[str, Any]) -> Path:
    """Add what was found out about a finished drafter to its record."""
    return write(folder, {**json.loads((folder / FILE).read_text()), **facts})


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
