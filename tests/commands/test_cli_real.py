"""The command line on the real engine, with tiny random models on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.byte_models import save_model
from transformers import AutoTokenizer
from typer.testing import CliRunner, Result

from headstart.commands.cli import app


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("target"), nan=True))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("draft"), noise=0.02))


def run(command: str, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [command, *args, "--device", "cpu", "--dtype", "float32"], input=stdin)


def as_json(*args: str) -> list[dict[str, Any]]:
    result = run("generate", *args, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_greedy_text_is_the_same_with_any_drafter(target: str, draft: str) -> None:
    common = ("def add(a, b):", "--target", target, "--max-tokens", "60", "--ignore-eos", "--pacing", "fixed")
    plain, ngram, model = (as_json(*common, "--drafter", drafter)[0] for drafter in ("none", "ngram", draft))
    assert plain["tokens"] == ngram["tokens"] == model["tokens"]
    assert plain["stats"]["tokens_per_forward"] == 1.0
    assert model["stats"]["tokens_per_forward"] > 1.0
    assert model["stats"]["speculation"]["on"]


def test_streamed_text_is_the_generated_text(target: str, draft: str) -> None:
    args = ("def add(a, b):", "--target", target, "--drafter", draft, "--max-tokens", "40", "--seed", "3", "-T", "0.9")
    streamed = run("generate", *args)
    assert streamed.stdout == as_json(*args)[0]["text"] + "\n"


def test_a_file_gives_what_its_prompts_give_one_by_one(target: str, draft: str, tmp_path: Path) -> None:
    texts = ["def add(a, b):", "x", "class A:\n    pass"]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"turns": [text]}) for text in texts))
    options = ("--target", target, "--drafter", draft, "--max-tokens", "24")
    together = as_json("--prompts", str(file), "--max-batch-size", "2", *options)
    alone = [as_json(text, *options)[0] for text in texts]
    assert [out["tokens"] for out in together] == [out["tokens"] for out in alone]


def test_stats_and_logprobs(target: str) -> None:
    (out,) = as_json("ab", "--target", target, "--drafter", "ngram", "--max-tokens", "5", "--logprobs", "2")
    assert [entry["token"] for entry in out["logprobs"]] == out["tokens"]
    assert all(len(entry["top"]) == 2 and entry["logprob"] <= 0 for entry in out["logprobs"])
    result = run("generate", "ab", "--target", target, "--drafter", "ngram", "--max-tokens", "5", "--stats")
    assert "tokens per target forward" in result.stderr


def test_the_demo_tells_the_truth(target: str, draft: str) -> None:
    args = ("--target", target, "--drafter", draft, "--max-tokens", "16", "--prompt", "def f(", "--prompt", "class A")
    result = run("demo", *args)
    assert result.exit_code == 0, result.output
    assert "2 of 2" in result.stdout
    sampled = run("demo", *args, "--temperature", "1", "--rule", "coupled")
    assert "2 of 2" in sampled.stdout


def test_a_request_with_nan_logits_ends_and_the_others_go_on(target: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "aNb"}\n{"prompt": "abc"}')
    result = run("generate", "--prompts", str(file), "--target", target, "--max-tokens", "4", "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["finish_reason"], first["error"]["type"]) == ("error", "NonFiniteLogits")
    assert (second["finish_reason"], second["error"]) == ("length", None)
    assert result.exit_code == 2
    assert "NaN" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--target", "/no/such/model"], "/no/such/model"),
        (["--dtype", "float8"], "float8"),
        (["--device", "abacus"], "abacus"),
        (["--k", "-1"], "--num-speculative-tokens=-1"),
        (["--drafter", "/no/such/draft"], "/no/such/draft"),
        (["--max-length", "100000"], "--max-model-len=100000"),
        (["--max-length", "10"], "context holds 10"),
        (["--logit-bias", "99999=1"], "99999"),
    ],
)
def test_bad_input_is_an_error_with_a_hint(target: str, args: list[str], message: str) -> None:
    result = CliRunner().invoke(
        app, ["generate", "a prompt of some length", "--target", target, "--max-tokens", "4", *args]
    )
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "\nhint: " in result.stderr
    assert "Traceback" not in result.stderr


def test_token_ids_outside_the_vocabulary(target: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": [1, 2]}\n{"prompt": [258]}')
    result = run("generate", "--prompts", str(file), "--target", target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: prompt 2: token id 258" in result.stderr


def test_a_draft_with_another_tokenizer(target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = save_model(tmp_path / "other")
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(other)
    options = ("generate", "x", "--target", target, "--dtype", "float32", "--max-tokens", "12", "--ignore-eos")
    result = run(*options, "--drafter", str(other))
    assert result.exit_code == 0, result.stderr
    assert "has another tokenizer" in caplog.text
    assert result.stdout == run(*options, "--drafter", "none").stdout


def test_weights_that_are_only_a_pickle(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    result = run("generate", "x", "--target", str(folder))
    assert result.exit_code == 2
    assert "pickle" in result.stderr


def test_a_model_that_needs_remote_code(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "its-own", "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    result = run("generate", "x", "--target", str(folder))
    assert result.exit_code == 2
    assert "--trust-remote-code" in result.stderr or "trust_remote_code" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_cleanly(target: str) -> None:
    command = [
        sys.executable,
        "-m",
        "headstart",
        "generate",
        "def add(a, b):",
        "--target",
        target,
        "--drafter",
        "ngram",
    ]
    command += ["--max-tokens", "200", "--max-length", "256", "--ignore-eos", "--device", "cpu", "--dtype", "float32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
    assert first
    assert process.returncode in (130, 0), "0: it was done before the signal came"
    assert rest.endswith(b"\n")
    assert errors == b""
