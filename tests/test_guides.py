"""The commands and programs of the documents run as they are shown.

Every command is parsed by the command line that it is for. The slow tests run each in a folder that has what its names
stand for: the bundled pair under the names of models, small files under the names of files. Budgets are cut short, and
a command that needs what no test has (vLLM, another machine, a model of gigabytes) is named in `PARSED_ONLY`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.guides import ROOT, SHOWING, Shown, blocks, commands, furnish, parsed

ALL = [each for path in SHOWING for each in commands(path)]

PARSED_ONLY = (
    (r"^launch |--vllm|--verify|--check-only", "needs a vLLM"),
    (r"^watch http|--endpoint|--fleet", "needs servers that run"),
    (r"[qQ]wen|mixture|mtp|mamba|W8A8|\.gguf", "needs a model of a kind that the bundled pair is not"),
    (r"/concepts/|figures\.md|drafters-measured\.md", "is of a measurement, which says what it was run on"),
    (r"--begin-with|--costs|--ledger|--tensor-parallel", "needs what an earlier command makes"),
    (r"^adapt |^export .*--prompts", "needs traffic of many conversations"),
)
"""Commands that are only parsed: what they match, place included, and why."""

SHORTER = {
    "audit": ("--limit", "1", "--effect", "0.4"),
    "bench": ("--limit", "1", "--max-tokens", "8"),
    "chat": ("--max-tokens", "8"),
    "demo": ("--max-tokens", "8"),
    "doctor": ("--seconds", "3", "--no-keep", "--max-tokens", "8"),
    "export": ("--no-measure", "--force"),
    "generate": ("--max-tokens", "8"),
    "learn": ("--no-open",),
    "train": (
        "--sequence-length",
        "64",
        "--generation-tokens",
        "16",
        "--validation",
        "0.2",
        "--validation-windows",
        "4",
    ),
}
"""What is added to a command, so that it ends soon."""

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


def begun(words: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HEADSTART_API_KEY": "a-key-of-some-length"}
    return subprocess.Popen(
        [sys.executable, "-m", "headstart", *words],
        cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shown", RUN, ids=key)
def test_a_command_runs(shown: Shown, folder: Path) -> None:
    if shown.words[0] == "serve":
        return answers(list(shown.words), folder)
    if shown.words[0] == "train":
        for path in folder.glob("my-head*"):
            if not path.is_symlink():
                shutil.rmtree(path)
    words = shortened(shown.words)
    if "my-head" in words and words[0] == "train":
        words[words.index("my-head")] = "my-heads-trained"
        shutil.rmtree(folder / "my-heads-trained", ignore_errors=True)
    process = begun(words, folder)
    said, _ = process.communicate("Write a message.\n", timeout=580)
    refused = shown.words[0] == "export" and "medusa" in shown.words
    assert process.returncode == (2 if refused else 0), said
    return None


def answers(words: list[str], folder: Path) -> None:
    """A server of the guide comes up, and goes when it is asked to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = begun([*words, "--port", str(port), "--max-length", "512"], folder)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()


PYTHON = [
    (path, line, text)
    for path in (ROOT / "README.md", *((ROOT / "docs" / "guides" / f"{name}.md") for name in ("quickstart", "chat")))
    for line, language, text in blocks(path)
    if language == "python"
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "line", "text"), PYTHON, ids=[f"{path.stem}:{line}" for path, line, _ in PYTHON])
def test_a_program_runs(path: Path, line: int, text: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
