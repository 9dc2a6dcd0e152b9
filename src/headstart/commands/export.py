"""`headstart export`: a folder that runs a target and its drafter in vLLM, SGLang or llama.cpp."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.options import option
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.options import command
from headstart.commands.terminal import harmless, messages, output, stages, table_of
from headstart.fleet.export.options import ExportOptions

if TYPE_CHECKING:
    from headstart.fleet.export.manifest import Manifest

REQUIRED = inspect.Parameter.empty
_PROOF = "Proof"
_NOT_VERIFIED = 1


@command(
    "model drafter output engine prompts costs num-speculative-tokens max-model-len served-model-name cpu verify "
    "check-config vllm force"
)
def export(
    *,
    words: list[str] = cli.words(
        "MODEL DRAFTER", "The model and its drafter, as --model and --drafter take them.", most=1
    ),
    target: str | None = option(
        None,
        "The model that writes: a path, a Hugging Face hub id, or 'bundled' (a tiny model that writes Python); for "
        "llama.cpp a GGUF file.",
        "--model", "-m", "--target", metavar="MODEL", panel="Model",
    ),
    drafter: str | None = option(
        None,
        "What drafts: the path or hub id of an EAGLE-3 head, of Medusa heads or of a small model; 'ngram' or 'suffix'; "
        "with the bundled target also 'eagle3', 'medusa' and 'bundled'. For llama.cpp an EAGLE-3, DFlash or DSpark "
        "head.",
        "--drafter", "-d", "--draft-model", metavar="DRAFTER", panel="Model",
    ),
    out: Path = option(REQUIRED, "The folder to write.", "--output", "-o", metavar="DIR", panel="Output"),
    options: ExportOptions,
    force: bool = option(False, "Replace an existing export. Other files in its folder stay.", panel="Output"),
    check: bool = option(
        False, "Ask an installed vLLM whether it takes the configuration; no weights are loaded.", "--check-config",
        panel=_PROOF,
    ),
    verify: bool = option(
        False, "Start an installed vLLM with the export, and show that it accepts what headstart accepts, position by "
        "position. Greedy, in float32.", panel=_PROOF,
    ),
    vllm: Path | None = option(
        None, "Where vLLM is installed: an environment's folder or its python. Default: here, or on the PATH.",
        metavar="DIR", panel=_PROOF,
    ),
) -> None:  # fmt: skip
    """Write a folder that runs a target and its drafter in vLLM, SGLang or llama.cpp, with what was measured of it.

    Acceptance is measured here on your prompts, and K is chosen from it. What an engine would run wrongly without a
    message is refused. The folder holds the drafter, the engine's configuration, files for compose and clusters, alarms
    with tests, a dashboard and a README. For llama.cpp it holds the head as a GGUF file, and a script for llama-server.

    Exit codes: 0 written (and verified, with --verify), 1 written, but verification failed, 2 refused.

    **Examples**

        headstart export bundled eagle3 -o out
        headstart export my-model my-head -o out --prompts traffic.jsonl --costs costs.json --verify
        headstart export --engine sglang my-model my-head -o out
        headstart export --engine llama.cpp my-model.gguf my-head -o out
    """
    drafter = drafter or (words[0] if words else None)
    if target is None or drafter is None:
        raise InvalidOption("a model and its drafter are needed", hint="headstart export MODEL DRAFTER --output DIR")
    if (check or verify) and options.engine != "vllm":
        raise InvalidOption(f"--{'check-config' if check else 'verify'} is for vLLM", hint="leave it out")
    from headstart.fleet.vllm import find

    installation = find(vllm) if check or verify or vllm is not None else None
    with stages(messages(), "importing") as progress:
        from transformers.utils import logging

        from headstart.fleet.export.write import export as write

        logging.disable_progress_bar()
        manifest = write(
            target, drafter, out, options, force=force, installation=installation, check=check, progress=progress
        )
    _show(manifest, out, output(), messages())
    if verify and installation is not None:
        from headstart.fleet.export.check import verified
        from headstart.fleet.parity.report import render

        with stages(messages(), "starting vLLM") as progress:
            report = verified(out, manifest, installation, progress)
        output().print(render(report))
        if not report.passed:
            raise typer.Exit(_NOT_VERIFIED)


def _show(manifest: Manifest, out: Path, console: Console, notes: Console) -> None:
    expected = manifest.expected
    if expected is not None:
        table = table_of("position", "accepted", "95% interval", "tested", left=())
        for one in expected.by_position:
            share = "-" if one.value is None else f"{one.value:.0%}"
            table.add_row(str(one.position), share, f"{one.low:.0%} to {one.high:.0%}", str(one.tested))
        console.print(table)
        whole = expected.tokens_per_forward
        interval = "" if whole.low is None else f" ({whole.low:.2f} to {whole.high:.2f})"
        console.print(f"{whole.value:.2f} tokens per forward{interval}, K={manifest.depth}", soft_wrap=True)
    if manifest.off_from is not None:
        console.print(
            f"by these costs no draft pays from {counted(manifest.off_from, 'request')} at once", soft_wrap=True
        )
    for line in manifest.warnings:
        notes.print(Text.assemble(("warning: ", "bold yellow"), harmless(line)), soft_wrap=True)
    console.print(f"written  {out}", soft_wrap=True)
    scripts = {"sglang": "serve-sglang.sh", "llama.cpp": "serve-llama-server.sh"}
    script = scripts.get(manifest.engine)
    follow = f"headstart launch {out}" if script is None else str(out / script)
    console.print(f"next     {follow}", soft_wrap=True)
