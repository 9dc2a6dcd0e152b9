"""Which engines take part in benchmarks/peers.py, in which modes, and with which settings to choose from."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).parent / "peer_workers"
ENGINES = ("headstart", "transformers", "vllm", "openvino", "llamacpp")
OURS = "headstart"
LABELS = {"vllm": "vLLM", "openvino": "OpenVINO", "llamacpp": "llama.cpp"}
MODES = {
    "plain": "plain",
    "draft": "draft LM",
    "ngram": "n-gram",
    "head": "EAGLE-3",
    "list": "n-gram, then draft LM",
    "trees": "n-gram, then draft LM trees",
    "heads": "n-gram, then EAGLE-3",
}
OWN = ("list", "trees", "heads")
"""Modes that headstart alone has."""
WITH_DRAFT = ("draft", "list", "trees")
WITH_HEAD = ("head", "heads")
TREES = {6: 3, 12: 4}
"""Depths of the trees that OpenVINO may draft with a head, by the number of their nodes; each node has up to four
children."""
DEPTHS = (3, 5, 8)


class Absent(Exception):
    """Why something cannot take part; a path in the reason is cut to its name."""

    def __init__(self, reason: str) -> None:
        super().__init__(re.sub(r"(?<![\w.])(?:/[^/\s'\":,]+)+/([^/\s'\":,]+)", r"\1", reason))


@dataclass(frozen=True)
class Configuration:
    """One engine with one setting. `batched`: more than one prompt at a time is possible."""

    engine: str
    precision: str
    mode: str
    batched: bool = True
    settings: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def role(self) -> tuple[str, str, str]:
        """Configurations with the same role are settings to choose from."""
        return self.engine, self.precision, self.mode

    @property
    def label(self) -> str:
        return role_label(self.role)

    @property
    def choice(self) -> str:
        """The settings, for a reader."""
        shown = {"k": "K", "draft_precision": "draft", "whole_rows": "scale for each row", "tree_depth": "tree's depth"}
        return ", ".join(f"{shown.get(k, k)}={'its own' if v is None else v}" for k, v in self.settings)

    def __str__(self) -> str:
        return f"{self.label} ({self.choice})" if self.settings else self.label


def role_label(role: tuple[str, str, str]) -> str:
    engine, precision, mode = role
    return f"{LABELS.get(engine, engine)} {precision}, {MODES[mode]}"


def all_configurations(
    engines: Sequence[str] = ENGINES, depths: Sequence[int] = DEPTHS, without: Sequence[str] = ()
) -> list[Configuration]:
    """without: modes that take no part, since what they draft with is not given."""
    found = (c for engine in ENGINES if engine in engines for c in _of_engine(engine, depths))
    return [configuration for configuration in found if configuration.mode not in without]


def _of_engine(engine: str, depths: Sequence[int]) -> Iterator[Configuration]:
    modes = tuple(mode for mode in MODES if engine == OURS or mode not in OWN)
    if engine not in (OURS, "openvino"):
        modes = tuple(mode for mode in modes if mode not in WITH_HEAD)
    precisions = ("bf16",) if engine in ("transformers", "vllm") else ("bf16", "int8")
    one_by_one = engine in ("transformers", "llamacpp")  # these speculate for one sequence at a time
    for precision, mode in product(precisions, modes):
        choices: dict[str, Sequence[Any]] = {}
        if mode != "plain":
            choices["k"] = (None,) if engine == OURS else tuple(depths)  # headstart paces itself
        if mode == "draft" and precision == "bf16" and engine in ("openvino", "llamacpp"):
            choices["draft_precision"] = ("bf16", "int8")  # headstart may quantise a draft, so these may too
        if mode == "head" and engine == "openvino":
            choices["k"] = (*depths, *TREES)
        if engine == "openvino" and precision == "int8":
            choices["whole_rows"] = (False, True)
        batched = mode == "plain" or not one_by_one
        for values in product(*choices.values()):
            settings = dict(zip(choices, values, strict=True))
            if mode == "head" and settings["k"] in TREES:
                settings["tree_depth"] = TREES[settings["k"]]
            yield Configuration(engine, precision, mode, batched, tuple(settings.items()))


@dataclass(frozen=True)
class Places:
    """Where things are: checkpoints, one environment for each peer, and what was converted for a peer."""

    target: Path
    drafter: Path | None
    environments: Path
    converted: Path
    workers: Path = WORKERS
    eagle: Path | None = None

    def python(self, engine: str) -> Path:
        if engine in ("headstart", "transformers"):
            return Path(sys.executable)
        python = self.environments / engine / "bin" / "python"
        if not python.exists():
            raise Absent(f"no environment {engine!r} under --environments (see benchmarks/peer_workers/README.md)")
        return python

    def script(self, engine: str) -> Path:
        return self.workers / f"run_{engine}.py"

    def checkpoint(self, engine: str, source: Path, precision: str, *, head: bool = False) -> Path:
        """The checkpoint in the engine's own format; made where it is missing. head: it is an EAGLE-3 head."""
        if engine not in ("openvino", "llamacpp"):
            return source
        suffix = ".gguf" if engine == "llamacpp" else ""
        path = self.converted / f"{source.name}-{fingerprint(source)}-{engine}-{precision}{suffix}"
        if not path.exists():
            script = self.workers / ("to_gguf.py" if engine == "llamacpp" else "to_openvino.py")
            partial = path.with_name("partial-" + path.name)
            self.converted.mkdir(parents=True, exist_ok=True)
            command = [self.python(engine), script, source, partial, "--precision", precision, *["--head"] * head]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace")
            if done.returncode:
                raise Absent(f"{script.name} failed: {last_line(done.stderr)}")
            partial.rename(path)
        return path


def fingerprint(source: Path) -> str:
    """Of a checkpoint, without reading its weights: names, sizes and times of its files."""
    files = sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in source.iterdir() if p.is_file())
    return hashlib.sha256(repr(files).encode()).hexdigest()[:8]


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
