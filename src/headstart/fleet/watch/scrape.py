"""One look at a server's page for Prometheus."""

from __future__ import annotations

from contextlib import nullcontext

from headstart.base.errors import EndpointFailed
from headstart.fleet.http import Client, Hints, server_url
from headstart.fleet.watch.counters import Counters, read

_HINTS = Hints(
    late="is the server busy or stopped? See --timeout",
    absent="is the server running there?",
    by_status={
        401: "the server wants a key: name the variable that holds it with --api-key-env",
        403: "the server does not take this key: see --api-key-env",
        404: "is this the engine's own address? SGLang shows its counters with --enable-metrics only",
        501: "llama.cpp shows its counters with --metrics only",
    },
)


def metrics_url(url: str) -> str:
    """Where a server shows its counters: `http://host:port`, with or without `/v1`, or the address of the page itself.

    Raises:
        InvalidOption: it is no address of a server.
    """
    found = server_url(url if "://" in url else f"http://{url}", example="such as http://127.0.0.1:8000")
    path = found.path.rstrip("/")
    if not path.endswith("/metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return str(found.copy_with(path=path))


def scraper(*, timeout: float = 5.0, api_key: str | None = None) -> Client:
    """What `scrape` sends its requests with. A watch keeps one, since making one takes longer than a look.

    Args:
        timeout: in seconds, for the connection and for each part of the answer.
        api_key: sent as a bearer token, for servers that ask for one.
    """
    return Client(_HINTS, timeout=timeout, api_key=api_key)


def scrape(
    url: str, *, timeout: float = 5.0, api_key: str | None = None, client: Client | None = None
) -> list[Counters]:
    """What each engine of the server has counted so far.

    Args:
        url: see `metrics_url`.
        client: sends the request; None makes a `scraper` with the timeout and the key for this one.

    Raises:
        EndpointFailed: no server answers, the answer is no page of counters, or none of a known kind.
        InvalidOption: no address, or prometheus-client is not installed.
    """
    address = metrics_url(url)
    with scraper(timeout=timeout, api_key=api_key) if client is None else nullcontext(client) as used:
        response = used.send("GET", address, follow_redirects=True)
    if response.status_code != 200:
        raise EndpointFailed(f"{address} answered {response.status_code}", hint=_HINTS.of(response))
    return read(response.text)
