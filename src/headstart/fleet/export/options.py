"""What `headstart export` takes beside target, drafter and folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_fields, described, option, strict
from headstart.fleet.export.manifest import EngineName
from headstart.fleet.settings import parse_settings
from headstart.loading.options import DTypeName

_OURS = ("model", "speculative-config", "revision", "dtype", "served-model-name", "max-model-len")

_draft = partial(option, panel="Draft length")
_engine = partial(option, panel="Engine")
_measure = partial(option, panel="Measurement")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How a target and its drafter are exported."""

    engine: EngineName = _engine("vllm", "Which engine is to run it.")
    dtype: str = _engine("auto", "Numbers that the target is served in: 'auto' is its checkpoint's.", kind=DTypeName)
    cpu: bool = _engine(False, "The engines run on processors, not on GPUs.")
    max_model_len: int | None = _engine(None, "The longest context that the engine is to hold, in tokens.", low=2)
    name: str | None = _engine(None, "The model's name for clients. Default: the target's own.")
    settings: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=described(
            "Another option of the engine by its long name, for example tensor-parallel-size=2.",
            "--set", metavar="KEY=VALUE", kind=list[str], parse=parse_settings, panel="Engine",
        ),
    )  # fmt: skip
    target_at: str | None = _engine(
        None, "Where the target will lie on the serving machine. Default: where it lies here.", metavar="DIR"
    )
    mount: str = _engine(
        "/models", "Where a cluster's volume is mounted that holds target/ and drafter/.", metavar="DIR"
    )
    num_speculative_tokens: int | None = _draft(
        None, "K, the tokens drafted per step. Default: by measured acceptance and --costs.", "--k", "-k", low=1,
        high=128,
    )  # fmt: skip
    costs: Path | None = _draft(
        None, "What steps cost on the machine that will serve: 'headstart doctor --json FILE' run there."
    )
    batch: int = _draft(1, "Requests that an engine decodes at once, for which K is chosen.", low=1)
    tpot_p99: float | None = _engine(
        None, "Seconds per output token whose P99 is an alarm. Default: one and a half times that of the day before.",
        metavar="S", above=0,
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
        None, "What acceptance is measured on: JSONL, a text file, or a directory. Default: a few lines of Python."
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
        if self.prompts is not None and not self.measure:
            raise InvalidOption("--prompts needs --measure", hint="leave one of them out")
