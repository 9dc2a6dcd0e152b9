"""benchmarks/peers.py against workers made here: selection, absence, crashes, ratios. No peer is needed."""

from __future__ import annotations

import importlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("configurations", "workers", "peer_rounds", "provenance", "peer_report", "peers")

FAKE = textwrap.dedent(
    """
    import json, os, sys
    options = json.loads(sys.argv[1])
    def say(message): print(json.dumps(message), flush=True)
    # The engine's name is in the script's; how it behaves is in here.
    engine = os.path.basename(sys.argv[0])[len("run_"):-len(".py")]
    if engine == "openvino" and options["precision"] == "int8":
        say({"error": "ImportError: no such part in /some/where/else.py"}); sys.exit(1)
    rates = {"headstart": 40, "transformers": 10, "vllm": 20, "openvino": 25, "llamacpp": 16}
    say({"ready": {"versions": {engine: "1.0"}}})
    for line in sys.stdin:
        request = json.loads(line)
        if engine == "llamacpp" and options["mode"] == "draft":
            print("a crash in the kernels", file=sys.stderr, flush=True)
            os.abort()
        count, prompts = request["new_tokens"], request["prompts"]
        rate = rates[engine] * len(prompts)
        if options["mode"] != "plain":
            rate *= {None: 2.0, 3: 1.5, 5: 2.0, 8: 1.2, 6: 1.8, 12: 1.1}[options["k"]]
        if options["precision"] == "int8":
            rate *= 2
        tokens = [[prompt[0]] * count for prompt in prompts]
        if engine == "vllm" and prompts[0][0] == 8:
            tokens[0][-1] += 1
        say({"tokens": tokens, "seconds": count * len(prompts) / rate, "forwards": None})
    """
)


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in NAMES:
            sys.modules.pop(name, None)


@pytest.fixture
def places(modules: dict[str, ModuleType], tmp_path: Path) -> Any:
    """Environments for all peers but vLLM's: their python is this one. Checkpoints are never read."""
    scripts, environments = tmp_path / "workers", tmp_path / "environments"
    scripts.mkdir()
    for engine in modules["configurations"].ENGINES:
        (scripts / f"run_{engine}.py").write_text(FAKE)
    for script in ("to_gguf.py", "to_openvino.py"):
        (scripts / script).write_text("import sys, pathlib; pathlib.Path(sys.argv[2]).write_text(sys.argv[4])")
    for engine in ("openvino", "llamacpp"):
        link = environments / engine / "bin" / "python"
        link.parent.mkdir(parents=True)
        link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        link.chmod(0o755)
    for name in ("target", "draft", "eagle"):
        (tmp_path / name).mkdir()
    converted = tmp_path / "converted"
    return modules["configurations"].Places(
        tmp_path / "target", tmp_path / "draft", environments, converted, scripts, tmp_path / "eagle"
    )


def measured(modules: dict[str, ModuleType], places: Any, engines: list[str], **change: Any) -> tuple[Any, ...]:
    """trials, selected, rounds and entries of one short run."""
    peers = modules["peers"]
    given = {"depths": (3, 5), "batches": (1, 2), "rounds": 2, "room": 1 << 40, **change}
    start = modules["workers"].Starter(places, threads=1, context=64, batch=2).start
    prompts = [[7, 1], [8, 1]]
    work = peers.works(prompts, given["batches"], 2, 4)
    configurations = modules["configurations"].all_configurations(engines, given["depths"])
    console = Console(file=open(os.devnull, "w"))  # noqa: SIM115
    trials, selected, rounds = peers.measure(start, configurations, work, work, given["rounds"], given["room"], console)
    console.file.close()
    entries = modules["peer_report"].entries_of(selected, rounds, given["rounds"], work)
    return trials, selected, rounds, entries


def test_the_best_setting_is_chosen(modules: dict[str, ModuleType], places: Any) -> None:
    trials, selected, rounds, entries = measured(modules, places, ["headstart", "transformers"], depths=(3, 5, 8))
    assert all(t.absent is None for t in trials)
    assert not rounds.failures
    assert dict(selected[("headstart", "bf16", "draft"), 1].configuration.settings) == {"k": None}  # it paces itself
    role = ("transformers", "bf16", "draft")
    assert dict(selected[role, 1].configuration.settings) == {"k": 5}
    assert selected[role, 1].speeds == pytest.approx({1: 20})
    assert (("transformers", "bf16", "draft"), 2) not in selected  # it speculates for one prompt only
    assert {e.batch for e in entries if e.role == ("transformers", "bf16", "plain")} == {1, 2}
    assert all(len(e.samples) == 2 for e in entries)


