"""The page of the results files: each with its day, commit, processor and command, and the documents that name it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"

HEAD = """# Results files

Every file holds all runs of a measurement, with the command, the commit and the versions that made it.
This page is made of these facts. [Figures](../../docs/figures.md) explains what was measured, and names the figures
that have no file.

| File | Day | Commit | Processor | Command | Named by |
|---|---|---|---|---|---|
"""


def facts(path: Path) -> dict[str, str]:
    """What a results file says of itself; empty where it does not."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    told = found.get("provenance") if isinstance(found.get("provenance"), dict) else found
    made = str(told.get("date") or told.get("made") or "")
    commit = str(told.get("commit") or "") or "".join(re.findall(r"commit (\w+)", made))
    return {
        "day": made[:10],
        "commit": commit.replace(" with uncommitted changes", " and changes"),
        "machine": str(told.get("cpu") or told.get("machine") or "").partition(",")[0],
        "command": " ".join(str(told.get("command") or "").split()),
    }


def named_by(name: str) -> list[str]:
    """The documents that link to a file, relative to the repository."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return [str(page.relative_to(ROOT)) for page in sorted(pages) if name in page.read_text(encoding="utf-8")]


def index() -> str:
    """The page."""
    return HEAD + "".join(_row(path) for path in sorted(RESULTS.glob("*.json")))


def _row(path: Path) -> str:
    told = facts(path)
    command = told["command"].replace("|", "\\|").replace("`", "")
    shown = command if len(command) <= 160 else f"{command[:157]}..."
    pages = ", ".join(f"[{Path(page).stem}](../../{page})" for page in named_by(path.name))
    file, command = f"[{path.stem}]({path.name})", f"`{shown}`" if shown else ""
    cells = [file, told["day"], told["commit"], told["machine"], command, pages]
    return f"| {' | '.join(cells)} |\n"
