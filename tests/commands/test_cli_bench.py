"""`headstart bench` and `headstart bench compare`, as typed: options, results, errors, interrupts, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import bench_runs as made
from support.byte_models import save_model
from typer.testing import CliRunner, Result

import headstart
from headstart.base.errors import InvalidOption
from headstart.base.options import values_of
from headstart.commands.bench import bench
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.bench.options import BenchSettings, parse_lengths
from headstart.measure.bench.result import BenchResult
from headstart.measure.bench.session import Session
from headstart.measure.bench.summary import summarise
from headstart.types import Sampling

SHORT = ("--dtype=float32", "--pacing=fixed", "--repetitions=2", "--warm-up=1", "--max-tokens=8", "--ignore-eos")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("target"), nan=True))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("draft"), noise=0.02))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"question_id": 81, "category": "writing", "turns": ["abc", "second turn"]},
        {"question_id": 82, "category": "writing", "turns": ["hello"]},
        {"question_id": 83, "category": "maths", "turns": ["1 + 1"]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def invoke(*args: str) -> Result:
    return CliRunner().invoke(bench, list(args), env={"COLUMNS": "120"})


def run_bench(target: str, draft: str, *more: str) -> Result:
    return invoke("--target", target, "--drafter", draft, *SHORT, *more)


def test_a_bench_prints_and_writes_what_it_found(target: str, draft: str, prompts: Path, tmp_path: Path) -> None:
    json_file, page = tmp_path / "out" / "r.json", tmp_path / "r.html"
    result = run_bench(
        target, draft, "--prompts", str(prompts), "--k-sweep", "1,3", "--output", str(json_file), "--html", str(page)
    )
    assert result.exit_code == 0, result.output
    assert "tokens per target forward" in result.stdout.splitlines()[0]
    for words in ("overall", "writing", "maths", "6 of 6", "first token", "v(n)", "predicted"):
        assert words in result.stdout, words
    read = BenchResult.read(json_file)
    assert read.complete
    assert [prompt.name for prompt in read.prompts] == ["81", "82", "83"]
    assert read.settings["drafter"] == [draft]
    assert read.settings["prompts"] == str(prompts)
    assert summarise(read)[0].runs == 6
    assert len(read.sweep) == 3 * 3 * 2
    assert "second turn" not in json_file.read_text()
    assert "hello" not in json_file.read_text(), "prompts are not written unless asked"
    assert page.read_text().startswith("<!doctype html>")


def test_several_drafters_make_a_list(target: str, draft: str, prompts: Path, tmp_path: Path) -> None:
    result = run_bench(target, "ngram", "--drafter", draft, "--prompts", str(prompts), "-o", str(tmp_path / "r.json"))
    assert result.exit_code == 0, result.output
    assert BenchResult.read(tmp_path / "r.json").engine["drafter"].startswith("ngram + ")


def test_batches_and_texts(target: str, draft: str, prompts: Path, tmp_path: Path) -> None:
    options = ("--batch-size", "2", "--keep-texts", "--output", str(tmp_path / "r.json"))
    result = run_bench(target, draft, "--prompts", str(prompts), *options)
    assert result.exit_code == 0, result.output
    assert "up to 2 at a time" in result.stdout
    read = BenchResult.read(tmp_path / "r.json")
    assert read.units == ((0, 1), (2,))
    assert read.prompts[1].text == "hello"


def test_the_options_reach_load_and_the_session(monkeypatch: pytest.MonkeyPatch, prompts: Path) -> None:
    seen: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def load(*args: Any, **kwargs: Any) -> Any:
        seen["load"] = dict(zip(("target", "drafter"), args, strict=True)) | kwargs
        return "engine"

    def make(engine: Any, items: Any, settings: BenchSettings, asked: dict[str, Any]) -> Any:
        seen.update(engine=engine, items=items, settings=settings, asked=asked)
        raise Stop

    monkeypatch.setattr(headstart, "load", load, raising=False)
    monkeypatch.setattr("headstart.measure.bench.session.Session", make)
    words = f"-m T -d D --prompts {prompts} --split --limit 2 --batch-size 3 --k-sweep 1,2 -k 3 --tree top-k"
    assert isinstance(invoke(*words.split(), "--top-k", "5", "--repetition-penalty", "1.2").exception, Stop)
    given = {"num_speculative_tokens": 3, "draft_tree": "top-k", "max_batch_size": 3}
    defaults = values_of(TargetOptions()) | values_of(EngineOptions())
    assert seen["load"] == {"target": "T", "drafter": "D"} | defaults | given
    sampling = Sampling(max_tokens=128, top_k=5, repetition_penalty=1.2)
    assert seen["settings"] == BenchSettings(sampling, limit=2, batch_size=3, ks=(1, 2))
    assert seen["asked"] == {
        "target": "T", "drafter": ["D"], "prompts": str(prompts), "k": 3, "pacing": "adaptive", "tree": "top-k",
        "rule": "auto", "device": "auto", "dtype": "auto", "quantize": None, "max_length": None,
        "suffix_store": None, "split": True,
    }  # fmt: skip
    assert len(seen["items"]) == 3


# -- errors ----------------------------------------------------------------------------------------------------------


def test_other_targets_need_prompts() -> None:
    result = invoke("--target", "some-model")
    assert result.exit_code == 2
    assert "--prompts is missing" in result.stderr


def test_a_bad_line_of_the_prompts_is_named(target: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"turns": ["fine"]}\n{"turns": [}\n')
    result = invoke("--target", target, "--prompts", str(path))
    assert result.exit_code == 2
    assert "bad.jsonl, line 2: not JSON" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--k-sweep", "1,two"), "list of whole numbers"),
        (("--k-sweep", "0"), "out of range"),
        (("--repetitions", "0"), "out of range"),
        (("--temperature", "-1"), "out of range"),
        (("--output", "/"), "cannot write /"),
        (("--html", "/proc/none/page.html"), "cannot write /proc/none/page.html"),
    ],
)
def test_mistakes_are_said_before_anything_is_loaded(
    options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headstart, "load", None, raising=False)
    result = invoke(*options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_logits_that_are_not_finite(target: str, draft: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("N")
    result = run_bench(target, draft, "--prompts", str(tmp_path / "p.txt"))
    assert result.exit_code == 2
    assert "logits" in result.stderr


def test_an_interrupt_reports_what_was_finished(
    target: str, draft: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.run

    def run_a_little(self: Session) -> BenchResult:
        advance, calls = self.on_trial, []

        def count(words: str) -> None:
            advance(words)
            calls.append(words)
            if len(calls) == 2 + 6:
                raise KeyboardInterrupt

        self.on_trial = count
        return real(self)

    monkeypatch.setattr(Session, "run", run_a_little)
    result = run_bench(target, draft, "--prompts", str(prompts), "-o", str(tmp_path / "r.json"))
    assert result.exit_code == 130
    assert "interrupted" in result.stdout
    read = BenchResult.read(tmp_path / "r.json")
    assert not read.complete
    assert len(read.trials) == 6


def test_an_interrupt_before_anything_was_finished(
    target: str, draft: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Session) -> BenchResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "run", stop)
    result = run_bench(target, draft, "--prompts", str(prompts), "-o", str(tmp_path / "r.json"))
    assert result.exit_code == 130
    assert not (tmp_path / "r.json").exists()


def test_a_list_of_lengths() -> None:
    assert parse_lengths("1, 2,8") == (1, 2, 8)
    with pytest.raises(InvalidOption):
        parse_lengths("")


# -- compare ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    categories = {"code": 6, "prose": 6}
    results = {
        "before": made.noisy(0, categories=categories),
        "same": made.noisy(1, categories=categories),
        "slower": made.noisy(2, categories=categories, slower=1.3),
    }
    return {name: str(result.write(tmp_path / f"{name}.json")) for name, result in results.items()}


def test_a_regression_fails_if_asked(files: dict[str, str]) -> None:
    told = invoke("compare", files["before"], files["slower"])
    assert told.exit_code == 0, told.output
    assert "slower beyond noise" in told.stdout
    failed = invoke("compare", files["before"], files["slower"], "--fail-below", "95")
    assert failed.exit_code == 1
    assert "failed: overall" in failed.stdout
    assert invoke("compare", files["before"], files["slower"], "--fail-below", "40").exit_code == 0


def test_noise_does_not_fail(files: dict[str, str]) -> None:
    result = invoke("compare", files["before"], files["same"], "--fail-below", "100")
    assert result.exit_code == 0, result.output
    assert "no difference beyond noise" in result.stdout


@pytest.mark.parametrize("percent", ["0", "101", "-5"])
def test_a_share_that_is_none(files: dict[str, str], percent: str) -> None:
    assert invoke("compare", files["before"], files["same"], "--fail-below", percent).exit_code == 2


def test_a_file_of_another_kind_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"headstart_profile": 1}')
    result = invoke("compare", files["before"], str(tmp_path / "other.json"))
    assert result.exit_code == 2
    assert "not the result of a bench but of headstart profile" in result.stderr


def test_help_is_there() -> None:
    text = invoke("--help-all").output
    assert "compare" in text
    assert "--k-sweep" in text
    assert "alternates" in text, "the docstring explains the command"
