"""Suites that ask a server over HTTP: llm-comply, Open Responses' own, the official clients', LangChain's."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from support.suites import SECONDS, Results, named

COMPLY = {
    "openai-chat": (),
    "open-responses": (),
    "anthropic": ("--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01"),
}
CLIENTS = {
    "openai": (
        "chat/test_completions.py", "test_completions.py", "test_responses.py", "test_models.py",
        "responses/test_input_items.py",
    ),
    "anthropic": ("test_messages.py", "test_models.py"),
}  # fmt: skip
OURS = "create or list or retrieve or count_tokens"
"""Cases of the official clients about what this server has: the others are of batches, stored chats and files."""


@pytest.mark.parametrize("form", COMPLY)
def test_llm_comply(form: str, served: str, judged: Callable[[str, Results], None]) -> None:
    command = [str(named("LLM_COMPLY")), "-u", f"{served}/v1", "-k", "none", "-m", "local", "--format", form, "--json"]
    done = subprocess.run([*command, *COMPLY[form]], capture_output=True, text=True, timeout=SECONDS)
    found = json.loads(done.stdout[done.stdout.index("{") :])["results"]
    results = {
        each["id"]: "skipped" if each["status"] == "skipped" else "; ".join(each.get("errors", ())) for each in found
    }
    warnings = {each["id"]: each["warnings"] for each in found if each.get("warnings")}
    assert set(warnings) <= {"compact-response"}, warnings
    judged(f"llm-comply {form}", results)


def test_open_responses_own_runner(served: str, judged: Callable[[str, Results], None]) -> None:
    """Its answers and events are checked against the schemas of the specification, which come with it."""
    command = [
        "npx",
        "--no-install",
        "tsx",
        "bin/compliance-test.ts",
        "--base-url",
        f"{served}/v1",
        "--api-key",
        "none",
    ]
    done = subprocess.run(
        [*command, "--model", "local", "--json"], cwd=named("OPEN_RESPONSES"), capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    found = json.loads(done.stdout[done.stdout.index("{") :])["results"]
    judged(
        "Open Responses",
        {
            each["id"]: "" if each["status"] == "passed" else str(each.get("errors", each["status"]))[:300]
            for each in found
        },
    )


def results_of(python: Path, folder: Path, out: Path, *arguments: str, **environment: str) -> Results:
    """What pytest finds in an environment of the suite's own. Parameters of one test count as one case."""
    command = [str(python), "-m", "pytest", "-q", "-o", "addopts=", f"--junitxml={out}", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    assert out.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    results: dict[str, str] = {}
    for case in ElementTree.parse(out).iter("testcase"):
        owner, name = str(case.get("classname")), str(case.get("name"))
        place = ".".join(part for part in owner.split(".") if part not in ("tests", "api_resources"))
        parts = [each for each in case if each.tag in ("failure", "error", "skipped")]
        why = "" if not parts else ("skipped" if parts[0].tag == "skipped" else str(parts[0].get("message"))[:300])
        results[f"{place}.{name}"] = why
    return results


@pytest.mark.parametrize("client", CLIENTS)
def test_the_official_clients_own_tests(
    client: str, served: str, judged: Callable[[str, Results], None], tmp_path: Path
) -> None:
    """With loose and with strict checks of every answer's types, each call waiting and asynchronous."""
    folder, url = named(client.upper()), f"{served}/v1" if client == "openai" else served
    files = [f"tests/api_resources/{each}" for each in CLIENTS[client]]
    results = results_of(
        named("PYTHON"), folder, tmp_path / "out.xml", "-k", OURS, *files, TEST_API_BASE_URL=url
    )  # fmt: skip
    by_test: dict[str, str] = {}
    for case, why in results.items():
        name = case.split("[")[0].replace("TestAsync", "Test")
        by_test[name] = by_test.get(name) or why
    judged(f"{client} SDK", by_test)


@pytest.mark.parametrize("package", ["openai", "responses", "anthropic"])
def test_langchains_standard_tests(
    package: str, served: str, judged: Callable[[str, Results], None], tmp_path: Path
) -> None:
    cases = Path(__file__).parent / "langchain_models.py"
    results = results_of(
        named("PYTHON"), tmp_path, tmp_path / "out.xml", "-c", os.devnull, "--noconftest", "--asyncio-mode=auto",
        "-o", "asyncio_default_test_loop_scope=session", "-o", "asyncio_default_fixture_loop_scope=session", str(cases),
        HEADSTART_URL=served, HEADSTART_PACKAGE=package, LANGSMITH_TRACING="false",
    )  # fmt: skip
    judged(f"langchain-tests {package}", {case.rpartition("TestModel.")[2]: why for case, why in results.items()})
