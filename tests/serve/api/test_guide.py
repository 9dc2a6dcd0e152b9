"""The examples of the guide are tried: every curl line and every Python block."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_server import serving

import headstart as hs

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "serve.md"
CHAT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def urls(models: Path) -> Iterator[dict[bool, str]]:
    """The servers of the guide: of texts (False), and of conversations (True), here a tiny one under that name."""
    chat = hs.load(models / "target", models / "draft", dtype="float32", max_length=512, pacing="fixed")
    with (
        serving(hs.load(max_batch_size=2, pacing="fixed"), {"served_model_name": ("bundled",)}) as texts,
        serving(chat, {"served_model_name": (CHAT_MODEL,)}) as conversations,
    ):
        yield {False: texts.url, True: conversations.url}


@pytest.mark.parametrize(("language", "block"), BLOCKS, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(BLOCKS)])
def test_an_example(urls: dict[bool, str], language: str, block: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = block.replace("http://127.0.0.1:8000", urls["chat" in block])
    assert code != block, "it asks the server"
    if language == "python":
        names: dict[str, object] = {}
        exec(code, names)
        names["client"].close()  # type: ignore[attr-defined]
        assert capsys.readouterr().out
        return
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["choices"], done.stdout


def test_there_are_examples_of_both_kinds() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python"}
    assert len(BLOCKS) >= 5
