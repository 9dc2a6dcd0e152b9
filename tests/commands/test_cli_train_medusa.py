"""`headstart train medusa`: the options are those of `MedusaTraining`, one for one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headstart import training
from headstart.cli import app
from headstart.commands.train import medusa
from headstart.training import Acceptance, MedusaTraining, TrainingResult

RENAMED = {"output": "output_folder", "generation_temperatures": "generation_temperature"}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[MedusaTraining]:
    """The options of each call of `train_medusa`, which trains nothing here."""
    calls: list[MedusaTraining] = []

    def train(options: MedusaTraining, *, observe: Any) -> TrainingResult:
        assert callable(observe)
        calls.append(options)
        acceptance = Acceptance(rate={}, length={}, kl=0.0, target_nats=0.0, draft_nats=0.0, tokens=1)
        return TrainingResult(Path(options.output), 7, 70, 1.0, acceptance)

    monkeypatch.setattr(training, "train_medusa", train)
    return calls


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["train", "medusa", *args])


def test_every_option_arrives(given: list[MedusaTraining]) -> None:
    words = (
        "a.txt b.jsonl --target T --output O --steps 5 --heads 3 --blocks 2 --head-decay 0.5 "
        "--init random --generations 3 --generation-tokens 17 --generation-temperature 0.5 --generation-temperature 1 "
        "--sequence-length 32 --validation 0.1 --validation-windows 9 --tv-weight 0.25 --batch-size 6 --micro-batch 3 "
        "--matrix-rate 0.01 --other-rate 0.002 --evaluate-every 11 --save-every 13 --seed 4 --device cpu "
        "--dtype float32"
    )
    result = run(*words.split())
    assert result.exit_code == 0, result.output
    assert given == [
        MedusaTraining(
            target="T",
            output="O",
            data=("a.txt", "b.jsonl"),
            heads=3,
            blocks=2,
            head_decay=0.5,
            generations=3,
            generation_tokens=17,
            generation_temperatures=(0.5, 1.0),
            tv_weight=0.25,
            init="random",
            steps=5,
            batch_size=6,
            micro_batch=3,
            sequence_length=32,
            matrix_rate=0.01,
            other_rate=0.002,
            validation=0.1,
            validation_windows=9,
            evaluate_every=11,
            save_every=13.0,
            seed=4,
            device="cpu",
            dtype="float32",
        )
    ]
    assert "O: 7 steps, 70 tokens" in result.stdout
    assert "headstart demo --target T --drafter O" in result.stdout


def test_the_defaults_are_those_of_the_library(given: list[MedusaTraining]) -> None:
    assert run("a.txt", "--target", "T", "--output", "O", "--minutes", "1.5").exit_code == 0
    assert given == [MedusaTraining(target="T", output="O", data=("a.txt",), minutes=1.5)]


def test_every_field_has_an_option() -> None:
    fields = {RENAMED.get(name, name) for name in MedusaTraining.__dataclass_fields__}
    assert fields == set(inspect.signature(medusa).parameters) - {"traceback"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "exactly one must be given"),
        (["--steps", "1", "--heads", "0"], "heads=0"),
        (["--steps", "1", "--head-decay", "2"], "head_decay=2.0"),
    ],
)
def test_bad_values_are_refused(given: list[MedusaTraining], args: list[str], message: str) -> None:
    result = run("a.txt", "--target", "T", "--output", "O", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "\nhint: " in result.stderr
    assert not given
