"""The speedup at the end of a run, on engines that are really loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.commands.cli import app
from headstart.train import DraftTraining, Eagle3Training, output, train_draft, train_eagle3
from headstart.train.payoff import measure_payoff


def test_a_draft_s_payoff_adds_up(options: DraftTraining) -> None:
    result = train_draft(replace(options, steps=2))
    assert 1 <= len(result.prompts) <= 6
    assert all(len(prompt) == 16 for prompt in result.prompts)
    payoff = measure_payoff(result, device="cpu", new_tokens=8)
    assert payoff.predicted_tokens_per_round == pytest.approx(1 + result.acceptance.length["0"])
    assert 1 <= payoff.tokens_per_round <= 5
    assert payoff.measured == pytest.approx(payoff.drafted_rate / payoff.plain_rate)
    # both speedups come from the same seconds, so that they differ as the tokens per round do
    assert payoff.predicted / payoff.measured == pytest.approx(
        payoff.predicted_tokens_per_round / payoff.tokens_per_round
    )
    assert f"{payoff.predicted:.2f}x predicted" in payoff.sentence()
    output.add_to_record(result.path, {"speedup": payoff.record()})
    record = json.loads((result.path / "provenance.json").read_text())
    assert record["speedup"]["prompts"] == len(result.prompts)
    assert record["kind"] == "headstart draft"


def test_a_head_s_payoff(options: DraftTraining, target: Path, texts: Path, tmp_path: Path) -> None:
    result = train_eagle3(
        Eagle3Training(
            target=target,
            output=tmp_path / "head",
            data=(texts,),
            steps=2,
            batch_size=2,
            sequence_length=32,
            validation=0.2,
            dtype="float32",
            device="cpu",
        )
    )
    assert 1 <= measure_payoff(result, device="cpu", new_tokens=8).tokens_per_round <= 5


def test_the_command_says_both(target: Path, texts: Path, tmp_path: Path) -> None:
    words = f"train eagle3 {texts} --target {target} --output {tmp_path / 'head'} --steps 1 --batch-size 2"
    result = CliRunner().invoke(
        app, [*words.split(), "--sequence-length", "32", "--validation", "0.2", "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    assert "of draft tokens accepted" in result.stdout
    assert "x predicted (" in result.stdout
    assert "x measured (" in result.stdout
    assert "headstart demo " in result.stdout
