"""`verify_export`: start a vLLM with an export as it will be served, and show parity before anybody relies on it."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.export.manifest import CONFIG, read_manifest, read_values
from headstart.fleet.http import LOOPBACK, answers
from headstart.fleet.parity.plan import MAX_TOKENS, PROMPTS, Plan
from headstart.fleet.parity.reference import Reference
from headstart.fleet.parity.report import ParityReport
from headstart.fleet.parity.run import LEVEL, parity
from headstart.fleet.processes import Children
from headstart.fleet.vllm import Flag, Installation, environment, serve_command

START_SECONDS = 900.0
"""How long a server may take to start. On a slow machine importing vLLM alone takes minutes."""

Progress = Callable[[str, float], None]
"""Called with what is being done, and with the share of it that is done (0 while that is not known)."""


def verify_export(
    folder: Path,
    installation: Installation,
    *,
    prompts: Sequence[str | Sequence[int]] = PROMPTS,
    max_tokens: int = MAX_TOKENS,
    level: float = LEVEL,
    dtype: str | None = None,
    logs: Path | None = None,
    start_seconds: float = START_SECONDS,
    progress: Progress = lambda _what, _share: None,
) -> ParityReport:
    """Whether a vLLM that serves this export accepts of its drafts exactly what headstart accepts of them.

    Args:
        folder: what `headstart export --engine vllm` wrote.
        dtype: None takes the export's; "float32" compares number by number whatever will be served.
        logs: where the server's log is kept; None keeps none, and an error quotes its end.
        prompts, max_tokens, level: see `parity`.

    Raises:
        InvalidFile: the folder is no export for vLLM.
        UnsupportedModel: it speculates in a way that headstart has no equal of.
        ServerFailed: vLLM did not start; the error quotes the end of its log.
        others: see `parity`.
    """
    plan = read_plan(folder, dtype=dtype, device="cpu" if installation.cpu else "auto")
    flags: dict[str, Flag] = {"speculative_config": speculation_of(plan, folder), "dtype": plan.dtype}
    progress("loading the export in headstart", 0.0)
    reference = Reference(plan)
    with serving(
        installation, config=folder / CONFIG, model=plan.target, flags=flags, logs=logs,
        start_seconds=start_seconds, progress=progress,
    ) as url:  # fmt: skip
        return parity(
            url, reference, prompts=prompts, max_tokens=max_tokens, level=level,
            progress=lambda done, count: progress("comparing, prompt by prompt", done / count),
        )  # fmt: skip


def read_plan(folder: Path, *, dtype: str | None = None, device: str = "auto") -> Plan:
    """What an export serves, from its `manifest.json` and `vllm.yaml`; the drafter is the one that lies beside them.

    Raises: InvalidFile, InvalidOption, UnsupportedModel, as `verify_export`.
    """
    values, manifest = read_values(folder), read_manifest(folder)
    if not isinstance(values.get("speculative-config"), dict):
        raise InvalidFile(
            f"{folder} is no whole export for vLLM: 'speculative-config' is missing",
            hint="write the folder with: headstart export --engine vllm TARGET DRAFTER -o DIR",
        )
    speculation, target = dict(values["speculative-config"]), manifest.target
    if manifest.drafter.folder is not None:
        speculation["model"] = str(folder.absolute() / manifest.drafter.folder)
    return Plan.of_speculation(target.path or target.name, speculation, dtype=dtype or target.dtype, device=device)


def speculation_of(plan: Plan, folder: Path | None = None) -> dict[str, Any]:
    """The plan as vLLM's ``--speculative-config``; with an export's folder, the other settings of its file too."""
    found: dict[str, Any] = {}
    if folder is not None:
        found |= read_values(folder)["speculative-config"]
    found |= {"method": plan.kind, "num_speculative_tokens": found.get("num_speculative_tokens", plan.depth)}
    if plan.drafter is not None:
        found["model"] = str(plan.drafter)
    if plan.kind == "ngram":
        found["prompt_lookup_min"], found["prompt_lookup_max"] = plan.lookup
    if plan.parallel:
        found["parallel_drafting"] = True
    return found


@contextmanager
def serving(
    installation: Installation,
    *,
    config: Path | None = None,
    model: str | Path | None = None,
    logs: Path | None = None,
    start_seconds: float = START_SECONDS,
    progress: Progress = lambda _what, _share: None,
    flags: Mapping[str, Flag] | None = None,
) -> Iterator[str]:
    """The URL of one vLLM server on the loopback, which ends with the block. flags: see `serve_command`.

    Raises:
        ServerFailed: it ended, or was not ready in time.
    """
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    given = dict(flags or {})
    if installation.cpu:
        given.setdefault("enforce_eager", True)  # compiling for a dozen prompts takes longer than it saves
    command = serve_command(installation, config, model=model, port=port, flags=given)
    url = f"http://{LOOPBACK}:{port}"
    with tempfile.TemporaryDirectory() as kept, Children(logs or Path(kept)) as children:
        child = children.start("vllm", command, env=environment(installation))
        children.wait(
            [(child, lambda: answers(url, "/health"))],
            seconds=start_seconds,
            progress=lambda _child, seconds, _line: progress(f"starting vLLM, {seconds:.0f} s", 0.0),
        )
        yield url
