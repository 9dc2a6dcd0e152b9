"""What a request may ask of its drafts."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from support.http_server import Running


def complete(server: Running, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "ab", "max_tokens": 40, "temperature": 0, "ignore_eos": True, **fields}
    response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_drafts_may_be_switched_off(server: Running) -> None:
    plain = complete(server, speculation={"enabled": False})
    ours = plain["metrics"]["headstart"]
    assert ours["speculating"] is False
    assert "no drafts" in ours["off_reason"]
    assert plain["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
    assert ours["tokens_per_forward"] == 1
    assert plain["choices"][0]["text"] == complete(server)["choices"][0]["text"]


@pytest.mark.parametrize("fields", [{"speculation": {"max_draft_tokens": 2}}, {"speculative.n_max": 2}])
def test_drafts_may_be_kept_short(server: Running, fields: dict[str, Any]) -> None:
    assert 0 < complete(server, **fields)["metrics"]["speculative_decoding"]["num_spec_tokens"] <= 2
