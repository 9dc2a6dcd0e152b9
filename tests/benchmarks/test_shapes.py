"""benchmarks/shapes.py: every figure, from workers made here and from headstart's own on a tiny model."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("configurations", "contenders", "workers", "provenance", "forward", "gguf_peers", "shapes")

FAKE = textwrap.dedent(
    """
    import json, sys
    options = json.loads(sys.argv[1])
    def say(message): print(json.dumps(message), flush=True)
    engine = sys.argv[0].rpartition("run_")[2].removesuffix(".py")
    rate = {"headstart": 40, "llamacpp": 20, "openvino": 32}[engine]
    if engine == "openvino":
        assert open(options["target"]).read() == options["target"].rpartition("-")[2]
    say({"ready": {"versions": {}, "options": options, **({} if engine == "openvino" else {"bytes_before": 1000})}})
    for line in sys.stdin:
        request = json.loads(line)
        if "rows" in request:
            say({"seconds": 0.001 * (1 + request["rows"] / 10) * 40 / rate})
            continue
        count, prompt = request["new_tokens"], len(request["prompts"][0])
        say({"tokens": [[1] * count], "seconds": prompt / 1000 + count / rate})
    """
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("shapes")
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder "folder" and a file "file.gguf" of the same tiny shape."""
    spec = importlib.util.spec_from_file_location("random_model", ROOT / "tools" / "random_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_model"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    where = tmp_path_factory.mktemp("models")
    line = ["llama-3.2-1b", "--tiny", "--layers", "2", "--type", "Q8_0"]
    module.main([*line, "--folder", str(where / "folder"), "--gguf", str(where / "file.gguf")])
    return where


@pytest.fixture
def fakes(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Environments whose python is this one, and workers made here."""
    for name in ("headstart", "llamacpp", "openvino"):
        (tmp_path / f"run_{name}.py").write_text(FAKE)
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    (tmp_path / "to_openvino.py").write_text("import sys, pathlib; pathlib.Path(sys.argv[2]).write_text(sys.argv[4])")
    monkeypatch.setattr(sys.modules["gguf_peers"], "WORKERS", tmp_path)
    places = bench.Places
    monkeypatch.setattr(bench, "Places", lambda *paths: places(*paths, workers=tmp_path))
    monkeypatch.setattr(bench, "read_bandwidth", lambda size: 1e9)
    return tmp_path


def run(bench: ModuleType, results: Path, *line: str) -> dict[str, dict[str, dict[str, object]]]:
    bench.main([*line, "--results", str(results)])
    (written,) = results.glob("shapes-*.json")
    record = json.loads(written.read_text())
    assert record["provenance"]["command"].startswith("python ")
    found: dict[str, dict[str, dict[str, object]]] = record["models"]
    return found


def test_every_figure_in_turn_with_the_peers(
    bench: ModuleType, models: Path, fakes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(models / "folder"), str(models / "file.gguf"), "--environments", str(fakes), "--rounds", "2"]
    line += [
        "--repetitions",
        "2",
        "--readings",
        "2",
        "--lengths",
        "512",
        "4096",
        "--threads",
        "1",
        "--formats",
        "float32",
        "int4",
    ]
    found = run(bench, fakes / "results", *line)
    assert list(found) == ["folder float32", "folder int4", "file.gguf"]

    file, folder = found["file.gguf"], found["folder int4"]
    assert file["decoding"] == {
        "tokens_per_second": {
            "headstart plain": pytest.approx([40.0, 40.0]),
            "llama.cpp plain": pytest.approx([20.0, 20.0]),
        },
        "bandwidth": [1e9, 1e9],
    }
    assert file["forwards"]["llama.cpp plain"]["8"] == pytest.approx(0.0036)
    assert list(file["forwards"]["headstart plain"]) == ["1", "2", "4", "8", "16", "32"]
    assert file["reading"]["headstart plain"] == {
        "512": pytest.approx([0.537] * 2),
        "4096": pytest.approx([4.121] * 2),
    }
    size = (models / "file.gguf").stat().st_size
    assert file["weights"]["stored"] == size
    assert 0.9 * size < file["weights"]["read"] < size  # tied, so all but the head of the file
    ratios = file["figures"]
    assert ratios["over_best_peer"] == {"headstart plain": pytest.approx(2.0)}
    assert ratios["many_rows"]["headstart plain"] == pytest.approx(1.8 / 1.1)
    assert ratios["share_of_bandwidth"]["llama.cpp plain"] == pytest.approx(file["weights"]["read"] * 20 / 1e9)
    memory = file["memory"]["headstart plain"]
    assert memory["taken"] == memory["whole"] - 1000
    assert ratios["memory"]["headstart plain"] == pytest.approx(memory["taken"] / size)
    assert file["absent"] == {}

    assert folder["figures"]["over_best_peer"] == {"headstart plain": pytest.approx(40 / 32)}
    assert "OpenVINO plain" not in folder["figures"]["share_of_bandwidth"]
    assert "OpenVINO plain" not in folder["figures"]["memory"]
    assert folder["memory"]["OpenVINO plain"]["whole"] > 0
    assert folder["facts"]["headstart plain"]["options"]["precision"] == "int4"
    assert folder["facts"]["headstart plain"]["options"]["dtype"] == "bfloat16"
    assert folder["facts"]["headstart plain"]["options"]["context"] > 4096
    assert found["folder float32"]["facts"]["headstart plain"]["options"]["dtype"] == "float32"
    assert "OpenVINO plain" in found["folder float32"]["absent"]
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("folder int4: milliseconds", "2.00", "1.25", "prompt 4096", "32 rows", "absent: OpenVINO plain"):
        assert text in shown


def test_a_file_beside_a_folder_and_a_reference_beside_both(bench: ModuleType, models: Path, fakes: Path) -> None:
    (fakes / "openvino-int4").write_text("int4")
    folder, file = str(models / "folder"), str(models / "file.gguf")
    line = [folder, file, "--environments", str(fakes), "--formats", "bf16", "int8", "--rounds", "1"]
    line += [
        "--repetitions",
        "1",
        "--readings",
        "1",
        "--gguf",
        f"int8={file}",
        "--openvino",
        str(fakes / "openvino-int4"),
    ]
    found = run(bench, fakes / "results", *line, "--reference", folder, file)
    everyone = {"headstart plain", "llama.cpp plain", "OpenVINO plain", "headstart, the reference"}
    assert found["folder int8"]["decoding"]["tokens_per_second"].keys() == everyone
    assert found["file.gguf"]["decoding"]["tokens_per_second"].keys() == everyone
    assert found["folder bf16"]["decoding"]["tokens_per_second"].keys() == everyone - {"llama.cpp plain"}
    int8 = found["folder int8"]
    assert int8["facts"]["llama.cpp plain"]["options"]["target"] == file
    assert int8["facts"]["headstart, the reference"]["options"]["precision"] == "int8"
    assert found["file.gguf"]["facts"]["OpenVINO plain"]["options"]["target"].endswith("openvino-int4")
    stored = {"headstart plain": int8["weights"]["stored"], "llama.cpp plain": (models / "file.gguf").stat().st_size}
    for name, size in stored.items():  # each by the weights that it was given
        assert int8["figures"]["memory"][name] == pytest.approx(int8["memory"][name]["taken"] / size)
    assert int8["figures"]["over_best_peer"] == {"headstart plain": pytest.approx(40 / 32)}
    assert int8["figures"]["over_reference"] == {"headstart plain": pytest.approx(1.0)}
    assert int8["reference"]["weights"] == int8["weights"]


def test_two_shapes_are_compared_by_the_bytes_that_they_read(bench: ModuleType) -> None:
    found = {
        "weights": {"stored": 400, "read": 300},
        "reference": {"model": "other", "weights": {"stored": 200, "read": 100}},
        "decoding": {
            "tokens_per_second": {"headstart plain": [10.0, 20.0], "headstart, the reference": [60.0, 80.0]},
            "bandwidth": [10000.0, 10000.0],
        },
        "forwards": {},
        "memory": {},
    }
    made = bench.figures(found)
    assert made["over_reference"] == {"headstart plain": pytest.approx((0.5 + 0.75) / 2)}
    assert made["share_of_bandwidth"]["headstart, the reference"] == pytest.approx(0.7)


def test_the_share_of_the_rows_that_recurrent_layers_run_again(bench: ModuleType) -> None:
    """Steps are asked for so that each finds as many rows waiting as it is counted under, and none are lost."""
    asked: list[tuple[int, int, int]] = []

    class Stepping:
        def forward(self, rows: int, context: int, kept: int = 0) -> float:
            asked.append((rows, context, kept))
            return 1.0 + (context - 20) % 8 / 100 + 0.2 * (kept == 0)

    args = argparse.Namespace(cached=20, repetitions=2)
    found = bench.replays(Stepping(), 8, 4, args)
    assert asked == [(8, 20, 0), (8, 20, 4), (8, 24, 4), (8, 28, 0), (8, 28, 4), (8, 32, 4),
                     (8, 36, 0)]  # fmt: skip
    assert found == {0: [1.0, 1.0], 4: [1.04, 1.04], 8: [1.2, 1.2]}
    assert list(bench.replays(Stepping(), 1, 1, args)) == list(range(9))
    empty = {"decoding": {"tokens_per_second": {}, "bandwidth": []}, "forwards": {}, "memory": {}, "weights": {}}
    made = bench.figures({**empty, "replays": {"8 rows, 4 kept": found}})
    assert made["replay"] == {"8 rows, 4 kept": pytest.approx(0.12)}


def test_who_is_absent_is_listed(bench: ModuleType, models: Path, fakes: Path) -> None:
    (fakes / "openvino" / "bin" / "python").unlink()
    (fakes / "run_llamacpp.py").write_text("raise SystemExit('no such library')")
    line = [str(models / "folder"), str(models / "file.gguf"), "--environments", str(fakes), "--formats", "bf16"]
    found = run(bench, fakes / "results", *line, "--rounds", "1", "--repetitions", "1")
    assert "no environment 'openvino'" in found["folder bf16"]["absent"]["OpenVINO plain"]
    assert "no such library" in found["file.gguf"]["absent"]["llama.cpp plain"]
    assert found["file.gguf"]["figures"]["over_best_peer"] == {}
    assert found["file.gguf"]["figures"]["many_rows"].keys() == {"headstart plain"}


def test_headstart_itself(bench: ModuleType, models: Path, tmp_path: Path) -> None:
    line = [str(models / "folder"), str(models / "file.gguf"), "--formats", "int4", "--rounds", "1", "--threads", "1"]
    line += ["--repetitions", "1", "--lengths", "40", "--max-tokens", "4", "--cached", "20"]
    for each in run(bench, tmp_path, *line).values():
        assert each["absent"] == {}
        assert each["facts"]["headstart plain"]["decoder"] == "fused"
        (speed,) = each["decoding"]["tokens_per_second"]["headstart plain"]
        assert speed > 0
        assert each["figures"]["memory"]["headstart plain"] > 1
        assert each["figures"]["share_of_bandwidth"]["headstart plain"] > 0
        assert set(each["forwards"]["headstart plain"]) == {str(n) for n in bench.ROWS}
        assert each["reading"]["headstart plain"].keys() == {"40"}


def test_the_bytes_of_a_folder(bench: ModuleType, models: Path) -> None:
    """A tied embedding is the head, so all is read; int8 is half of bf16, but for norms."""
    weights = {kind: bench.weights_of_folder(models / "folder", kind) for kind in bench.FORMATS}
    stored = (models / "folder" / "model.safetensors").stat().st_size
    assert weights["bf16"].stored == weights["bf16"].read == pytest.approx(stored, rel=0.01)
    assert weights["float32"].read == 2 * weights["bf16"].read
    assert weights["int8"].read == pytest.approx(weights["bf16"].read / 2, rel=0.01)
    head = weights["bf16"].vocabulary * 256
    others = weights["bf16"].read / 2 - head
    assert weights["int4"].read == pytest.approx((5 * others + 8.5 * head) / 8, rel=0.01)


def test_embeddings_that_are_looked_up_are_not_read(bench: ModuleType, tmp_path: Path) -> None:
    shapes = {"model.embed_tokens.weight": [100, 10], "lm_head.weight": [100, 10], "model.layers.0.a.weight": [4, 10]}
    shapes["model.embed_tokens_per_layer.weight"] = [100, 30]
    entries = {name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    head = json.dumps(entries).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 100}}')
    assert bench.weights_of_folder(tmp_path, "bf16") == bench.Weights(2 * 5040, 2 * 1040, 100)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["missing"], "neither a file nor a folder"),
        ([".", "--rounds", "0"], "neither a file nor a folder"),
        (["{model}", "--rounds", "0"], "--rounds must be at least 1"),
        (["{model}", "--lengths", "512", "0"], "--lengths must be at least 1"),
        (["{model}", "--formats", "int2"], "--formats"),
        (["{model}", "--gguf", "missing.gguf"], "is not FORMAT=FILE"),
        (["{model}", "--gguf", "int8=missing.gguf"], "neither a file nor a folder"),
        (["{model}", "--reference", "missing"], "neither a file nor a folder"),
    ],
)
def test_options_are_checked(
    bench: ModuleType, models: Path, capsys: pytest.CaptureFixture[str], line: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        bench.parse([each.format(model=models / "folder") for each in line])
    assert message in capsys.readouterr().err
