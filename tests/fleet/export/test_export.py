"""`headstart export` as a user calls it: on the bundled pair, measured in a few tokens; and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support import dflash_heads
from support.parallel_drafts import masked_checkpoint
from support.parity import PAIR
from typer.testing import CliRunner, Result

from headstart.base.prompt_sets import read_prompt_set
from headstart.commands.cli import app
from headstart.fleet.export.manifest import read_manifest
from headstart.fleet.parity.verify import read_plan, speculation_of

QUICK = ("--dtype", "float32", "-n", "12", "--limit", "4")


def run(*words: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["export", *map(str, words)])


@pytest.mark.parametrize("drafter", [pytest.param("eagle3", marks=pytest.mark.slow), "medusa"])
def test_a_head_of_the_bundled_pair(drafter: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("bundled", drafter, "-o", out, "--k", "2", *QUICK)
    assert result.exit_code == 0, result.output
    manifest = read_manifest(out)
    assert manifest.drafter.kind == drafter
    assert manifest.depth == 2
    assert manifest.expected is not None
    assert manifest.expected.prompts.count == 4
    assert [one.position for one in manifest.expected.by_position] == [1, 2]
    assert all(one.low <= (one.value or 0) <= one.high for one in manifest.expected.by_position)
    assert 1 <= manifest.expected.tokens_per_forward.value <= 3
    values = yaml.safe_load((out / "vllm.yaml").read_text())
    assert values["speculative-config"]["model"] == str(out / "drafter")
    assert Path(values["model"]).is_absolute()
    assert len(read_prompt_set(out / "prompts.jsonl")) == 4
    assert "tokens per forward" in result.stdout
    assert "min_p or logit_bias" in result.stderr
    assert list(tmp_path.iterdir()) == [out]


def test_nothing_measured_and_another_machine(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(
        "bundled", "ngram", "-o", out, "--no-measure", "--target-at", "/models/target", "--set", "max_num_seqs=8"
    )
    assert result.exit_code == 0, result.output
    manifest = read_manifest(out)
    assert (manifest.expected, manifest.depth, manifest.drafter.folder) == (None, 3, None)
    assert manifest.target.name == "/models/target"
    assert manifest.target.path is not None
    values = yaml.safe_load((out / "vllm.yaml").read_text())
    assert values["model"] == "/models/target"
    assert values["max-num-seqs"] == 8
    assert values["speculative-config"] == {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 3, "prompt_lookup_max": 5,
    }  # fmt: skip
    assert not (out / "prompts.jsonl").exists()


def test_a_draft_with_a_mask_token_is_served_in_parallel(tmp_path: Path) -> None:
    """vLLM would else draft with it token by token, for which it was not made."""
    folder = Path(masked_checkpoint(shutil.copytree(PAIR / "draft", tmp_path / "draft"), 7))
    result = run("bundled", folder, "-o", tmp_path / "out", "--no-measure", "--k", "4")
    assert result.exit_code == 0, result.output
    speculation = yaml.safe_load((tmp_path / "out" / "vllm.yaml").read_text())["speculative-config"]
    assert (speculation["method"], speculation["parallel_drafting"]) == ("draft_model", True)
    assert "first model runner only" in result.stderr
    assert json.loads((tmp_path / "out" / "drafter" / "config.json").read_text())["pard_token"] == 7
    plan = read_plan(tmp_path / "out")
    assert plan.parallel
    assert speculation_of(plan)["parallel_drafting"]


def test_k_by_batch_with_costs_of_another_machine(tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    record = {
        "headstart_doctor": 1,
        "costs": {"seconds": 0.01, "v": {"1": 1.0, "8": 1.1, "16": 1.5, "32": 3.0}, "request_seconds": 0.0},
        "candidates": [{"drafters": ["eagle3"], "best": {"sources": {"eagle3": {"c": 0.05}}}}],
    }
    costs.write_text(json.dumps(record))
    out = tmp_path / "out"
    result = run("bundled", "eagle3", "-o", out, "--costs", costs, "--dynamic", *QUICK)
    assert result.exit_code == 0, result.output
    manifest = read_manifest(out)
    assert manifest.costs.source == "file: costs.json, of headstart doctor"
    assert manifest.costs.c == pytest.approx(0.05)
    assert [one.batch for one in manifest.depth_by_batch][:4] == [1, 2, 4, 8]
    ranges = yaml.safe_load((out / "vllm.yaml").read_text())["speculative-config"][
        "num_speculative_tokens_per_batch_size"
    ]
    assert ranges[0][0] == 1
    assert any("vllm#49548" in line for line in manifest.warnings)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("bundled", "medusa", "--k", "4"), "3 Medusa heads"),
        (("bundled", "medusa", "--engine", "sglang"), "SGLang does not run Medusa"),
        (("bundled", "early-exit"), "headstart alone"),
        (("bundled", "mtp"), "lies in the target's own checkpoint"),
        (("bundled", "auto"), "no single drafter"),
        (("bundled", "/no/such/head"), "/no/such/head"),
        (("/no/such/model", "ngram"), "/no/such/model"),
        (("bundled", "ngram", "--set", "model=x"), "not yours to set"),
        (("bundled", "ngram", "--set", "nonsense"), "not KEY=VALUE"),
        (("bundled", "ngram", "--target-at", "models/x"), "is relative"),
        (("bundled", "eagle3", "--dynamic"), "needs what steps cost"),
        (("bundled", "ngram", "--engine", "sglang", "--verify"), "--verify is for vLLM"),
        (("bundled", "ngram", "--check-config", "--vllm", "/no/such/env"), "no Python environment"),
        (("bundled", "ngram", "--k", "0"), "0"),
    ],
)
def test_what_is_refused_leaves_nothing(words: tuple[str, ...], error: str, tmp_path: Path) -> None:
    result = run(*words, "-o", tmp_path / "out", "--no-measure")
    assert result.exit_code == 2
    assert error in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_block_head_is_refused_with_the_way_out(tmp_path: Path) -> None:
    head = dflash_heads.write(tmp_path / "head", "dflash")
    result = run("bundled", str(head), "-o", tmp_path / "out", "--no-measure")
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "is a DFlash or DSpark head" in message
    assert "vLLM reads its directory" in message
    assert not (tmp_path / "out").exists()


def test_a_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for words in (("bundled", str(tmp_path / "m.gguf")), (str(tmp_path / "m.gguf"), "ngram")):
        result = run(*words, "-o", tmp_path / "out", "--no-measure")
        assert result.exit_code == 2
        assert "is a GGUF file" in result.stderr.replace("\n", " ")


def test_an_export_is_not_overwritten_by_mistake(tmp_path: Path) -> None:
    words = ("bundled", "ngram", "-o", tmp_path / "out", "--no-measure")
    assert run(*words).exit_code == 0
    again = run(*words)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert run(*words, "--force").exit_code == 0


@pytest.mark.parametrize("passed", [True, False])
def test_a_verification_is_recorded_and_decides_the_exit_code(
    passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine and the comparison are stand-ins here; the real ones are tested with parity."""
    from headstart.fleet import vllm
    from headstart.fleet.export import check
    from headstart.fleet.parity import report as of_parity
    from headstart.fleet.parity import verify

    class Report:
        def __init__(self) -> None:
            self.passed = passed

        def as_json(self) -> dict[str, bool]:
            return {"passed": passed}

    installation = vllm.Installation(Path("/env/bin/python"), "0.32.0", cpu=True)
    asked: list[Path] = []

    def verify_export(folder: Path, *args: object, **options: object) -> Report:
        asked.append(folder)
        return Report()

    monkeypatch.setattr(vllm, "find", lambda _: installation)
    monkeypatch.setattr(check, "processors_of", lambda _: ("bias",))
    monkeypatch.setattr(verify, "verify_export", verify_export)
    monkeypatch.setattr(of_parity, "render", lambda report: f"passed: {report.passed}")
    out = tmp_path / "out"
    result = run("bundled", "ngram", "-o", out, "--no-measure", "--verify")
    assert result.exit_code == (0 if passed else 1), result.output
    assert asked == [out]
    assert f"passed: {passed}" in result.stdout
    assert "custom logits processors" in result.stderr
    assert read_manifest(out).verified == {"vllm": "0.32.0", "passed": passed}