@pytest.mark.parametrize("together", [False, True])
def test_settings_chosen_before_are_run_without_a_selection(
    modules: dict[str, ModuleType], places: Any, tmp_path: Path, together: bool
) -> None:
    peers, settings = modules["peers"], tmp_path / "settings.json"
    given = [
        {"engine": "headstart", "precision": "bf16", "mode": "list", "batches": [1, 2], "k": None},
        {"engine": "transformers", "precision": "bf16", "mode": "draft", "batches": [1], "k": 3},
        {"engine": "transformers", "precision": "bf16", "mode": "draft", "batches": [1], "k": 5},
    ]
    settings.write_text(json.dumps(given))
    start = modules["workers"].Starter(places, threads=1, context=64, batch=2).start
    work = peers.works([[7, 1], [8, 1]], (1, 2), 2, 4)
    with open(os.devnull, "w") as nowhere:
        chosen = peers.read_settings(settings)
        trials, selected, rounds = peers.measure_chosen(start, chosen, work, 2, Console(file=nowhere), together)
    entries = modules["peer_report"].entries_of(selected, rounds, 2, work)
    assert [(str(e.configuration), e.batch, e.speeds) for e in entries] == [
        ("headstart bf16, n-gram, then draft LM (K=its own)", 1, pytest.approx([80, 80])),
        ("headstart bf16, n-gram, then draft LM (K=its own)", 2, pytest.approx([160, 160])),
        ("transformers bf16, draft LM (K=3)", 1, pytest.approx([15, 15])),  # each setting has turns of its own
        ("transformers bf16, draft LM (K=5)", 1, pytest.approx([20, 20])),
    ]
    assert "| transformers bf16, draft LM | 20.0 |  |" in modules["peer_report"].markdown(entries, (1, 2))
    assert all(t.facts["versions"] for t in trials)


def test_without_a_draft_model_the_head_alone_takes_part(modules: dict[str, ModuleType], places: Any) -> None:
    configurations = modules["configurations"]
    found = configurations.all_configurations(["headstart", "openvino", "vllm"], (3,), configurations.WITH_DRAFT)
    assert {c.mode for c in found if c.engine == "headstart"} == {"plain", "ngram", "head", "heads"}
    assert {c.mode for c in found if c.engine == "vllm"} == {"plain", "ngram"}  # it is given no head
    trees = [dict(c.settings) for c in found if c.engine == "openvino" and c.precision == "bf16" and c.mode == "head"]
    assert trees == [{"k": 3}, {"k": 6, "tree_depth": 3}, {"k": 12, "tree_depth": 4}]
    start = modules["workers"].Starter(places, threads=1, context=64, batch=2).start
    worker = start(next(c for c in found if c.engine == "openvino" and c.mode == "head"))
    worker.stop()
    assert [file.name.split("-")[0] for file in places.converted.iterdir()].count("eagle") == 1
    without = (
        modules["workers"].Starter(replace(places, drafter=None, eagle=None), threads=1, context=64, batch=2).start
    )
    for mode, missing in (("head", "--eagle"), ("draft", "--drafter")):
        with pytest.raises(configurations.Absent, match=missing):  # and not plain decoding under their names
            without(configurations.Configuration("headstart", "bf16", mode, settings=(("k", None),)))


def test_what_is_missing_is_listed(modules: dict[str, ModuleType], places: Any) -> None:
    trials, _, rounds, entries = measured(modules, places, ["vllm", "openvino"], batches=(1,), rounds=1)
    absent = modules["peer_report"].absences(trials, rounds.failures)
    assert "no environment 'vllm'" in absent["vLLM bf16, plain"]
    assert absent["OpenVINO int8, draft LM"] == "ImportError: no such part in else.py"
    assert {e.role[0] for e in entries} == {"openvino"}


def test_a_crash_is_reported(modules: dict[str, ModuleType], places: Any) -> None:
    trials, _, rounds, entries = measured(modules, places, ["llamacpp"], depths=(5,))
    absent = modules["peer_report"].absences(trials, rounds.failures)
    assert absent["llama.cpp int8, draft LM"] == "ended by SIGABRT: a crash in the kernels"
    assert {e.role[2] for e in entries} == {"plain", "ngram"}


