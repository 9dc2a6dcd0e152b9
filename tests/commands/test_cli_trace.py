"""`headstart trace`, and the recording by `headstart generate --trace`: terminal, JSON, page, and what is refused."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from support import traces
from typer.testing import CliRunner, Result

from headstart.commands.cli import app
from headstart.engine.trace import read_trace

PROMPTS = ("def add(a, b):", "class Point:\n    def __init__(self")


def run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "100"})


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sampled request of the bundled pair."""
    path = tmp_path_factory.mktemp("one") / "run.jsonl"
    options = "-n 30 -T 0.8 --seed 4 --rule exact --pacing fixed -k 4 -d bundled --dtype float32 --trace"
    result = run("generate", PROMPTS[0], *options.split(), str(path))
    assert result.exit_code == 0, result.stderr
    assert f"headstart trace {path}" in result.stderr.replace("\n", "")
    assert "recorded" not in result.stdout, "standard output has the text alone"
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two greedy ones in a batch."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    options = (
        f"--prompts {folder / 'prompts.jsonl'} -n 20 --pacing fixed -k 4 -d bundled --trace {folder / 'run.jsonl'}"
    )
    assert run("generate", *options.split()).exit_code == 0
    return folder / "run.jsonl"


def words(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def test_one_request_is_told_in_full(one: Path) -> None:
    (request,) = read_trace(one).requests
    assert request.end is not None
    shown = words(run("trace", str(one)))
    for text in (" ".join(request.end.text.split()), "tokens per forward", "Acceptance by depth", "K=4, fixed"):
        assert text in shown
    assert "temperature 0.8" in shown


def test_drafting_ahead_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(traces.text(traces.ahead()))
    shown = words(run("trace", str(path)))
    assert "1 of 2 drafts ready: 50%; waited 0.3 ms for one that was, 3.3 ms for one that was not" in shown
    assert "ready after accepting 2: 100% · 3: 0%" in shown
    found = json.loads(run("trace", str(path), "--json").stdout)["requests"][0]["ahead"]
    assert (found["drafts"], found["hits"], found["misses"], found["waits"]) == (3, 1, 1, 1)


def test_several_are_compared_and_one_can_be_chosen(two: Path) -> None:
    trace = read_trace(two)
    assert 2 in {step.batch for request in trace.requests for step in request.steps}
    shown = words(run("trace", str(two)))
    assert "tokens/forward" in shown
    assert "--request N" in shown
    chosen = words(run("trace", str(two), "--request", "1"))
    assert "Acceptance by depth" in chosen
    failed = run("trace", str(two), "--request", "7")
    assert failed.exit_code == 2
    assert "has no request 7" in failed.stderr


def test_what_if_says_how_sure_it_is(one: Path, two: Path) -> None:
    assert "An estimate: sampled" in words(run("trace", str(one), "--what-if", "2"))
    assert "Exact: at temperature 0" in words(run("trace", str(two), "--what-if", "4"))
    found = json.loads(run("trace", str(two), "--what-if", "1", "--json").stdout)
    for request in found["requests"]:
        assert request["what_if"]["label"] in ("exact", "between")
        low, high = request["what_if"]["tokens_per_forward"]
        assert 1 <= low <= high <= 2


def test_json_has_the_numbers(two: Path) -> None:
    found = json.loads(run("trace", str(two), "--json").stdout)
    assert found["trace"]["headstart_trace"] == 3
    assert found["warnings"] == []
    for number, request in enumerate(read_trace(two).requests):
        assert request.end is not None
        told = found["requests"][number]
        assert told["tokens"] == len(request.end.tokens)
        assert told["forwards"] == request.end.stats["target_forwards"]
        assert told["accepted"] == request.end.stats["accepted"]
        assert told["tokens_per_forward"] == pytest.approx(request.end.stats["tokens_per_forward"], rel=1e-4)
        assert told["accepted_by_depth"] == list(request.end.stats["accepted_per_position"])


def held(page: str) -> list[dict[str, Any]]:
    """The trace in a page; a long one is packed there."""
    data = page.split('id="data-trace">')[1].split("</script>")[0]
    if 'type="application/gzip" id="data-trace"' in page:
        data = gzip.decompress(base64.b64decode(data)).decode()
    found: list[dict[str, Any]] = json.loads(data)
    return found


def test_the_page_holds_the_trace(two: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "pages" / "whole.html", tmp_path / "part.html"
    assert run("trace", str(two), "--html", str(whole)).exit_code == 0
    assert run("trace", str(two), "--html", str(part), "-r", "0").exit_code == 0
    for path, numbers in ((whole, {0, 1}), (part, {0})):
        lines = held(path.read_text())
        assert lines[0]["type"] == "trace"
        assert {line["request"] for line in lines[1:]} == numbers
        assert "hs/viewer/main" in path.read_text()


def test_the_schema_is_one(one: Path) -> None:
    schema = json.loads(run("trace", "--schema").stdout)
    validator = jsonschema_rs.validator_for(schema)
    for line in one.read_text().splitlines():
        validator.validate(json.loads(line))
    assert not validator.is_valid({"type": "step"})


def test_a_run_that_was_cut_off_is_shown_as_far_as_it_goes(one: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_text(one.read_text()[: -len(one.read_text()) // 4])
    result = run("trace", str(cut))
    assert "the recording ended first" in words(result)
    assert "was cut off" in result.stderr
    assert "ended before the request did" in result.stderr
    assert run("trace", str(cut), "--html", str(tmp_path / "cut.html")).exit_code == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["trace"], "no trace is named"),
        (["trace", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["trace", __file__], "is not a trace"),
    ],
)
def test_what_is_no_trace_is_refused(args: list[str], told: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "hint:" in result.stderr


def test_a_trace_that_cannot_be_written_costs_no_loading(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("generate", "x", "-m", "no-such-model", "--trace", str(tmp_path / "file" / "run.jsonl"))
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_looking_at_a_trace_waits_for_no_torch(one: Path) -> None:
    code = (
        "import sys; from headstart.commands.cli import app\n"
        f"try: app(['trace', {str(one)!r}, '--what-if', '2'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
