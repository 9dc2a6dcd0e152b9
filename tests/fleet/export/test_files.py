"""The files of an export: each is what its reader takes, by the keys that the reader documents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from support.exports import deployment, manifest

from headstart.fleet.export.files import all_files, written
from headstart.fleet.export.files.deployment import Deployment

SCHEMAS = Path(__file__).parent / "schemas.yaml"
"""The keys of each format that the files rely on, written down from the formats' own documentation."""

CASES = {
    "eagle3": deployment(),
    "medusa": deployment(manifest(kind="medusa")),
    "draft": deployment(manifest(kind="draft_model"), settings={"tensor-parallel-size": 2, "max-num-seqs": 32}),
    "ngram": deployment(manifest(kind="ngram")),
    "suffix": deployment(manifest(kind="suffix")),
    "hub": deployment(manifest(target="org/model")),
    "cpu": deployment(cpu=True),
    "unmeasured": deployment(manifest(expected=None)),
    "awkward": deployment(name='it\'s "our" $MODEL', settings={"chat-template-content-format": "string"}),
}
YAML = ("vllm.yaml", "compose.yaml", "k8s/production-stack-values.yaml", "k8s/kserve.yaml", "ray-serve.yaml",
        "prometheus.yml", "prometheus-rules.yaml")  # fmt: skip


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SCHEMAS.read_text())
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_yaml_keeps_its_schema(case: Deployment, schemas: dict[str, Any]) -> None:
    files = all_files(case)
    for name in YAML:
        values = yaml.safe_load(files[name])
        validator = jsonschema_rs.validator_for(schemas[name])
        validator.validate(values)
        with pytest.raises(jsonschema_rs.ValidationError):
            validator.validate({**values, "surprise": 1})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_method_is_always_named(case: Deployment) -> None:
    files = all_files(case)
    kind = case.manifest.drafter.kind
    assert yaml.safe_load(files["vllm.yaml"])["speculative-config"]["method"] == kind
    spec = yaml.safe_load(files["k8s/production-stack-values.yaml"])["servingEngineSpec"]["modelSpec"][0]
    args = spec["vllmConfig"]["extraArgs"]
    assert json.loads(args[args.index("--speculative-config") + 1])["method"] == kind
    engine = yaml.safe_load(files["ray-serve.yaml"])["applications"][0]["args"]["llm_configs"][0]["engine_kwargs"]
    assert engine["speculative_config"]["method"] == kind


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_clusters_name_no_path_of_this_machine(case: Deployment) -> None:
    for text in (written("k8s/production-stack-values.yaml", case), written("k8s/kserve.yaml", case)):
        assert "/srv/out" not in text
        assert "/models/my target" not in text


def run_of(script: str, tmp_path: Path, *args: str, program: str = "vllm", folder: Path | None = None) -> list[str]:
    """The words that a script calls a program with. The program is one that prints them."""
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    fake = bin_ / program
    fake.write_text('#!/usr/bin/env bash\nprintf "%s\\0" "$@"\n')
    fake.chmod(0o755)
    path = (folder or tmp_path) / "script.sh"
    path.write_text(script)
    env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(path), *args], capture_output=True, text=True, check=True, env=env)
    return done.stdout.split("\0")[:-1]


def test_the_script_starts_vllm_and_passes_options_on(tmp_path: Path) -> None:
    script = all_files(CASES["ngram"])["serve-vllm.sh"]
    assert run_of(script, tmp_path, "--port", "8001") == [
        "serve", "--config", f"{tmp_path}/vllm.yaml", "--port", "8001",
    ]  # fmt: skip


def test_a_folder_that_was_moved_uses_its_own_drafter(tmp_path: Path) -> None:
    files = all_files(CASES["eagle3"])
    folder = tmp_path / "moved here"
    folder.mkdir()
    (folder / "vllm.yaml").write_text(files["vllm.yaml"])
    words = run_of(files["serve-vllm.sh"], tmp_path, folder=folder)
    values = yaml.safe_load(Path(words[2]).read_text())
    assert values["speculative-config"]["model"] == f"{folder}/drafter"
    assert values["model"] == "/models/my target"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scripts_are_bash(case: Deployment) -> None:
    for name, text in all_files(case).items():
        if name.endswith(".sh"):
            assert text.startswith("#!/usr/bin/env bash\n")
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("eagle3", ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "4",
                    "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "5"]),
        ("draft_model", ["--speculative-algorithm", "STANDALONE"]),
        ("ngram", ["--speculative-algorithm", "NGRAM", "--speculative-ngram-max-bfs-breadth", "1"]),
    ],
)  # fmt: skip
def test_sglang_is_started_with_the_same(kind: Any, words: list[str], tmp_path: Path) -> None:
    one = deployment(manifest("sglang", kind), settings={"max-running-requests": 8})
    files = all_files(one)
    assert "vllm.yaml" not in files
    found = run_of(files["serve-sglang.sh"], tmp_path, "--port", "30001", program="python3")
    assert found[:2] == ["-m", "sglang.launch_server"]
    assert found[-2:] == ["--port", "30001"]
    assert found[found.index("--model-path") + 1] == "/models/my target"
    assert found[found.index("--served-model-name") + 1] == "My Model"
    for flag, value in zip(words[::2], words[1::2], strict=True):
        assert found[found.index(flag) + 1] == value
    if kind != "ngram":
        assert found[found.index("--speculative-draft-model-path") + 1] == f"{tmp_path}/drafter"


