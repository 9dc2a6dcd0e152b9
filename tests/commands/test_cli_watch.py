"""`headstart watch`: the table, lines of JSON, exit codes for cron, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from support.fake_engines import Engine, FakeServer, fake_server
from typer.testing import CliRunner, Result

from headstart.base.errors import InvalidOption
from headstart.commands.watch import seconds_of, watch
from headstart.commands.watch_view import accepted
from headstart.fleet.watch.counters import Counters

APP = typer.Typer(rich_markup_mode="markdown")
APP.command()(watch)
NOBODY = "http://127.0.0.1:1"
SLOW = """
vllm:request_time_per_output_token_seconds_bucket{engine="0",model_name="m",le="0.01"} 0
vllm:request_time_per_output_token_seconds_bucket{engine="0",model_name="m",le="0.025"} 100
vllm:request_time_per_output_token_seconds_bucket{engine="0",model_name="m",le="80"} 100
vllm:request_time_per_output_token_seconds_bucket{engine="0",model_name="m",le="+Inf"} 110
"""


def run(*words: str, columns: int = 140) -> Result:
    return CliRunner().invoke(APP, words, env={"COLUMNS": str(columns)})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as found:
        engine = Engine([0.9, 0.8])
        engine.run(1000)
        found.text = engine.page() + SLOW
        yield found


def test_positions_that_nothing_has_reached_are_not_shown() -> None:
    counts = Counters(
        "headstart", counts_drafts=True, drafts=4, drafted=12, accepted_per_position=(4, 2, 2, 0, 0, 0),
        tested_per_position=(4, 4, 0, 2, 0, 0),
    )  # fmt: skip
    assert accepted(counts).plain == "100 50 ? 0%"
    none_tested = replace(counts, tested_per_position=(0,) * 6)
    assert accepted(none_tested).plain == "?%"


def test_a_long_draft_leaves_room_for_the_names() -> None:
    """n-grams draft thirty tokens."""
    passed = tuple(range(40, 9, -1))
    counts = Counters(
        "headstart", counts_drafts=True, drafts=40, drafted=1240, accepted_per_position=passed,
        tested_per_position=(40, *passed[:-1]),
    )  # fmt: skip
    assert accepted(counts).plain == "100 98 97 97 97 97% …"
    of_drafts = replace(counts, tested_per_position=None, drafted=600)
    assert accepted(of_drafts).plain == "100%\n*98 95 92 90 88% …"


def test_the_table_says_what_a_server_does(server: FakeServer) -> None:
    result = run(server.url, "--once")
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if server.url.removeprefix("http://") in line)
    assert "18.3 ms (10-25)" in row
    assert "95%" in row
    assert "over 80 s" in result.stdout
    assert "vllm · m" in result.stdout


def test_a_narrow_terminal_gets_lines_instead_of_a_table(server: FakeServer) -> None:
    result = run(server.url, "--once", columns=60)
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 60 for line in result.stdout.splitlines())
    words = " ".join(result.stdout.split())
    assert "tokens/forward" in words
    assert "per token 18.3 ms, P99 over 80 s" in words


def test_drafts_of_many_lengths_are_marked(server: FakeServer) -> None:
    server.text = server.text.replace(
        'draft_tokens_total{engine="0",model_name="m"} 2000', 'draft_tokens_total{engine="0",model_name="m"} 1900'
    )
    words = " ".join(run(server.url, "--once").stdout.split())
    assert "* of all drafts, some of which were shorter" in words


def test_a_line_of_json_for_each_look(server: FakeServer) -> None:
    result = run(server.url, "--json", "--every", "0.05", "--for", "1s")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) >= 2
    assert all(line["headstart_watch"] == 1 for line in lines)
    figures = lines[0]["servers"][0]
    assert figures["positions"][1]["tested"] == figures["positions"][0]["accepted"]
    assert figures["seconds_per_token"]["p99"] == {"value": None, "low": 80.0, "high": None}
    assert lines[1]["servers"][0]["generated"] == 0


def test_exit_codes(server: FakeServer, tmp_path: Path) -> None:
    assert run(NOBODY, "--once").exit_code == 2
    server.text = server.text.replace("spec_decode_num_drafts_total", "gone_total")
    assert run(server.url, "--once").exit_code == 0
    with fake_server() as other:
        engine = Engine([0.9, 0.8])
        engine.run(1000)
        engine.positions[1] = 5 * engine.positions[0]
        other.text = engine.page()
        result = run(other.url, NOBODY, "--once")
    assert result.exit_code == 1, "what was found comes before who does not answer"
    assert "contradict" not in result.stdout


def test_a_change_of_level_is_told_once(server: FakeServer, tmp_path: Path) -> None:
    with fake_server() as hook:
        words = [server.url, "--once", "--state", str(tmp_path / "state.sqlite"), "--webhook", hook.url]
        assert run(*words).exit_code == 0
        server.status = 500
        assert [run(*words).exit_code for _ in range(2)] == [2, 2]
        server.status = 200
        assert run(*words).exit_code == 0
    assert [(post["changes"][0]["before"], post["changes"][0]["now"]) for post in hook.posts] == [
        ("fine", "unreachable"),
        ("unreachable", "fine"),
    ]


def test_a_page_and_a_file_for_prometheus_are_written(server: FakeServer, tmp_path: Path) -> None:
    page, file = tmp_path / "page.html", tmp_path / "watch.prom"
    assert run(server.url, "--once", "--html", str(page), "--prometheus", str(file)).exit_code == 0
    assert "Servers under watch" in page.read_text()
    assert "headstart_watch_tokens_per_forward" in file.read_text()


def test_a_key_is_taken_from_the_environment(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the environment has no NO_SUCH_KEY" in run(server.url, "--once", "--api-key-env", "NO_SUCH_KEY").output
    monkeypatch.setenv("A_KEY", "k")
    run(server.url + "/v1", "--once", "--api-key-env", "A_KEY")
    assert server.asked[-1] == ("/metrics", "Bearer k")


@pytest.mark.parametrize(
    "words",
    [
        (),
        (NOBODY, NOBODY),
        ("ftp://x",),
        (NOBODY, "--for", "soon"),
        (NOBODY, "--for", "0s"),
        (NOBODY, "--once", "--for", "1s"),
        (NOBODY, "--every", "0"),
        (NOBODY, "--drop", "2"),
        (NOBODY, "--baseline", "/nonexistent"),
        (NOBODY, "--webhook", "nowhere"),
    ],
)
def test_bad_input_is_refused_with_a_hint(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "hint: " in result.stderr
    assert not result.stdout


def test_an_interrupt_ends_it_with_the_last_look_s_code(server: FakeServer) -> None:
    words = ["watch", server.url, "--every", "0.1", "--json"]
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # background jobs ignore it
    code = f"{hears}; from headstart.commands.cli import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["level"] == "fine"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_times() -> None:
    assert [seconds_of(text) for text in ("90", "1.5m", "2h", "1d")] == [90.0, 90.0, 7200.0, 86400.0]
    with pytest.raises(InvalidOption):
        seconds_of("-3s")


def test_the_command_line_waits_for_nothing_that_watch_needs() -> None:
    code = (
        "import sys, headstart.commands.watch; "
        "sys.exit(sorted({'torch', 'prometheus_client', 'httpx2', 'jinja2'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
