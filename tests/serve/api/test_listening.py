"""Sockets as this server needs them."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx2
import pytest
from support.http_server import serving
from uvicorn.protocols.http.h11_impl import H11Protocol

import headstart as hs
from headstart.serve.api.listening import bound_socket
from headstart.serve.options import ServerOptions


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_protocol_is_named(host: str) -> None:
    """asyncio switches Nagle's algorithm off only then."""
    try:
        bound = bound_socket(ServerOptions(host=host, port=0))
    except Exception:
        assert host == "::1", "every machine has IPv4"
        pytest.skip("this machine has no IPv6")
    with bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_answers_do_not_wait_for_the_clients_acknowledgement(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    made = H11Protocol.connection_made

    def noting(self: H11Protocol, transport: object) -> None:
        made(self, transport)  # type: ignore[arg-type]
        accepted = transport.get_extra_info("socket")  # type: ignore[attr-defined]
        found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(H11Protocol, "connection_made", noting)
    with serving(hs.load(models / "target", "none", dtype="float32", max_length=512)) as running:
        assert httpx2.get(f"{running.url}/health").status_code == 200
    assert found
    assert all(found)
