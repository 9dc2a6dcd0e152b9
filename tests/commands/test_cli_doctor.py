"""`headstart doctor` on tiny models, and on the bundled pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from support.byte_models import save_model
from typer.testing import CliRunner, Result

from headstart.commands.doctor import doctor

PROMPTS = '{"prompt": "abcabcabc"}\n{"prompt": "def f(x):"}\n'


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("target"), layers=4))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    file.write_text(PROMPTS)
    return str(file)


def run(*args: str) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(args))


def small(target: str, prompts: str, *args: str) -> Result:
    common = ("--target", target, "--prompts", prompts, "--dtype", "float32", "--max-tokens", "16", "--ignore-eos")
    return run(*common, "--max-length", "96", "--max-batch-size", "2", "--seconds", "2", "--no-keep", *args)


def test_it_says_how_long_it_takes_and_that_it_was_stopped(
    target: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headstart.measure.doctor.examination.examine", stopped)
    result = small(target, prompts)
    assert isinstance(result.exception, KeyboardInterrupt) or result.exit_code == 130
    assert "This takes about 2 seconds, after the model is loaded" in result.stderr
    assert "stopped: there is no verdict yet" in result.stderr


def test_the_summary_and_the_files(target: str, prompts: str, tmp_path: Path) -> None:
    result = small(
        target, prompts, "--drafter", "/no/such/draft", "--output", str(tmp_path / "a.json"), "--html",
        str(tmp_path / "a.html"), "--measure-all",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "memory-bound" in result.stdout or "compute-bound" in result.stdout or "between" in result.stdout
    assert "/no/such/draft: not measured: ModelNotFound" in result.stdout
    assert "hs.load(" in result.stdout
    assert "headstart generate --model" in result.stdout
    assert result.stdout.count("x was predicted") or "do not use" in result.stdout or "next to nothing" in result.stdout
    assert "Kept" not in result.stdout
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["verdict"]["kind"] in ("good", "unsure", "bad")
    assert written["verdict"]["headline"] in result.stdout
    page = (tmp_path / "a.html").read_text()
    assert "Will speculation help? (" in page
    assert "ModelNotFound" in page


def test_the_table_for_documents(target: str, prompts: str) -> None:
    result = small(target, prompts, "--measure-all", "--markdown")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("| drafter | tokens/forward predicted | measured |")
    assert any(line.startswith("| ngram |") for line in lines)


def test_what_is_scanned(target: str, prompts: str, tmp_path: Path) -> None:
    save_model(tmp_path / "small", layers=1)
    save_model(tmp_path / "large", layers=4)
    result = small(target, prompts, "--scan", str(tmp_path), "--output", str(tmp_path / "a.json"))
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "a.json").read_text())
    found = [each["drafters"] for each in written["candidates"] if each["origin"] == "found"]
    assert found == [[str(tmp_path / "small")]]
    assert "of the target's weights" in written["passed_over"][str(tmp_path / "large")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--target", "/no/such/model"], "/no/such/model"),
        (["--prompts", "/no/such/file"], "cannot read /no/such/file"),
        (["--scan", "/no/such/directory"], "there is no such directory"),
        (["--drafter", "auto"], "no drafter to look at"),
        (["--seconds", "0"], "--seconds=0"),
        (["--max-tokens", "1"], "--max-tokens=1"),
        (["--output", "/proc/none/a.json"], "cannot write"),
        (["--markdown", "--no-measure"], "--markdown and --no-measure exclude each other"),
        (["--measure-all", "--no-measure"], "--measure-all and --no-measure exclude each other"),
        (["--temperature", "-1"], "temperature=-1"),
    ],
)
def test_bad_input_is_an_error_with_a_hint(target: str, prompts: str, args: list[str], message: str) -> None:
    result = small(target, prompts, *args)
    assert result.exit_code == 2, result.output
    assert any(line.startswith("error: ") for line in result.stderr.splitlines())
    assert message in result.stderr
    assert "\nhint: " in result.stderr


def test_the_bundled_pair(tmp_path: Path) -> None:
    result = run("--seconds", "4", "--max-tokens", "24", "--output", str(tmp_path / "a.json"), "--temperature", "0.8")
    assert result.exit_code == 0, result.output
    assert "sample prompts" in result.stdout
    written = json.loads((tmp_path / "a.json").read_text())
    names = [each["drafters"] for each in written["candidates"]]
    assert names[:6] == [["bundled"], ["medusa"], ["eagle3"], ["ngram"], ["suffix"], ["early-exit"]]
    assert written["candidates"][0]["tokenizer"]["how"] == "same"
    assert any("best" in each for each in written["candidates"])
    assert any("measured" in each for each in written["candidates"])
    assert written["advice"] is None, "the bundled target has its recommendation"


def test_it_says_how_long_it_takes() -> None:
    from headstart.commands.doctor import _duration
    from headstart.measure.doctor.options import DoctorOptions

    assert _duration(DoctorOptions(measure=False)) == "This takes about 60 seconds, after the model is loaded."
    assert "about 30 seconds" in _duration(DoctorOptions(seconds=30))
    assert "about as long for the best three" in _duration(DoctorOptions())
    assert "each drafter is measured" in _duration(DoctorOptions(measure_all=True))
