"""`headstart audit --tools`: our own server is cleared, and one that changes a byte behind a draft is convicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
from support.byte_models import save_model
from support.chat_forms import chat_tokenizer, template
from support.http_server import serving
from typer.testing import CliRunner

import headstart as hs
from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.commands.audit import audit
from headstart.fleet.audit import agent_cases
from headstart.fleet.audit.agents import DRAFTED, audit_tools

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@contextmanager
def fake(
    answer: Answer, *, ours: bool = True, rule: str = "coupled", others: Mapping[str, Answer] = {}
) -> Iterator[str]:
    """The address of a server of chat completions.

    ours: whether it says that it is headstart's, of this rule. others: by path, its other interfaces.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", -1

        def do_GET(self) -> None:
            about = {"headstart": {"rule": rule}} if ours else {}
            self._send(200, {"data": [{"id": "m", **about}]})

        def do_POST(self) -> None:
            name = self.path.removeprefix("/v1/")
            found = answer if name == "chat/completions" else others.get(name, lambda _: (404, {}))
            self._send(*found(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _send(self, status: int, body: Any) -> None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def call(arguments: str, number: int = 0) -> dict[str, Any]:
    calls = [{"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": arguments}}]
    return {"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]}


def plain(body: dict[str, Any]) -> bool:
    return body.get("speculation") == {"enabled": False}


def test_a_byte_that_drafts_change_is_found(tmp_path: Path) -> None:
    def faulty(body: dict[str, Any]) -> tuple[int, Any]:
        wrong = not plain(body) and "Lima" in json.dumps(body) and body["temperature"] == 0
        return 200, call('{"city": "Lama"}' if wrong else '{"city": "Lima"}', number=id(body))

    app, out = typer.Typer(), tmp_path / "found.json"
    app.command()(audit)
    with fake(faulty) as url:
        result = CliRunner().invoke(app, ["--tools", "--endpoint", url, "-o", str(out)])
    assert result.exit_code == 1, result.output
    assert "Not lossless" in result.stdout
    assert "calls.0.arguments differs at character 11" in result.stdout
    record = json.loads(out.read_text())
    assert {each["arm"] for each in record["differences"]} == set(DRAFTED)
    assert {each["case"] for each in record["differences"]} == {"forced tool 1, greedy, chat"}, (
        "ids differ, and do not count"
    )
    assert sum("seeded" in name for name in record["requests"]) == len(record["requests"]) // 2


def messages(body: dict[str, Any], arguments: str) -> str:
    """A stream of `/v1/messages` with a call, in pieces of four characters."""
    block = {"type": "tool_use", "id": f"toolu_{id(body)}", "name": "run", "input": {}}
    pieces = [arguments[at : at + 4] for at in range(0, len(arguments), 4)]
    events = [
        {"type": "message_start"},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": each}}
            for each in pieces
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


def responses(body: dict[str, Any], arguments: str) -> str:
    """The last event of a stream of `/v1/responses` with a call."""
    call = {"type": "function_call", "call_id": str(id(body)), "name": "run", "arguments": arguments}
    done = {"type": "response.completed", "response": {"status": "completed", "output": [call]}}
    return f"data: {json.dumps(done)}\n\n"


def few(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Ask one request of each of these kinds."""
    asked = [(kind, fields, prompts[:1]) for kind, fields, prompts in agent_cases._ASKED if kind in kinds]
    monkeypatch.setattr(agent_cases, "_ASKED", asked)


def test_each_interface_is_compared_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """One changes a space, which whole answers of Messages do not show; another breaks off where it drafts."""
    few(monkeypatch, "forced tool", "required", "edit")

    def spaced(body: dict[str, Any]) -> tuple[int, Any]:
        wrong = not plain(body) and "Lima" in json.dumps(body)
        return (200, messages(body, '{"a":1}' if wrong else '{"a": 1}')) if body else (400, {})

    def broken(body: dict[str, Any]) -> tuple[int, Any]:
        failed = f"data: {json.dumps({'type': 'error', 'code': 'server_error'})}\n\n"
        wrong = not plain(body) and body.get("tool_choice") == "required"
        return (200, failed if wrong else responses(body, "{}")) if body else (400, {})

    good = {"responses": lambda body: (200, responses(body, "{}")), "messages": lambda body: (200, messages(body, ""))}
    with fake(lambda body: (200, call("{}")), others=good) as url:
        found = audit_tools(url)
        assert (found.verdict, found.interfaces) == ("lossless", ("chat", "responses", "messages"))
    with fake(lambda body: (200, call("{}")), others={"messages": spaced, "responses": broken}) as url:
        found = audit_tools(url)
    assert {each.case.rpartition(", ")[2] for each in found.differences} == {"responses", "messages"}
    by_field = {each.field: each.case for each in found.differences}
    assert by_field.keys() == {"error", "calls.0.arguments"}
    assert by_field["calls.0.arguments"] == "forced tool 1, seeded, messages"


@pytest.mark.parametrize("rule", ["auto", "coupled", "exact"])
def test_seeds_are_asked_where_they_promise_a_text(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, "forced tool")
    with fake(lambda _: (200, call("{}")), rule=rule) as url:
        found = audit_tools(url)
    assert any("seeded" in name for name in found.rows) == (rule != "exact")
    assert any("seeds are left out" in note for note in found.notes) == (rule == "exact")


def test_what_is_no_fault_of_drafts_is_not_laid_to_them() -> None:
    asked: list[dict[str, Any]] = []

    def unsteady(body: dict[str, Any]) -> tuple[int, Any]:
        asked.append(body)
        return 200, call(str(len(asked)) if "Lima" in json.dumps(body) else "{}")

    with fake(unsteady) as url:
        found = audit_tools(url)
    assert (found.verdict, found.count("unsteady")) == ("undecided", 2)
    assert found.interfaces == ("chat",)
    assert sum("is not asked" in note for note in found.notes) == 2
    assert len({body["cache_salt"] for body in asked}) == 1 + len(found.rows) * 4, "two arms share a cache"
    with fake(lambda _: (400, {"error": "no tools"})) as url:
        found = audit_tools(url)
    assert (found.verdict, found.compared, found.count("refused")) == ("undecided", 0, len(found.rows))


def test_two_servers_are_compared() -> None:
    def refuses_when_drafted(body: dict[str, Any]) -> tuple[int, Any]:
        return (500, {"error": "failed to advance"}) if "response_format" in body else (200, call("{}"))

    with fake(lambda _: (200, call("{}")), ours=False) as good, fake(refuses_when_drafted, ours=False) as bad:
        found = audit_tools(good, good)
        assert (found.verdict, found.exit_code) == ("lossless", 0)
        assert not any("seeded" in name for name in found.rows), "their drafts keep no seed's text"
        found = audit_tools(bad, good)
        assert {(each.field, each.plain) for each in found.differences} == {("error", "")}
        assert {each.case.split(",")[0] for each in found.differences} == {"JSON schema 1", "JSON schema 2"}
        with pytest.raises(InvalidOption, match="cannot be told"):
            audit_tools(good)
    with fake(lambda _: (200, {"odd": 1})) as url, pytest.raises(EndpointFailed, match="another form"):
        audit_tools(url)


def test_our_own_server_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_cases, "MOST_TOKENS", 12)
    kinds = ("parallel", "JSON schema")  # those with short prompts
    few(monkeypatch, *kinds)
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    options: dict[str, Any] = {"tokenizer": tokenizer, "context": 4096}
    target = save_model(tmp_path / "target", **options)
    draft = save_model(tmp_path / "draft", noise=0.01, **options)
    engine = hs.load(
        target, ["prediction", "ngram", draft], dtype="float32", max_length=3000, pacing="fixed", rule="coupled",
        max_batch_size=4, prefix_cache=True,
    )  # fmt: skip
    with serving(engine) as running:
        found = audit_tools(running.v1, concurrency=4)
        assert running.settled()
    assert found.verdict == "lossless", (found.reasons, found.differences, found.refusals)
    assert found.count("refused") == 0
    assert found.compared == 4 * len(found.rows) == 4 * 3 * 2 * len(kinds)
