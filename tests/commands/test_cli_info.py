"""`headstart info`: what it prints, in 80 columns, as JSON, and for a model that is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import gguf_files
from support.tiny import random_model
from typer.testing import CliRunner, Result

from headstart.base import levels, machine
from headstart.commands.cli import app
from headstart.model import native
from headstart.model.threads import default_threads


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["info", *map(str, words), "--device", "cpu", "--dtype", "float32"])


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    return " ".join(result.stdout.split())


def test_a_model(tiny: Callable[..., str]) -> None:
    text = printed(run(tiny("gemma3"), "--context", 64, "--slots", 2))
    assert "gemma3_text (Gemma3ForCausalLM)" in text
    assert "layers 2 x window 7, 2 x full attention" in text
    assert "norms RMS norm (gain + 1) before attention, after attention, before the MLP and after the MLP" in text
    assert "angles of sliding_attention (2 x window 7)" in text
    assert "runs on tensor operations on cpu, because the row kernels do not run it" in text
    assert "2 slots x 32 KiB of cache for 64 tokens" in text
    assert "early-exit: its first layers, of 4" in text
    assert "auto takes suffix + ngram" in text


def test_a_model_without_a_recipe(tiny: Callable[..., str]) -> None:
    text = printed(run(tiny("persimmon")))
    assert "runs on transformers' modules on cpu, because headstart's own decoder does not know" in text
    assert "early-exit: not here: a forward of headstart's own is needed" in text
    assert "int4: not here: headstart's own decoder does not know" in text


def test_a_gguf_file(tmp_path: Path) -> None:
    text = printed(run(gguf_files.write(tmp_path / "model.gguf", random_model("qwen3"))))
    assert "of GGUF (F32)" in text
    assert "runs on row kernels on cpu" in text
    assert "for the rows of a forward =" in text


def test_as_json(tiny: Callable[..., str]) -> None:
    result = run(tiny("llama"), "--json", "--context", 64)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["model_type"], found["decoder"], found["context"]) == ("llama", "fused", 64)
    assert found["kinds"][0]["count"] == 4
    assert found["needed"] == found["formats"][0]["weights"] + found["slots"] * found["cache"] + found["rows"]
    assert found["rows"] > 0
    assert {"name": "ngram", "fits": True, "why": "guesses from text"} in found["drafters"]


def test_without_a_model() -> None:
    """What the kernels of this process run on, and that it is among what the processor has."""
    text, here, cores = printed(run()), native.here(), default_threads()
    assert f"processor {machine.cpu_name()}: {', '.join(here.levels)}" in text
    assert f"threads {cores.threads}: {cores.why}" in text
    said = json.loads(run("--json").stdout)
    assert said["threads"] == {"threads": cores.threads, "why": cores.why}
    found = said["kernels"]
    assert found["levels"] == list(here.levels)
    if here.level is None:
        assert f"kernels none: {here.why}" in text
    else:
        made = "prebuilt, in the package" if here.prebuilt else "compiled on this machine"
        assert f"kernels of the level {here.level}; {made}" in text
        assert found["level"] in found["levels"]


def test_a_level_that_is_not_here(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for words in ((), (tiny("llama"),)):
        other = "avx2" if levels.architecture() == "aarch64" else "neon"
        result = run(*words, "--cpu-level", other)
        assert result.exit_code == 2
        assert f"the level '{other}' is of another architecture" in result.stderr
        assert f"hint: here there are: {', '.join(native.here().levels)}" in result.stderr
    assert levels.forced() is None, "nothing was changed"


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
def test_a_level_that_comes_too_late() -> None:
    """The kernels of a process are of one level."""
    if native.here().level == "generic":
        pytest.skip("there is no other level here")
    result = run("--cpu-level", "generic")
    assert result.exit_code == 2
    assert f"this process runs kernels of the level '{native.here().level}'" in result.stderr


@pytest.fixture
def refused(tiny: Callable[..., str], tmp_path: Path) -> Path:
    path = tmp_path / "model"
    shutil.copytree(tiny("llama"), path)
    config: dict[str, Any] = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    return path


def test_a_refused_model(refused: Path) -> None:
    result = run(refused)
    assert result.exit_code == 1
    assert "error: mamba has layers of kind linear_attention, whose state transformers' modules cannot" in result.stderr
    assert "hint: choose a model with softmax attention" in result.stderr
    assert "Traceback" not in result.stderr
    as_json = run(refused, "--json")
    assert as_json.exit_code == 1
    found = json.loads(as_json.stdout)["refused"]
    assert found["type"] == "UnsupportedModel"
    assert found["hint"].startswith("choose a model")


def test_a_damaged_folder(refused: Path) -> None:
    (refused / "model.safetensors").write_bytes(b"\xff" * 100)
    result = run(refused)
    assert result.exit_code == 1
    assert "the weights of" in result.stderr
    (refused / "config.json").write_text("{")
    assert "is not valid JSON" in run(refused).stderr


@pytest.mark.parametrize("name", ["someone/does-not-exist", "./no/such/folder", "no.gguf"])
def test_a_model_that_does_not_exist(name: str) -> None:
    result = run(name)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "hint: " in result.stderr


def test_a_context_that_is_too_long(tiny: Callable[..., str]) -> None:
    result = run(tiny("llama"), "--context", 100_000)
    assert result.exit_code == 2
    assert "above the 128 positions" in result.stderr
