"""benchmarks/gguf_peers.py with workers made here: ratios, who is absent, what is written. No peer is needed."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("configurations", "contenders", "workers", "provenance", "forward", "gguf_peers")

FAKE = textwrap.dedent(
    """
    import json, os, sys
    options = json.loads(sys.argv[1])
    def say(message): print(json.dumps(message), flush=True)
    ours = "headstart" in sys.argv[0]
    rate = (40 if ours else 20) * (2 if options["mode"] != "plain" else 1)
    say({"ready": {"versions": {}}})
    for line in sys.stdin:
        request = json.loads(line)
        if "rows" in request:
            say({"seconds": request["rows"] * (0.001 if ours else 0.002)})
            continue
        if options["mode"] == "ngram" and len(request["prompts"][0]) == 3:
            print("a crash in the kernels", file=sys.stderr, flush=True)
            os.abort()
        count = request["new_tokens"]
        tokens = [request["prompts"][0][0]] * count
        if ours and options["mode"] != "plain":
            tokens[-1] += 1
        say({"tokens": [tokens], "seconds": count / rate})
    """
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("gguf_peers")
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_same_file_in_turns(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("headstart", "llamacpp"):  # there is no run_llamaserver.py
        (tmp_path / f"run_{name}.py").write_text(FAKE)
    python = tmp_path / "llamacpp" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    target = tmp_path / "small.gguf"
    target.write_bytes(b"GGUF")
    monkeypatch.setattr(bench, "WORKERS", tmp_path)
    monkeypatch.setattr(bench, "tokens_of", lambda target, args: [[5, 6], [7, 8, 9]])
    monkeypatch.setattr(bench, "read_bandwidth", lambda: 1e10)
    line = [str(target), "--environments", str(tmp_path), "--server", "llama-server", "--short"]
    bench.main([*line, "--results", str(tmp_path / "results")])

    (written,) = (tmp_path / "results").glob("gguf-peers-small-*.json")
    found = json.loads(written.read_text())["files"]["small.gguf"]
    assert found["answers"]["tokens_per_second"] == {
        "headstart plain": [40.0],
        "headstart n-gram": [80.0],
        "llama.cpp plain": [20.0],
    }
    assert found["answers"]["same_texts"] == {"headstart plain": 2, "headstart n-gram": 0, "llama.cpp plain": 2}
    assert found["forwards"]["llama.cpp plain"] == {str(rows): rows * 0.002 for rows in bench.ROWS}
    assert found["reading"]["headstart plain"] == {"128": [1 / 40]}
    assert set(found["absent"]) == {"llama.cpp lookup, K=5", "llama-server plain", "llama-server n-gram mod"}
    assert "SIGABRT: a crash in the kernels" in found["absent"]["llama.cpp lookup, K=5"]
    assert found["memory"]["headstart plain"] > 0
    assert "2.00 (2.00 to 2.00)" in capsys.readouterr().out


def test_texts_are_compared_with_those_of_the_same_engine_without_drafts(bench: ModuleType) -> None:
    """The server's plain texts are not those of llama.cpp's Python binding: compared with these, its drafts would
    seem to change a text that was another one without them."""
    names = ["headstart plain", "headstart n-gram", "llama.cpp plain", "llama.cpp lookup, K=5", "llama-server plain"]
    names += ["llama-server ngram-simple", "llama-server plain, no repack", "OpenVINO int4-32 lookup, K=2"]
    assert [bench.plain_of(name, names) for name in names] == [
        *("headstart plain", "headstart plain", "llama.cpp plain", "llama.cpp plain"),
        *("llama-server plain", "llama-server plain", "llama-server plain", "OpenVINO int4-32 lookup, K=2"),
    ]
