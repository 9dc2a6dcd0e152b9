"""One look at a server's page for Prometheus."""

from __future__ import annotations

import httpx2

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.fleet.watch.counters import Counters, read


def metrics_url(url: str) -> str:
    """Where a server shows its counters: `http://host:port`, with or without `/v1`, or the address of the page itself.

    Raises:
        InvalidOption: it is no address of a server.
    """
    try:
        parsed = httpx2.URL(url if "://" in url else f"http://{url}")
    except httpx2.InvalidURL as error:
        raise InvalidOption(f"{url!r} is no address: {error}", hint="such as http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidOption(f"{url!r} is no address of a server", hint="such as http://127.0.0.1:8000")
    path = parsed.path.rstrip("/")
    if not path.endswith("/metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return str(parsed.copy_with(path=path))


def scrape(
    url: str, *, timeout: float = 5.0, api_key: str | None = None, client: httpx2.Client | None = None
) -> list[Counters]:
    """What each engine of the server has counted so far.

    Args:
        url: see `metrics_url`.
        timeout: in seconds, for the connection and for each part of the answer.
        api_key: sent as a bearer token, for servers that ask for one.
        client: for the requests; whoever looks often keeps one, since making one takes longer than a look.

    Raises:
        EndpointFailed: nobody answers, the answer is no page of counters, or none of a known kind.
        InvalidOption: no address, or prometheus-client is not installed.
    """
    address = metrics_url(url)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        get = httpx2.get if client is None else client.get
        response = get(address, timeout=timeout, headers=headers, follow_redirects=True)
    except httpx2.TimeoutException as error:
        raise EndpointFailed(
            f"{address} did not answer within {timeout:g} s", hint="is the server busy or stopped? See --timeout"
        ) from error
    except httpx2.HTTPError as error:
        raise EndpointFailed(f"no connection to {address}: {error}", hint="is the server running there?") from error
    if response.status_code != 200:
        raise EndpointFailed(
            f"{address} answered {response.status_code}", hint=_HINTS.get(response.status_code, "look into its log")
        )
    return read(response.text)


_HINTS = {
    401: "the server wants a key: name the variable that holds it with --api-key-env",
    403: "the server does not take this key: see --api-key-env",
    404: "is this the engine's own address? SGLang shows its counters with --enable-metrics only",
    501: "llama.cpp shows its counters with --metrics only",
}
