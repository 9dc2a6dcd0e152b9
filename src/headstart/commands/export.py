"""`headstart export`: a folder that runs a target and its drafter in vLLM or SGLang."""

from __future__ import annotations

import inspect
from pathlib import Path

from rich.progress import TimeElapsedColumn

from headstart.commands.options import command
from headstart.commands.terminal import harmless, messages, output, progress_bar
from headstart.options import option
from headstart.scale.export.options import ExportOptions

REQUIRED = inspect.Parameter.empty


@command
def export(
    *,
    target: str = option(
        REQUIRED,
        "The model that writes: a path, a Hugging Face hub id, or 'bundled' (a tiny model that writes Python).",
        metavar="TARGET",
        positional=True,
    ),
    drafter: str = option(
        REQUIRED,
        "What drafts: the path or hub id of an EAGLE-3 head, of Medusa heads or of a small model; 'ngram' or 'suffix'; "
        "with the bundled target also 'eagle3', 'medusa' and 'bundled'.",
        metavar="DRAFTER",
        positional=True,
    ),
    out: Path = option(REQUIRED, "The folder to write.", "--output", "-o", metavar="DIR"),
    options: ExportOptions,
    force: bool = option(False, "Replace an export that is there."),
) -> None:
    """Write a folder that runs a target and its drafter in vLLM or SGLang."""
    with progress_bar(messages(), TimeElapsedColumn(), refresh_per_second=2) as bar:
        task = bar.add_task("importing", total=1.0)
        from headstart.scale.export.write import export as write

        write(
            target, drafter, out, options, force=force,
            progress=lambda what, share: bar.update(task, description=harmless(what), completed=share),
        )  # fmt: skip
    output().print(f"{out}: written", soft_wrap=True)
