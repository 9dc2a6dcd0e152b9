"""Files that a command will write, checked before it measures anything: an hour's work must not end unwritten."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import InvalidOption


def check_outputs(results: Path | None, page: Path | None) -> None:
    """Could both be written, and is there what a page needs? Folders that are not there are made.

    Raises:
        InvalidOption: no, and why.
    """
    for path in (results, page):
        if path is None:
            continue
        new = not path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()
        except OSError as error:
            hint = "name a file in a folder that you may write to"
            raise InvalidOption(f"cannot write {path}: {error.strerror}", hint=hint) from error
        if new:
            path.unlink()
    if page is not None:
        from headstart.insight.report.extra import require_report

        require_report()