@pytest.mark.parametrize("case", [CASES["eagle3"], CASES["awkward"], CASES["ngram"]])
def test_kserves_second_shell_leaves_the_words_whole(case: Deployment, tmp_path: Path) -> None:
    """KServe evaluates `exec vllm serve ... $@` in bash once more."""
    args = yaml.safe_load(written("k8s/kserve.yaml", case))["spec"]["template"]["containers"][0]["args"]
    words = run_of('eval "exec vllm serve /mnt/models $@"', tmp_path, *args)
    speculation = json.loads(words[words.index("--speculative-config") + 1])
    assert speculation["method"] == case.manifest.drafter.kind
    assert all(
        isinstance(each, list) for each in json.loads(words[words.index("--custom-histogram-buckets") + 1]).values()
    )


def test_compose_mounts_what_the_configuration_names() -> None:
    files = all_files(CASES["eagle3"])
    values = yaml.safe_load(files["vllm.yaml"])
    engine = yaml.safe_load(files["compose.yaml"])["services"]["engine-1"]
    places = [mount["target"] for mount in engine["volumes"]]
    for path in (values["model"], values["speculative-config"]["model"], engine["command"][1]):
        assert any(path == place or path.startswith(f"{place}/") for place in places)


def test_two_engines_of_two_gpus_share_none() -> None:
    services = yaml.safe_load(all_files(CASES["draft"])["compose.yaml"])["services"]
    ids = [services[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
           for name in ("engine-1", "engine-2")]  # fmt: skip
    assert ids == [["0", "1"], ["2", "3"]]
    assert "deploy" not in yaml.safe_load(all_files(CASES["cpu"])["compose.yaml"])["services"]["engine-1"]


def test_the_readme_says_what_was_measured_and_what_to_know() -> None:
    text = all_files(CASES["eagle3"])["README.md"]
    assert "3.40 tokens per forward" in text
    assert "3.10 to 3.70, 95% interval" in text
    assert "- a warning" in text
    assert "From 32 requests at once guesses no longer pay" in text
    assert "promises nothing" in all_files(CASES["unmeasured"])["README.md"]


# -- alarms -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it comes with Prometheus (Debian: prometheus)")
    return found


ALARMS = [
    pytest.param(CASES["eagle3"], id="eagle3"),
    pytest.param(CASES["unmeasured"], id="unmeasured", marks=pytest.mark.slow),
    pytest.param(deployment(tpot=0.05, name='it\'s "our" $MODEL'), id="awkward", marks=pytest.mark.slow),
    pytest.param(deployment(manifest("sglang")), id="sglang", marks=pytest.mark.slow),
]


def write_rules(folder: Path, case: Deployment) -> None:
    for name, text in all_files(case).items():
        if name.startswith("prometheus"):
            (folder / name).write_text(text)


@pytest.mark.parametrize("case", ALARMS)
def test_alarms_work(case: Deployment, promtool: str, tmp_path: Path) -> None:
    write_rules(tmp_path, case)
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", "prometheus-rules-test.yaml"]):
        done = subprocess.run([promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("< 3.1000", "< 1.0001"), ("[10m])) > 0", "[10m])) > 1000000"),
     ("== 0 and", "== 1 and"), ("histogram_quantile(0.99", "histogram_quantile(0.0"), ("for: 30m", "for: 30h")],
)  # fmt: skip
def test_the_tests_of_alarms_can_fail(before: str, after: str, promtool: str, tmp_path: Path) -> None:
    write_rules(tmp_path, CASES["eagle3"])
    rules = tmp_path / "prometheus-rules.yaml"
    text = rules.read_text()
    assert before in text
    rules.write_text(text.replace(before, after))
    done = subprocess.run(
        [promtool, "test", "rules", "prometheus-rules-test.yaml"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode != 0


def test_every_alarm_says_what_to_do() -> None:
    groups = yaml.safe_load(all_files(CASES["eagle3"])["prometheus-rules.yaml"])["groups"]
    alarms = [rule for rule in groups[0]["rules"] if "alert" in rule]
    assert {alarm["alert"] for alarm in alarms} == {
        "SpeculationAcceptsLess", "SpeculationDraftsNothing", "SpeculationCountersContradict", "EnginePreempts",
        "TokensComeSlowly",
    }  # fmt: skip
    assert all(len(alarm["annotations"]["action"]) > 40 for alarm in alarms)


def test_without_a_bound_there_is_no_alarm_of_it() -> None:
    text = all_files(CASES["unmeasured"])["prometheus-rules.yaml"]
    assert "SpeculationAcceptsLess" not in text
    assert "SpeculationDraftsNothing" in text
