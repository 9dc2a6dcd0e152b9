"""`headstart serve` as a program: it says how to ask, answers, stops when told, and explains what it refuses."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest
from support.http_server import chat_model
from typer.testing import CliRunner

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.base.extras import how_to_install
from headstart.commands.cli import app
from headstart.commands.terminal import messages, say
from headstart.serve.options import Limits, Recording, ServerOptions
from headstart.serve.server import Loaded, ModelServer, drafters_of, example

COMMAND = [sys.executable, "-m", "headstart", "serve", "--port", "0"]


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    """The command sets up the logging of its process, which is that of other tests, too."""
    loggers = [logging.getLogger(name) for name in ("headstart", "uvicorn")]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@contextmanager
def started(*options: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The running command, and what it has said until it was ready."""
    process = subprocess.Popen(
        [*COMMAND, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )  # fmt: skip
    lines: list[str] = []
    assert process.stderr is not None
    try:
        for line in process.stderr:
            lines.append(line.rstrip())
            if "curl " in line:
                break
        yield process, lines
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def url_in(lines: list[str]) -> str:
    return lines[0].partition("/v1")[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("served") / "my-model", context=256)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_it_answers_and_stops(model: Path, tmp_path: Path, number: signal.Signals) -> None:
    ledger, keys = tmp_path / "ledger.db", tmp_path / "keys.txt"
    keys.write_text("# ours\nfirst\n\nsecond\n")
    options = ("--target", str(model), "--drafter", "ngram", "--ledger", str(ledger), "--api-key-file", str(keys))
    with started(*options, "--pacing", "fixed", env={"HEADSTART_API_KEY": "third"}) as (process, lines):
        url = url_in(lines)
        assert "'my-model'" in lines[1]
        assert f"open {url}/ (the playground), {url}/learn (the lessons), {url}/trace (the trace viewer)" in lines
        for path in ("/", "/learn", "/trace"):
            page = httpx2.get(f"{url}{path}", timeout=60)
            assert page.status_code == 200, "pages need no key"
            assert page.text.startswith("<!doctype html>")
        assert str(model.parent) not in "".join(lines[1:])
        for key in ("first", "second", "third"):
            headers = {"authorization": f"Bearer {key}"}
            body = {"messages": [{"role": "user", "content": "a"}]}
            answer = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
            assert answer.json()["model"] == "my-model"
        assert httpx2.get(f"{url}/v1/models").status_code == 401
        metrics = httpx2.get(f"{url}/metrics", headers=headers)
        assert metrics.status_code == 200
        assert 'headstart:num_requests_running{model_name="my-model"}' in metrics.text
        command = lines[-1].strip().replace("$HEADSTART_API_KEY", "third")
        shown = subprocess.run(["bash", "-c", f"{command} -s --max-time 50"], capture_output=True, text=True)
        if shown.returncode != 127:  # no curl here
            assert '"chat.completion"' in shown.stdout, shown.stdout
        process.send_signal(number)
        assert process.wait(30) == 0
    with sqlite3.connect(ledger) as connection:
        assert connection.execute("select sum(requests) from requests").fetchone()[0] >= 3


@pytest.mark.slow
def test_a_stream_may_end_when_it_is_stopped(model: Path) -> None:
    options = ("--target", str(model), "--drafter", "none", "--stop-grace-seconds", "0", "--no-pages")
    with started(*options) as (process, lines):
        assert not any(line.startswith("open ") for line in lines)
        assert httpx2.get(f"{url_in(lines)}/").status_code == 404
        body = {"prompt": "a", "stream": True, "max_tokens": 250, "ignore_eos": True, "n": 8}
        with httpx2.stream("POST", f"{url_in(lines)}/v1/completions", json=body, timeout=60) as response:
            text = ""
            for part in response.iter_text():
                if not text:
                    process.send_signal(signal.SIGTERM)
                text += part
        assert text.endswith("data: [DONE]\n\n"), "with what it has"
        assert text.count('"finish_reason":"length"') == 8
        assert process.wait(30) == 0


def refused(*options: str, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(app, ["serve", *options], env=env)
    assert result.exit_code == 2, result.output
    return result.output


def test_what_it_refuses(tmp_path: Path) -> None:
    assert "there is no key" in refused("--host", "0.0.0.0", env={"HEADSTART_API_KEY": ""})
    assert "cannot read the keys" in refused("--api-key-file", str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n")
    assert "holds no key" in refused("--api-key-file", str(tmp_path / "empty"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in refused("--port", str(taken.getsockname()[1]))
    assert "no address" in refused("--host", "no.such.host.invalid", "--api-key", "k")


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    began = time.monotonic()
    output = refused("--port", "0", "--target", str(tmp_path / "nothing"))
    assert "error: " in output
    assert "Traceback" not in output
    assert time.monotonic() - began < 100


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    output = refused()
    assert "uvicorn" in output
    assert how_to_install("serve") in output


def test_the_command_line_needs_no_server() -> None:
    code = (
        "import sys, headstart.commands.cli; "
        "sys.exit(sorted({'fastapi', 'uvicorn', 'starlette', 'prometheus_client', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_traffic_file_that_cannot_be_opened_is_not_said_to_be_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    engine = hs.load(model, "none", dtype="float32", max_length=64)
    for path, recorded in ((no_folder / "traffic", False), (tmp_path / "traffic", True)):
        run = ModelServer(
            ServerOptions(served_model_name=("tiny",)), Limits(), Recording(traffic=path),
            lambda: Loaded(engine, {}, "fingerprint"), {}, partial(say, messages()),
        )  # fmt: skip
        try:
            served = run.served()
            assert served.recorded == recorded
            run.tell_ready(served.bridge)
            assert ("are written to" in " ".join(capsys.readouterr().err.split())) == recorded
        finally:
            run.close()


def test_the_example_has_a_key_only_where_one_is_wanted() -> None:
    assert "Authorization" not in example("http://x", ServerOptions(served_model_name=("m",)), chat=True)
    assert "$HEADSTART_API_KEY" in example(
        "http://x", ServerOptions(served_model_name=("m",), api_keys=("k",)), chat=False
    )


def test_options_that_cannot_be() -> None:
    for options in ({"port": 70000}, {"ping_seconds": 0}, {"max_body_bytes": 0}, {"served_model_name": ("",)},
                    {"chat_format": "hermess"}, {"constrain_tools": "no"}):  # fmt: skip
        with pytest.raises(InvalidOption):
            ServerOptions(**options)  # type: ignore[arg-type]


def test_predicted_outputs_are_drafted_first() -> None:
    assert drafters_of(["auto"]) == ["prediction", "auto"]
    assert drafters_of(["ngram", "prediction"]) == ["ngram", "prediction"]
    assert drafters_of(["none"]) == "none"
