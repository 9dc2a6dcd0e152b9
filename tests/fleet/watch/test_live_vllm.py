"""A real vLLM under watch: what its counters say is what was asked of it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from support.fleets import free_port
from typer.testing import CliRunner

from headstart.base.errors import EndpointFailed
from headstart.commands.cli import app
from headstart.fleet.processes import Children
from headstart.fleet.vllm import environment, find, serve_command
from headstart.fleet.watch.scrape import scrape
from headstart.measure.samples import sample_prompts

PAIR = Path(__file__).parents[3] / "src" / "headstart" / "pair"
SPECULATION = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


@pytest.mark.slow
def test_a_live_vllm_is_watched(vllm_python: Path, tmp_path: Path) -> None:
    installation = find(vllm_python)
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = serve_command(
        installation, model=PAIR / "target", port=port,
        flags={
            "served-model-name": "target", "dtype": "float32", "max-model-len": 512, "enforce-eager": True,
            "speculative-config": SPECULATION,
        },
    )  # fmt: skip
    state = ["--state", str(tmp_path / "state.sqlite"), "--once", "--json"]
    with Children(tmp_path) as children:
        child = children.start("vllm", command, env=environment(installation))
        children.wait([(child, lambda: _answers(url))], seconds=400)
        first = CliRunner().invoke(app, ["watch", url, *state])
        assert first.exit_code == 0, first.output
        for item in sample_prompts()[:4]:
            body = {"model": "target", "prompt": item.prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": True}
            httpx2.post(f"{url}/v1/completions", json=body, timeout=120).raise_for_status()
        second = CliRunner().invoke(app, ["watch", url, *state])
    assert second.exit_code == 0, second.output
    (found,) = json.loads(second.stdout)["servers"]
    assert (found["kind"], found["model"], found["level"], found["restarts"]) == ("vllm", "target", "fine", 0)
    assert (found["generated"], found["ended"]) == (4 * 32, 4)
    assert found["tokens_per_forward_low"] <= found["tokens_per_forward"] <= found["tokens_per_draft"]
    assert found["positions"][0]["tested"] == found["drafts"] > 0
    assert found["seconds_per_token"]["requests"] == 4


def _answers(url: str) -> bool:
    try:
        return bool(scrape(url))
    except EndpointFailed:
        return False
