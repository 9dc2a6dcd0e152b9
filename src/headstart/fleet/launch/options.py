"""What `headstart launch` takes beside the export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, described, option, strict
from headstart.fleet.loopback import LOOPBACK
from headstart.fleet.settings import parse_settings

RouterName = Literal["vllm-router", "none"]

_OURS = ("config", "host", "model", "port", "data-parallel-size", "tensor-parallel-size")

_engine = partial(option, panel="Engines")
_router = partial(option, panel="Router")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How a fleet is started and kept."""

    engines: int = _engine(2, "Engines to start, each with its own copy of the weights.", "-n", low=1, high=64)
    tensor_parallel_size: int | None = _engine(
        None, "Ranks among which each engine divides its weights. Default: what the export says, else 1.",
        "--tensor-parallel-size", "--tp", low=1,
    )  # fmt: skip
    data_parallel_size: int | None = _engine(
        None, "Copies of the weights inside each engine. Default: what the export says, else 1.",
        "--data-parallel-size", "--dp", low=1,
    )  # fmt: skip
    settings: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=described(
            "Another option of vLLM by its long name, for example max-num-seqs=64; it wins over the export's.",
            "--set", metavar="KEY=VALUE", kind=list[str], parse=parse_settings, panel="Engines",
        ),
    )  # fmt: skip
    timeout: float = _engine(
        900.0, "Seconds to wait until the engines are ready; large weights take minutes to load.", metavar="S", above=0
    )
    restart: bool = _engine(False, "Start an engine that died again, a few times and each time after a longer pause.")
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
