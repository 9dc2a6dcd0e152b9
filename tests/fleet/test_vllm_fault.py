"""A real vLLM on a CPU: the audit refuses its sampled text under speculation, and clears it once it is repaired."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import httpx2
import pytest
from scipy.stats import chi2

import headstart as hs
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.run import audit_endpoint
from headstart.fleet.processes import Children
from headstart.fleet.vllm import PLUGIN, environment, find, serve_command, write_plugin
from headstart.fleet.vllm_repair import BROKEN
from headstart.measure.audit.certificate import Certificate
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.samples import sample_prompts

pytestmark = pytest.mark.slow

PAIR = resources.files("headstart") / "pair"
SAMPLER = Path(__file__).parents[1] / "support" / "vllm_sampler.py"
DIGEST = (
    "import vllm.utils.cpu_triton_utils as kernels; from headstart_vllm_repair import digest; print(digest(kernels))"
)


@pytest.fixture(scope="module")
def plugin(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What PYTHONPATH holds for this vLLM to find the plugin; skips where the fault is another, or none."""
    found = find(vllm_python)
    if not found.cpu:
        pytest.skip("this vLLM was not built for processors")
    folder = str(write_plugin(tmp_path_factory.mktemp("plugin")))
    command = [str(vllm_python), "-c", DIGEST]
    env = environment(found) | {"PYTHONPATH": folder}
    asked = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    if asked.stdout.split()[-1] != BROKEN:
        pytest.skip("this vLLM has another source than the one known to be broken")
    return folder


def sampler_s_distributions(vllm_python: Path, plugin: str, **more: str) -> list[Any]:
    """For each way of sampling and drafting, the least p-value of the tokens' distributions, or the error."""
    env = environment(find(vllm_python)) | {"PYTHONPATH": plugin, "OMP_NUM_THREADS": "1"} | more
    command = [str(vllm_python), "-c", SAMPLER.read_text()]  # its folder has a vllm.py of our own
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd="/")
    cases = json.loads(done.stdout.splitlines()[-1])
    return [case if isinstance(case, str) else min(float(chi2.sf(x, n - 1)) for x, n in case) for case in cases]


def test_vllm_s_sampler_has_the_target_s_distribution_only_with_the_repair(vllm_python: Path, plugin: str) -> None:
    """Called directly, without a server: temperature, top-p and top-k, one-hot drafts (n-gram) and drawn ones."""
    for case in sampler_s_distributions(vllm_python, plugin, VLLM_PLUGINS=PLUGIN):
        assert not isinstance(case, str), case
        assert case > 1e-6
    broken = sampler_s_distributions(vllm_python, plugin, VLLM_PLUGINS="")
    assert [case for case in broken if isinstance(case, str) or case < 1e-12] == broken


@contextmanager
def served(vllm_python: Path, logs: Path, **more: str) -> Iterator[tuple[str, Path]]:
    """A server of the bundled pair, speculating with the draft model; its URL and its log."""
    found = find(vllm_python)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    speculation = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": 4}
    command = serve_command(
        found, model=str(PAIR / "target"), port=port, dtype="float32", max_model_len=256, max_num_seqs=16,
        enforce_eager=True, speculative_config=speculation,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx2.get(f"{url}/health", timeout=5.0).status_code == 200
        except httpx2.HTTPError:
            return False

    with Children(logs) as children:
        server = children.start("vllm", command, env=environment(found) | more)
        children.wait([(server, ready)], seconds=400)
        yield f"{url}/v1", server.log


def audited(url: str, reference: hs.Engine, **options: Any) -> Certificate:
    prompts = [list(reference.encode(str(item.prompt))) for item in sample_prompts()[:6]]
    facts: dict[str, Any] = {"vocab_size": reference.target.vocab_size, "ends": reference.eos_token_ids}
    plan = AuditPlan(behaviour=False, greedy_tokens=24, effect=0.1, max_samples=2000, **options)
    with EndpointSubject(url, tokenizer=reference.tokenizer, concurrency=16, **facts) as subject:
        return audit_endpoint(subject, reference, prompts, plan)


@pytest.fixture(scope="module")
def reference() -> hs.Engine:
    return hs.load("bundled", "none", dtype="float32", max_length=128)


NARROW = hs.Sampling(temperature=0.7, top_p=0.9, top_k=20)


def test_without_the_repair_the_audit_refuses(
    vllm_python: Path, plugin: str, reference: hs.Engine, tmp_path: Path
) -> None:
    with served(vllm_python, tmp_path, PYTHONPATH=plugin, VLLM_PLUGINS="") as (url, log):
        made = audited(url, reference)
    assert made.verdict == "not lossless", made.reasons
    assert made.record()["parts"]["greedy"]["bugs"] == 0, "greedy text is not touched by the fault"
    assert "vllm#55005" not in log.read_text(), "VLLM_PLUGINS leaves the repair out"


def test_with_the_repair_it_passes(vllm_python: Path, plugin: str, reference: hs.Engine, tmp_path: Path) -> None:
    with served(vllm_python, tmp_path, PYTHONPATH=plugin, VLLM_PLUGINS=PLUGIN) as (url, log):
        made = [audited(url, reference), audited(url, reference, greedy=False, sampling=NARROW)]
    for certificate in made:
        assert certificate.verdict == "lossless", certificate.reasons
    repaired = [line for line in log.read_text().splitlines() if "headstart repaired vllm#55005" in line]
    assert any("(Worker" in line or "(EngineCore" in line for line in repaired), "in the process that samples"
    named = [line for line in repaired if line.startswith("(")]  # one process says it before it has set up its log
    assert all("WARNING" in line for line in named)
