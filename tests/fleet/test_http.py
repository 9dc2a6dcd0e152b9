"""How requests are sent: again where a connection breaks, by no proxy to this machine, and with an error that helps."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.fleet.http import LOOPBACK, Client, Hints, answers, ask, server_url

HINTS = Hints(late="wait", absent="start it", by_status={404: "look elsewhere"})
ANSWER = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"


@contextmanager
def server(breaks: int) -> Iterator[str]:
    """Closes so many connections without an answer, and answers later ones."""
    listening = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        for number in range(breaks + 1):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                if number == breaks:
                    connection.sendall(ANSWER)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listening:
        yield f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        thread.join(10)


@pytest.fixture
def free() -> str:
    """An address where nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as closed:
        return f"http://{LOOPBACK}:{closed.getsockname()[1]}"


def test_a_connection_that_breaks_is_tried_again_as_often_as_asked() -> None:
    with server(breaks=2) as url, Client(HINTS, timeout=10, retries=2) as client:
        response = client.send("GET", url)
        assert (response.status_code, HINTS.of(response)) == (404, "look elsewhere")
    with server(breaks=1) as url:
        with Client(HINTS, timeout=10, retries=0) as client, pytest.raises(EndpointFailed, match="no connection"):
            client.send("GET", url)
        assert not answers(url, "/health"), "404"


def test_errors_say_what_to_do(free: str) -> None:
    with Client(HINTS, timeout=10) as client, pytest.raises(EndpointFailed) as caught:
        client.send("GET", free)
    assert caught.value.hint == "start it"
    with socket.create_server((LOOPBACK, 0)) as silent, Client(HINTS, timeout=0.05) as client:
        url = f"http://{LOOPBACK}:{silent.getsockname()[1]}"
        with pytest.raises(EndpointFailed, match=r"within 0\.05 s") as caught:
            client.send("GET", url)
        assert caught.value.hint == "wait"
    for url in ("nothing", "ftp://host", "http://", "http://host:port"):
        with pytest.raises(InvalidOption):
            server_url(url, example="http://host")


def test_this_machine_is_never_reached_by_a_proxy(free: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, free)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with server(breaks=0) as url:
        assert ask("GET", url, seconds=10).status_code == 404
    with server(breaks=0) as url, Client(HINTS, timeout=10) as client:
        assert client.send("GET", url.replace(LOOPBACK, "localhost")).status_code == 404
