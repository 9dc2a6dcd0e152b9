"""The dashboard, as an operator fetches it."""

from __future__ import annotations

import json
import urllib.request

from support.http_server import Running


def test_the_dashboard_is_served(server: Running) -> None:
    with urllib.request.urlopen(f"{server.url}/metrics/grafana.json") as reply:
        assert reply.headers["content-type"] == "application/json"
        assert json.load(reply)["panels"]
