"""Dashboard and alarms name only metrics that vLLM has; and vLLM takes an export without loading weights."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.exports import deployment

from headstart.fleet.export.architectures import EAGLE3_TARGETS
from headstart.fleet.export.check import accepted
from headstart.fleet.export.files import all_files
from headstart.fleet.export.options import ExportOptions
from headstart.fleet.export.write import export
from headstart.fleet.vllm import find

METRICS = {
    "e2e_request_latency_seconds_bucket",
    "generation_tokens_total",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "num_requests_running",
    "num_requests_waiting",
    "prefix_cache_hits_total",
    "prefix_cache_queries_total",
    "prompt_tokens_total",
    "request_time_per_output_token_seconds_bucket",
    "spec_decode_num_accepted_tokens_per_pos_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_drafts_total",
    "time_to_first_token_seconds_bucket",
}
"""Of vLLM 0.32, read from its source."""


def named(text: str) -> set[str]:
    return set(re.findall(r"vllm:(\w+)", text))


def test_only_metrics_that_there_are() -> None:
    files = all_files(deployment())
    assert named(files["grafana.json"]) | named(files["prometheus-rules.yaml"]) == METRICS


def test_the_dashboard_is_whole() -> None:
    found: dict[str, Any] = json.loads(all_files(deployment())["grafana.json"])
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["targets"] for panel in panels if panel["type"] != "row")
    assert sum("position" in target["legendFormat"] for panel in panels for target in panel.get("targets", ())) == 4


@pytest.fixture(scope="module")
def vllm_source(vllm_python: Path) -> Path:
    asked = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
    done = subprocess.run([str(vllm_python), "-c", asked], capture_output=True, text=True, check=True, cwd="/")
    return Path(done.stdout.strip())


@pytest.mark.slow
def test_this_vllm_registers_them(vllm_source: Path) -> None:
    text = "".join(file.read_text() for file in (vllm_source / "v1").rglob("*.py"))
    known = set(re.findall(r"[\"']vllm:(\w+)[\"']", text))
    for name in METRICS:
        bare = re.sub(r"_(bucket|total)$", "", name)
        assert {bare, f"{bare}_total", name} & known, name


@pytest.mark.slow
def test_this_vllm_registers_the_architectures(vllm_source: Path) -> None:
    text = (vllm_source / "model_executor" / "models" / "registry.py").read_text()
    assert {name for name in EAGLE3_TARGETS["vllm"] if f'"{name}"' not in text} == set()


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["eagle3", "medusa", "bundled", "ngram"])
def test_this_vllm_takes_the_export(drafter: str, vllm_python: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = export("bundled", drafter, out, ExportOptions(measure=False, dtype="float32", cpu=True))
    found = accepted(find(vllm_python), out)
    assert found["method"] == manifest.drafter.kind
    assert found["depth"] == manifest.depth
    assert found["dtype"] == "float32"
    assert tuple(found["layer_ids"]) == (manifest.drafter.layer_ids or ())
    assert found["fc_bias"] is (True if drafter == "medusa" else None)
    assert yaml.safe_load((out / "vllm.yaml").read_text())["speculative-config"]["method"] == found["method"]
