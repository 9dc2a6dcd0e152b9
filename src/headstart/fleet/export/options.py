"""What `headstart export` takes beside target, drafter and folder; also of an export that was written before.

`--set KEY=VALUE` names options of an engine that headstart has no option of its own for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.options import check_choice, check_fields, described, option, strict
from headstart.fleet.export.manifest import EngineName, read_manifest, read_values
from headstart.loading.options import DTypeName


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """The command line's KEY=VALUE, ... as a mapping; values are read as YAML.

    Raises:
        InvalidOption: a pair has no key or no value, or its value is no YAML.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().lstrip("-").replace("_", "-")
        hint = "for example --set max-num-seqs=64"
        if not equals or not name:
            raise InvalidOption(f"--set {pair!r} is not KEY=VALUE", hint=hint)
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InvalidOption(f"--set {pair!r}: the value cannot be read as YAML", hint=hint) from error
    return found


_OURS = ("model", "speculative-config", "revision", "dtype", "served-model-name", "max-model-len")
"""Keys of vllm.yaml that follow from other options."""

MOUNT = "/models"

_draft = partial(option, panel="Draft length")
_engine = partial(option, panel="Engine")
_measure = partial(option, panel="Measurement")


def settings_option(help: str, *, panel: str) -> Any:
    """The field of options behind `--set KEY=VALUE`, a mapping; see `parse_settings`."""
    details: dict[str, Any] = {"metavar": "KEY=VALUE", "kind": list[str], "parse": parse_settings, "panel": panel}
    return field(default_factory=dict, metadata=described(help, "--set", **details))


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How a target and its drafter are exported."""

    engine: EngineName = _engine("vllm", "Which engine is to run it.")
    dtype: str = _engine(
        "auto", "Numbers that the target is served in, or for llama.cpp the head is written in: 'auto' is the "
        "checkpoint's.", kind=DTypeName,
    )  # fmt: skip
    cpu: bool = _engine(False, "The engines run on processors, not on GPUs.")
    max_model_len: int | None = _engine(None, "The longest context of the engine.", metavar="TOKENS", low=2)
    name: str | None = _engine(None, "The model's name for clients. Default: the target's own.", "--served-model-name")
    settings: Mapping[str, Any] = settings_option(
        "Another option of the engine by its long name, for example tensor-parallel-size=2.", panel="Engine"
    )
    target_at: str | None = _engine(
        None, "The target's path on the serving machine. Default: its path here.", metavar="DIR"
    )
    mount: str = _engine(MOUNT, "Where a cluster's volume is mounted that holds target/ and drafter/.", metavar="DIR")
    num_speculative_tokens: int | None = _draft(
        None, "Tokens drafted per step (K). Default: by measured acceptance and --costs.",
        "--num-speculative-tokens", "-k", "--k", low=1, high=128,
    )  # fmt: skip
    costs: Path | None = _draft(
        None, "What steps cost on the machine that will serve: the file of 'headstart doctor --output FILE', run there."
    )
    batch: int = _draft(1, "Requests that an engine decodes at once, for which K is chosen.", low=1)
    tpot_p99: float | None = _engine(
        None, "Seconds per output token whose P99 is an alarm. Default: one and a half times that of the day before.",
        metavar="SECONDS", above=0,
    )  # fmt: skip
    dynamic: bool = _draft(
        False, "Experimental: let vLLM change K with the number of requests. Throughput can collapse at a threshold "
        "(vllm#49548).",
    )  # fmt: skip
    measure: bool = _measure(
        True, "Measure acceptance here, with headstart's own engine. Without it the folder promises nothing.",
        "--measure/--no-measure",
    )  # fmt: skip
    prompts: Path | None = _measure(
        None,
        "What acceptance is measured on: JSONL, a text file, or a directory. Default: a few lines of Python.",
        metavar="PATH",
    )
    limit: int = _measure(64, "Use the first N prompts.", low=1)
    max_tokens: int = _measure(96, "New tokens per prompt.", "-n", low=2)
    temperature: float = _measure(0.0, "0 is greedy.", "-T", low=0)

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("dtype", self.dtype, get_args(DTypeName))
        for name in self.settings:
            if name in _OURS:
                raise InvalidOption(
                    f"--set {name} is not yours to set", hint=f"{name} follows from the other options of the export"
                )
        for name, path in (("--target-at", self.target_at), ("--mount", self.mount)):
            if path is not None and not path.startswith("/"):
                raise InvalidOption(f"{name} {path!r} is relative", hint="give an absolute path")
        for name, given in (
            ("--mount", self.engine != "vllm" and self.mount != MOUNT),
            ("--tpot-p99", self.engine == "llama.cpp" and self.tpot_p99 is not None),
        ):
            if given:
                raise InvalidOption(
                    f"an export for {self.engine} has no file that {name} could be written to", hint="leave it out"
                )
        if self.prompts is not None and not self.measure:
            raise InvalidOption("--prompts needs --measure", hint="leave one of them out")


def same_options(folder: Path) -> ExportOptions:
    """The options of an export for vLLM: what clients and its fleet rely on stays as it is. K that changes with the
    number of requests, and the files for clusters, are not made again.

    Raises:
        InvalidFile: it is no export, or for another engine.
    """
    manifest = read_manifest(folder)
    found, target = manifest.expected, manifest.target
    try:
        values = read_values(folder)
        name, speculation = values["served-model-name"], values["speculative-config"]
        # A temperature above 0 also says that drafts are drawn
        measured: dict[str, Any] = (
            {"temperature": float(speculation.get("draft_sample_method") == "probabilistic")}
            if found is None
            else {"temperature": found.temperature, "max_tokens": found.max_tokens}
        )
    except (InvalidFile, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{folder} is no export for vLLM that can be written again: {error}",
            hint="export the new drafter yourself, with `headstart export`",
        ) from error
    return ExportOptions(
        engine=manifest.engine,
        dtype=target.dtype,
        name=name,
        max_model_len=values.get("max-model-len"),
        settings={key: value for key, value in values.items() if key not in _OURS},
        target_at=None if target.path in (None, target.name) else target.name,
        num_speculative_tokens=manifest.depth,
        measure=found is not None,
        **measured,
    )
