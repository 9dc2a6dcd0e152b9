"""An export as something to start: what `headstart launch` takes beside it, and what differs on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.fleet.export.manifest import CONFIG, NAME, Manifest, read_manifest, read_values
from headstart.fleet.export.options import settings_option
from headstart.fleet.http import LOOPBACK
from headstart.fleet.vllm import Flag

RouterName = Literal["vllm-router", "none"]

_OURS = ("config", "host", "model", "port", "data-parallel-size", "tensor-parallel-size")

_engine = partial(option, panel="Engines")
_router = partial(option, panel="Router")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How a fleet is started and kept."""

    engines: int = _engine(2, "Engines to start, each with its own copy of the weights.", low=1, high=64)
    tensor_parallel_size: int | None = _engine(
        None, "Ranks among which each engine divides its weights. Default: what the export says, else 1.",
        "--tensor-parallel-size", "--tp", low=1,
    )  # fmt: skip
    data_parallel_size: int | None = _engine(
        None, "Copies of the weights inside each engine. Default: what the export says, else 1.",
        "--data-parallel-size", "--dp", low=1,
    )  # fmt: skip
    settings: Mapping[str, Any] = settings_option(
        "Another option of vLLM by its long name, for example max-num-seqs=64; it wins over the export's.",
        panel="Engines",
    )
    timeout: float = _engine(
        900.0, "Seconds to wait until the engines are ready; large weights take minutes to load.", metavar="SECONDS",
        above=0,
    )  # fmt: skip
    restart: bool = _engine(False, "Restart an engine that died, a few times, after a longer pause each time.")
    repair: bool = _engine(
        True, "On a CPU, load the repair of sampled text under speculation (vllm#55005) into each engine. It acts only "
        "on the known fault.", "--repair/--no-repair",
    )  # fmt: skip
    logs: Path | None = _engine(None, "The folder of the logs. Default: logs/ in the export.", metavar="DIR")
    router: RouterName = _router(
        "vllm-router", "What divides the requests among the engines; 'none' leaves that to the clients."
    )
    policy: str = _router("round_robin", "How vllm-router chooses an engine.")
    host: str = _router(LOOPBACK, "The address to listen on. The engines listen on the loopback in any case.")
    port: int = _router(
        8000, "The router's port; the engines take free ones after it. Without a router it is the first engine's.",
        low=1, high=65535,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)
        if self.router == "none" and self.host != LOOPBACK:
            raise InvalidOption("--host is the router's address", hint="leave it out, or use a router")
        for name in self.settings:
            if name in _OURS:
                raise InvalidOption(f"--set {name} is not yours to set", hint=f"see --{name}, or write another export")


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine is started with.

    folder: the export. config: its vllm.yaml. name: the model's name for clients. target: its folder here, or its hub
    id. model: how it is named to vLLM where the file names another. drafter: its folder here, or None where nothing is
    loaded. flags: options of `vllm serve` that win over the file. tensor, data: the numbers of ranks. length: the
    longest context, if it is set. manifest: the export's, if it has one.
    """

    folder: Path
    config: Path
    name: str
    target: str
    model: str | None
    drafter: Path | None
    flags: Mapping[str, Flag]
    tensor: int
    data: int
    length: int | None
    manifest: Manifest | None

    @property
    def ranks(self) -> int:
        """Worker processes of one engine: each needs processors, or a GPU, of its own."""
        return self.tensor * self.data


def read_export(folder: Path, options: LaunchOptions) -> Served:
    """An export, checked as far as it can be before anything is started.

    An export that has moved, or was written for another machine, is started with the drafter that lies beside it.

    Raises:
        InvalidFile: the folder is no export for vLLM, or is damaged.
        InvalidOption: the target, or the drafter, cannot be divided among so many ranks.
    """
    folder = folder.absolute()
    values = read_values(folder)
    model = values.get("model")
    if not isinstance(model, str):
        raise InvalidFile(f"{folder / CONFIG} names no model", hint="write the folder again with `headstart export`")
    manifest = read_manifest(folder) if (folder / NAME).exists() else None
    there = None if manifest is None else manifest.target.path
    target = model if there is None or Path(model).exists() or not Path(there).exists() else there
    flags: dict[str, Flag] = {name.replace("-", "_"): value for name, value in options.settings.items()}
    speculation = dict(values.get("speculative-config") or {})
    drafter = _drafter_here(speculation.get("model"), folder)
    if drafter is not None and str(drafter) != speculation["model"]:
        flags.setdefault("speculative_config", speculation | {"model": str(drafter)})
    tensor = options.tensor_parallel_size or int(values.get("tensor-parallel-size", 1))
    data = options.data_parallel_size or int(values.get("data-parallel-size", 1))
    flags |= {"tensor_parallel_size": tensor, "data_parallel_size": data}
    if tensor > 1:
        _check_heads("target", Path(target), tensor)
        if drafter is not None and speculation.get("draft_tensor_parallel_size") != 1:
            _check_heads("drafter", drafter, tensor)
    name = values.get("served-model-name", model)
    length = flags.get("max_model_len", values.get("max-model-len"))
    return Served(
        folder, folder / CONFIG, name if isinstance(name, str) else name[0], target,
        None if target == model else target, drafter, flags, tensor, data,
        length if isinstance(length, int) else None, manifest,
    )  # fmt: skip


def _drafter_here(model: object, folder: Path) -> Path | None:
    """The drafter's folder: as the file says, or the one beside it; None for a hub id, or where nothing is loaded."""
    if not isinstance(model, str):
        return None
    for candidate in (Path(model), folder / "drafter"):
        if (candidate / "config.json").is_file():
            return candidate
    return None


def _check_heads(what: str, folder: Path, ranks: int) -> None:
    """Whether attention heads can be divided: vLLM's workers would end with an assertion instead of an explanation."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # a hub id: vLLM reads it
    heads = config.get("num_attention_heads")
    keys = config.get("num_key_value_heads", heads)
    for name, count in (("num_attention_heads", heads), ("num_key_value_heads", keys)):
        if not isinstance(count, int):
            continue
        copied = name == "num_key_value_heads" and ranks > count and ranks % count == 0
        if count % ranks and not copied:
            fitting = [n for n in range(1, count + 1) if count % n == 0 and (heads or count) % n == 0]
            raise InvalidOption(
                f"{ranks} ranks cannot share the {what}'s heads: {name} is {count}",
                hint=f"--tensor-parallel-size is one of {', '.join(map(str, fitting))} for it; "
                "or use --data-parallel-size, or more --engines",
            )
