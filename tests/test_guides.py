"""The commands and programs of the documents run as they are shown.

Every command is parsed by the command line that it is for. The slow tests run each in a folder that has what its names
stand for: the bundled pair under the names of models, small files under the names of files. Budgets are cut short, and
a command that needs what no test has (vLLM, another machine, a model of gigabytes) is named in `PARSED_ONLY`.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.guides import SHOWING, Shown, blocks, commands, furnish, parsed
from support.warm import begun

import headstart as hs

ALL = [each for path in SHOWING for each in commands(path)]

PARSED_ONLY = (
    (r"^launch |--vllm|--verify|--check-only|--fleet", "needs a vLLM"),
    (r"^audit --tools|--ledger", "needs a server with a past, or with tools"),
    (r"mtp", "needs a checkpoint with such a head"),
    (
        r"^(?!simulate).*(/concepts/|figures\.md|drafters-measured\.md)",
        "is of a measurement, which says what it ran on",
    ),
    (r"--costs|--baseline|--tensor-parallel", "needs what an earlier command makes"),
    (r"^adapt |^export .*--prompts", "needs traffic of many conversations"),
)
"""Commands that are only parsed: what they match, place included, and why."""

SHORTER = {
    "audit": ("--limit", "1", "--effect", "0.4", "--greedy-tokens", "16"),
    "bench": ("--limit", "1", "--max-tokens", "8"),
    "chat": ("--max-tokens", "8"),
    "demo": ("--max-tokens", "8"),
    "doctor": ("--seconds", "3", "--no-keep", "--max-tokens", "8"),
    "export": ("--no-measure", "--force"),
    "generate": ("--max-tokens", "8"),
    "learn": ("--no-open",),
    "watch": ("--once",),
    "train": (
        *("--sequence-length", "64", "--generation-tokens", "64"),
        *("--validation", "0.2", "--validation-windows", "2", "--batch-size", "2"),
    ),
}
"""What is added to a command, so that it ends soon."""

REFUSED = ((r"^export .* medusa", 2), (r"^info my/mamba", 1))
"""Commands that documents show because they are refused, with their exit codes."""

FEWER = {
    "--minutes": ("--steps", "2"),
    "--self-prompts": ("--self-prompts", "8"),
    "--max-model-len": ("--max-model-len", "1024"),
}
"""What stands in for an option and its value: the bundled model has 2048 positions."""


def key(shown: Shown) -> str:
    return f"{shown.place} {' '.join(shown.words)}"[:100]


@pytest.mark.parametrize("shown", ALL, ids=key)
def test_a_command_is_one_that_the_command_line_takes(shown: Shown) -> None:
    if shown.words != ("--version",):
        parsed(shown.words)


def test_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(("generate", "x", "--temprature", "0.5"))
    with pytest.raises(Exception, match="valid integer"):
        parsed(("generate", "x", "--max-tokens", "few"))


def test_the_documents_show_commands() -> None:
    assert len(ALL) > 80
    assert {"demo", "generate", "chat", "serve", "doctor", "bench", "audit", "train", "export"} <= {
        each.words[0] for each in ALL
    }


def why_not(shown: Shown) -> str:
    text = f"{' '.join(shown.words)} @ {shown.place}"
    return next((reason for pattern, reason in PARSED_ONLY if re.search(pattern, text)), "")


RUN = list({each.words: each for each in reversed(ALL) if not why_not(each)}.values())[::-1]
"""Each command once, however many documents show it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: models and files under the names that the documents use."""
    return furnish(tmp_path_factory.mktemp("reader"))


def shortened(words: tuple[str, ...]) -> list[str]:
    """The command with small budgets, and outputs of its own."""
    made = list(words)
    for option, fewer in FEWER.items():
        if option in made:
            at = made.index(option)
            made[at : at + 2] = fewer
    return made + list(SHORTER.get(words[0], ()))


@contextmanager
def serving(words: list[str], folder: Path) -> Iterator[str]:
    """The URL of a server of the guides, which comes up, and goes when it is asked to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = {"HEADSTART_API_KEY": "a-key-of-some-length"} if "0.0.0.0" in words else {}
    with begun([*words, "--port", str(port), "--max-length", "512"], folder, **key) as command:
        for _ in range(3000):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                assert command.runs, command.ended(0)
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        command.interrupt()
        code, said = command.ended(60)
        assert code == 0, said


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """The URL of a server that stands for those that documents name."""
    with serving(["serve", "my-chat-model", "--served-model-name", "served"], folder) as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("shown", RUN, ids=key)
def test_a_command_runs(shown: Shown, folder: Path, request: pytest.FixtureRequest) -> None:
    words = shortened(shown.words)
    if words[0] == "serve":
        with serving(list(shown.words), folder):
            return
    for at, word in enumerate(words):
        if word in ("-o", "--output") and words[0] == "train":
            words[at + 1] += "-trained"  # other commands find what is there under the name itself
            shutil.rmtree(folder / words[at + 1], ignore_errors=True)
        if word.startswith("http://"):
            url = request.getfixturevalue("server")
            if any(each.startswith(url) for each in words):
                url = url.replace("127.0.0.1", "localhost")  # as another server: one is given once
            words[at] = re.sub(r"http://[^/]*", url, word)
    with begun(words, folder, "Write a message.\n") as command:
        code, said = command.ended(580)
    assert code == next((code for pattern, code in REFUSED if re.search(pattern, " ".join(words))), 0), said


PYTHON = {
    path: found
    for path in SHOWING
    if (found := [(line, text) for line, language, text in blocks(path) if language == "python"])
}
"""The programs of each document, in their order."""

PYTHON_READ_ONLY = (
    (r"vllm|parity", "needs a vLLM"),
    (r"mtp|dspark|GPTQ", "needs a model that the bundled pair is not"),
    (r"simulate as sim", "is run by tests/learn/simulate/test_simulate_guide.py"),
)
"""Programs that are only compiled."""


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_the_programs_of_a_document_are_python(path: Path) -> None:
    for line, text in PYTHON[path]:
        without_answers = re.sub(r"(?m)^>>> |^'.*", "", text)
        compile(without_answers, f"{path}:{line}", "exec")


def read_only(text: str) -> bool:
    return any(re.search(pattern, text) for pattern, _ in PYTHON_READ_ONLY)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "path",
    [path for path, programs in PYTHON.items() if not all(read_only(text) for _, text in programs)],
    ids=lambda path: path.stem,
)
def test_the_programs_of_a_document_run(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """One after the other, as a reader would type them who has `hs`, and has chosen a target and a prompt.
    Readers need not close what they open."""
    monkeypatch.chdir(folder)
    known: dict[str, Any] = {"hs": hs, "target": "my-model", "prompt": "def area(w, h):"}
    for line, text in PYTHON[path]:
        if read_only(text):
            continue
        if "http://127.0.0.1:8000" in text:
            pytest.importorskip("openai")
            text = text.replace("http://127.0.0.1:8000", request.getfixturevalue("server"))
            text = re.sub(r'model="[^"]*"', 'model="served"', text)
        exec(compile(text, f"{path}:{line}", "exec"), known)
