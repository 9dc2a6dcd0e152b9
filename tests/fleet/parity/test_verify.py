"""Parity with a real vLLM: slow, and skipped where there is none. And what is read of an export before any starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file
from support.exports import manifest
from support.head_faults import TOP, planted
from support.parity import PAIR

from headstart.base.errors import InvalidFile, ServerFailed, UnsupportedModel
from headstart.fleet.parity import Plan, parity, verify_export
from headstart.fleet.parity.plan import PROMPTS
from headstart.fleet.parity.report import ParityReport
from headstart.fleet.parity.verify import read_plan, serving, speculation_of
from headstart.fleet.vllm import Installation, find

EAGLE3 = {"method": "eagle3", "model": "/elsewhere/drafter", "num_speculative_tokens": 4}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def exported(folder: Path, speculation: Mapping[str, Any] = EAGLE3, head: Path | None = PAIR / "eagle3") -> Path:
    """As much of an export as is read here."""
    folder.mkdir()
    if head is not None:
        shutil.copytree(head, folder / "drafter")
    made = manifest(kind=speculation["method"])
    target = replace(made.target, name="/models/target", path=str(PAIR / "target"), dtype="float32")
    (folder / "manifest.json").write_text(replace(made, target=target).text())
    config = {"model": "/models/target", "dtype": "float32", "max-model-len": 512, "speculative-config": speculation}
    (folder / "vllm.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_an_export_is_read_where_it_lies(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    plan = read_plan(folder)
    assert (plan.target, plan.kind, plan.depth, plan.dtype) == (str(PAIR / "target"), "eagle3", 4, "float32")
    assert plan.drafter == str(folder / "drafter"), "not where the configuration puts it on another machine"
    assert speculation_of(plan, folder) == {**EAGLE3, "model": str(folder / "drafter")}
    assert read_plan(exported(tmp_path / "ngram", NGRAM, None)).lookup == (1, 3)
    assert read_plan(folder, dtype="bfloat16").exact is False


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="is no export for vLLM"):
        read_plan(tmp_path)
    folder = exported(tmp_path / "out")
    (folder / "vllm.yaml").write_text("model: m\n")
    with pytest.raises(InvalidFile, match="'speculative-config' is missing"):
        read_plan(folder)
    with pytest.raises(UnsupportedModel, match="speculation by 'suffix'"):
        read_plan(exported(tmp_path / "suffix", {"method": "suffix", "num_speculative_tokens": 4}, None))


def test_a_vllm_that_ends_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no room on the device\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ServerFailed, match="no room on the device"), serving(Installation(broken, "0", cpu=False)):
        pass


# -- a real vLLM ------------------------------------------------------------------------------------------------------


@contextmanager
def running(python: Path, plan: Plan, logs: Path) -> Iterator[str]:
    flags = {"dtype": plan.dtype, "max_model_len": 512, "speculative_config": speculation_of(plan)}
    with serving(find(python), model=plan.target, logs=logs, flags=flags) as url:
        yield url


def compared(python: Path, plan: Plan, tmp_path: Path, served: Path | None = None) -> ParityReport:
    """served: another head than the plan's."""
    theirs = plan if served is None else Plan(**{**fields_of(plan), "drafter": served})
    with running(python, theirs, tmp_path / "logs") as url:
        return parity(url, plan, prompts=PROMPTS)


def fields_of(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def a_plan(**changes: Any) -> Plan:
    eagle3 = {"kind": "eagle3", "depth": 4, "drafter": PAIR / "eagle3"}
    return Plan(**{"target": PAIR / "target", "device": "cpu", **eagle3, **changes})


def nested(folder: Path) -> Path:
    """The bundled head in the speculators form."""
    config = json.loads((PAIR / "eagle3" / "config.json").read_text())
    names = ("draft_vocab_size", "target_hidden_size", "norm_before_residual", TOP)
    layer = {name: value for name, value in config.items() if name not in (*names, "architectures", "eagle_config",
             "headstart")}  # fmt: skip
    proposal = {"proposal_type": "greedy", "speculative_tokens": 4, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    verifier = {"name_or_path": str(PAIR / "target"), "architectures": ["LlamaForCausalLM"]}
    whole = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
        "dtype": "bfloat16", "tie_word_embeddings": False, "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy",
                               "proposal_methods": [proposal], "verifier": verifier},
        **{name: config[name] for name in names},
    }  # fmt: skip
    folder.mkdir()
    tensors = load_file(PAIR / "eagle3" / "model.safetensors")
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


@pytest.mark.slow
def test_an_export_is_verified(vllm_python: Path, tmp_path: Path) -> None:
    report = verify_export(exported(tmp_path / "out"), find(vllm_python), logs=tmp_path / "logs")
    assert report.passed, report.reasons
    assert report.equal == len(PROMPTS)
    assert report.ours.forwards == report.theirs.forwards == len(PROMPTS) + report.theirs.drafts


FAMILIES: dict[str, dict[str, Any]] = {
    "speculators": {},
    "medusa": {"kind": "medusa", "depth": 3, "drafter": PAIR / "medusa"},
    "draft_model": {"kind": "draft_model", "drafter": PAIR / "draft"},
    "ngram": {"kind": "ngram", "drafter": None, "lookup": (1, 3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_at_parity(vllm_python: Path, tmp_path: Path, family: str) -> None:
    changes = {"drafter": nested(tmp_path / "head")} if family == "speculators" else FAMILIES[family]
    report = compared(vllm_python, a_plan(**changes), tmp_path)
    assert report.passed, report.reasons
    assert report.equal == report.same_text == len(PROMPTS)


@pytest.mark.slow
def test_in_bfloat16_the_difference_is_noise(vllm_python: Path, tmp_path: Path) -> None:
    report = compared(vllm_python, a_plan(dtype="bfloat16"), tmp_path)
    assert report.passed, report.reasons


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no layers at the top", "final norm scaled", "vocabulary shifted"])
def test_a_wrong_head_in_vllm_is_found(vllm_python: Path, tmp_path: Path, fault: str) -> None:
    report = compared(vllm_python, a_plan(), tmp_path, planted(PAIR / "eagle3", tmp_path / "head", fault))
    assert not report.passed
    assert report.theirs.forwards > report.ours.forwards
    assert report.same_text == len(PROMPTS), "a wrong head changes no text"


@pytest.mark.slow
def test_biases_that_vllm_drops_are_found(vllm_python: Path, tmp_path: Path) -> None:
    """What a config that does not name them does in vLLM; in a head whose biases matter."""
    right = planted(PAIR / "medusa", tmp_path / "right", "biases enlarged")
    wrong = shutil.copytree(right, tmp_path / "wrong")
    config = json.loads((wrong / "config.json").read_text())
    del config["medusa_fc_bias"]
    (wrong / "config.json").write_text(json.dumps(config))
    medusa = a_plan(kind="medusa", depth=3, drafter=right)
    assert not compared(vllm_python, medusa, tmp_path, wrong).passed
    assert compared(vllm_python, medusa, tmp_path).passed