def test_a_crash_in_the_rounds_ends_one_only(modules: dict[str, ModuleType]) -> None:
    rounds, configurations = modules["peer_rounds"], modules["configurations"]

    class Fake:
        facts: dict[str, Any] = {}

        def __init__(self, configuration: Any) -> None:
            self.calls_left = 3 if configuration.engine == "vllm" else 100

        def complete(self, prompts: Any, new_tokens: int) -> Any:
            self.calls_left -= 1
            if not self.calls_left:
                raise configurations.Absent("gone")
            return modules["workers"].Sample(tuple((1,) * new_tokens for _ in prompts), 1.0)

        def memory(self) -> int:
            return 1

        def stop(self) -> None:
            pass

    chosen = [configurations.Configuration(engine, "bf16", "plain") for engine in ("headstart", "vllm")]
    selected = {(c.role, 1): rounds.Trial(c, {1: 1.0}, 1) for c in chosen}
    work = [rounds.Work(1, ([[1]], [[2]], [[3]]), 4)]
    result = rounds.Course(Fake, selected, work, 2).run(2)
    assert result.failures == {"vLLM bf16, plain": "gone"}
    assert list(result.complete_rows(2, work)) == [(chosen[0].role, 1)]


def test_ratios_and_same_tokens(modules: dict[str, ModuleType], places: Any) -> None:
    vllm = places.environments / "vllm" / "bin"
    vllm.mkdir(parents=True)
    (vllm / "python").write_bytes((places.environments / "openvino" / "bin" / "python").read_bytes())
    (vllm / "python").chmod(0o755)
    engines = ["headstart", "transformers", "vllm", "openvino"]
    trials, selected, _, entries = measured(modules, places, engines)
    report = modules["peer_report"]
    found = {(r["name"], r["batch"]): r for r in report.found_ratios(entries, (1, 2))}
    best = found["best bf16 / best bf16 of a peer", 1]
    assert best["ratios"] == pytest.approx([80 / 50] * 2)
    assert best["theirs"].startswith("OpenVINO bf16")
    assert found["plain bf16 / best plain bf16 of a peer", 1]["ratios"] == pytest.approx([40 / 25] * 2)
    assert found["best bf16 / vLLM, its best", 2]["ratios"] == pytest.approx([160 / 80] * 2)
    assert ("best int8 / OpenVINO int8, its best", 1) not in found  # the fake's int8 refuses to start
    rows = {row[0]: row for row in report.rows_of(entries, 1)}
    assert rows["vLLM bf16, plain"][3:] == ("4.00", "1 of 2")
    assert rows["headstart bf16, draft LM"][3:] == ("1.00", "2 of 2")
    written = json.loads(json.dumps(report.as_json(entries, trials, selected)))
    assert {s["configuration"] for s in written["selection"] if s["chosen_for_batch"]} >= {"vLLM bf16, draft LM (K=5)"}
    assert "| **best bf16 / best bf16 of a peer** | **1.60** |" in report.markdown(entries, (1, 2))


def test_a_waiting_worker_is_stopped(modules: dict[str, ModuleType], places: Any) -> None:
    configuration = modules["configurations"].Configuration("transformers", "bf16", "plain")
    worker = modules["workers"].Starter(places, threads=1, context=64, batch=1).start(configuration)
    try:
        process = worker._process.pid
        assert _state(process) == "T"
        assert worker.complete([[3]], 4).tokens == ((3, 3, 3, 3),)
        assert _state(process) == "T"
        assert worker.memory() > 0
    finally:
        worker.stop()
    assert not Path(f"/proc/{process}").exists()


def _state(process: int) -> str:
    late = time.monotonic() + 60.0
    while True:  # a signal takes a moment to arrive, a long one where the machine is busy
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T" or time.monotonic() > late:
            return state
        time.sleep(0.001)


def test_rivals_share_a_heat(modules: dict[str, ModuleType]) -> None:
    rounds, configurations = modules["peer_rounds"], modules["configurations"]
    made = {}
    for engine in ("headstart", "vllm"):
        for mode, found in (("plain", 9.0), ("ngram", 1.0), ("draft", 2.0)):
            made[engine, mode] = rounds.Trial(configurations.Configuration(engine, "bf16", mode), {1: found}, 4)
    selected = {(t.configuration.role, 1): t for t in made.values()}
    groups = rounds.heats(rounds.in_order(selected), 9)
    assert [[(c.engine, c.mode) for c in group] for group in groups] == [
        [("headstart", "draft"), ("vllm", "draft")],
        [("headstart", "ngram"), ("vllm", "ngram")],
        [("headstart", "plain"), ("vllm", "plain")],
    ]
    assert len(rounds.heats(rounds.in_order(selected), 24)) == 1


@pytest.mark.parametrize("wrong", [["--rounds", "0"], ["--batch", "1", "0"], ["-k", "0"], ["--only", "other"]])
def test_options_are_checked(
    modules: dict[str, ModuleType], tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    base = ["--target", str(tmp_path), "--drafter", str(tmp_path), "--prompts", "p", "--environments", "e"]
    with pytest.raises(SystemExit):
        modules["peers"].parse([*base, *wrong])
    assert wrong[0] in capsys.readouterr().err
    assert modules["peers"].parse([*base, "--batch", "8", "1", "8"]).batch == [1, 8]
