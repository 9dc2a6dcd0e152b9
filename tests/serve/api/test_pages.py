"""Pages beside the interface: built once, open to everybody, framed by nobody, and not there unless they are wanted."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.http_server import Running, serving

import headstart as hs
from headstart.serve.server import playground_page

TEXT = "<!doctype html><title>ä page</title>" + "<p>words</p>" * 100


@pytest.fixture(scope="module")
def engine(models: Path) -> hs.Engine:
    return hs.load(models / "target", "none", dtype="float32", max_length=512)


class Writing:
    """Writes a page, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return TEXT


@pytest.fixture(scope="module")
def writing() -> Writing:
    return Writing()


@pytest.fixture(scope="module")
def locked(engine: hs.Engine, writing: Writing) -> Iterator[Running]:
    with serving(engine, {"api_keys": ("secret",)}, pages={"/": writing, "/trace": writing}) as running:
        yield running


def test_pages_need_no_key_and_the_interface_still_does(locked: Running) -> None:
    for path in ("/", "/trace"):
        response = httpx2.get(f"{locked.url}{path}")
        assert response.status_code == 200
        assert response.text == TEXT
        assert response.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/v1/models", "/slots", "/learn", "//", "/trace/x"):
        assert httpx2.get(f"{locked.url}{path}").status_code == 401, path
    assert httpx2.get(f"{locked.url}/", headers={"host": "evil.example"}).status_code == 403


def test_only_get_and_head(locked: Running) -> None:
    head = httpx2.head(f"{locked.url}/")
    assert head.status_code == 200
    assert head.content == b""
    assert int(head.headers["content-length"]) > 0
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        response = httpx2.request(method, f"{locked.url}/", headers={"content-type": "application/json"})
        assert response.status_code == 405, method


def test_no_other_page_may_frame_it_or_learn_where_it_was(locked: Running) -> None:
    headers = httpx2.get(f"{locked.url}/").headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def raw(running: Running, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.putrequest("GET", "/", skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_it_is_zipped_where_the_client_takes_that(locked: Running) -> None:
    for accepted, zipped in {
        "gzip": True, "br, gzip;q=0.5": True, "GZIP": True, "": False, "identity": False, "gzip;q=0": False,
        "br;q=1, gzip; q=0.0": False,
    }.items():  # fmt: skip
        response, body = raw(locked, accept_encoding=accepted)
        assert (response.headers.get("content-encoding") == "gzip") == zipped, accepted
        assert (gzip.decompress(body) if zipped else body).decode() == TEXT
        assert response.headers["vary"] == "accept-encoding"


def test_it_is_built_once_and_sent_once(locked: Running, writing: Writing) -> None:
    first = httpx2.get(f"{locked.url}/")
    before = writing.count
    again = httpx2.get(f"{locked.url}/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert httpx2.get(f"{locked.url}/", headers={"if-none-match": 'W/"other"'}).text == TEXT
    assert writing.count == before


def test_without_pages_there_are_none(engine: hs.Engine) -> None:
    with serving(engine) as running:
        assert httpx2.get(f"{running.url}/").status_code == 404


def test_pages_are_no_part_of_the_interface(locked: Running) -> None:
    description = httpx2.get(f"{locked.url}/openapi.json", headers={"x-api-key": "secret"}).json()
    assert not {"/", "/trace"} & description["paths"].keys()


def test_the_playground_is_one_file_that_asks_only_its_own_server() -> None:
    text = playground_page()
    assert "connect-src 'self'" in text
    assert "default-src 'none'" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


def test_what_the_pages_ask_the_server(engine: hs.Engine) -> None:
    """Facts of the model, and totals that cost little to look at."""
    with serving(engine) as running:
        facts = httpx2.get(f"{running.v1}/models").json()["data"][0]["headstart"]
        assert facts["chat"] is True
        assert facts["sources"] == []
        assert facts["width_invariant"] in (True, False)
        assert facts["defaults"]["temperature"] == 1
        assert facts["versions"].keys() == {"headstart", "torch", "transformers"}
        before = httpx2.get(f"{running.url}/slots").json()["totals"]
        body = {"prompt": "ab", "max_tokens": 5, "ignore_eos": True}
        assert httpx2.post(f"{running.v1}/completions", json=body, timeout=60).status_code == 200
        after = httpx2.get(f"{running.url}/slots").json()["totals"]
    assert after["generated_tokens"] == before["generated_tokens"] + 5
    assert after["target_forwards"] == before["target_forwards"] + 5


def test_the_other_pages_lead_back_to_the_playground() -> None:
    from headstart.commands.serve import all_pages
    from headstart.learn.pages.lessons import lessons_page

    link = '<script type="application/json" id="data-playground">"/"</script>'
    assert link in all_pages()["/learn"].write()
    assert link in all_pages()["/trace"].write()
    assert link not in lessons_page(), "a page in a file has no server to lead to"
