"""`headstart train`: what is trained, what is printed, what is refused. Options one by one: `test_options`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headstart import train as training
from headstart.commands.cli import app
from headstart.train import (
    Acceptance,
    DraftTraining,
    Eagle3Training,
    MedusaTraining,
    MtpTraining,
    Shape,
    Training,
    TrainingResult,
)

KINDS = [("draft", DraftTraining), ("eagle3", Eagle3Training), ("medusa", MedusaTraining), ("mtp", MtpTraining)]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """The options of each call of a `train_...`, which trains nothing here."""
    calls: list[Training] = []

    def train(options: Training, *, observe: Any) -> TrainingResult:
        assert callable(observe)
        calls.append(options)
        acceptance = Acceptance(rate={}, length={}, kl=0.0, target_nats=0.0, draft_nats=0.0, tokens=1)
        used = str(options.target), str(options.output)
        return TrainingResult(Path(options.output), 7, 70, 1.0, acceptance, used=used)

    for name in ("train_draft", "train_eagle3", "train_medusa", "train_mtp"):
        monkeypatch.setattr(training, name, train)
    return calls


def run(*args: str, kind: str = "draft") -> Result:
    return CliRunner().invoke(app, ["train", kind, *args])


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_options_arrive_and_the_next_command_is_named(
    given: list[Training], kind: str, options: type[Training]
) -> None:
    result = run("a.txt", "b.jsonl", "--target", "T", "--output", "O", "--minutes", "1.5", kind=kind)
    assert result.exit_code == 0, result.output
    assert given == [options(target="T", output="O", data=("a.txt", "b.jsonl"), minutes=1.5)]
    assert "O: 7 steps, 70 tokens" in result.stdout
    assert "headstart demo T --drafter O" in result.stdout


def test_the_shape_of_a_draft_model_arrives(given: list[Training]) -> None:
    words = "a.txt --target T --output O --steps 5 --hidden 64 --heads 4 --kv-heads 2"
    assert run(*words.split()).exit_code == 0
    shape = Shape(hidden=64, heads=4, kv_heads=2)
    assert given == [DraftTraining(target="T", output="O", data=("a.txt",), steps=5, shape=shape)]


@pytest.mark.parametrize(
    ("kind", "args", "message"),
    [
        ("draft", [], "exactly one must be given"),
        ("draft", ["--steps", "1", "--minutes", "1"], "exactly one must be given"),
        ("draft", ["--steps", "0"], "steps=0"),
        ("draft", ["--steps", "1", "--tv-weight", "2"], "--tv-weight=2.0"),
        ("draft", ["--steps", "1", "--hidden", "65", "--heads", "4"], "hidden=65 cannot be divided"),
        ("medusa", [], "exactly one must be given"),
        ("medusa", ["--steps", "1", "--heads", "0"], "heads=0"),
        ("medusa", ["--steps", "1", "--head-decay", "2"], "--head-decay=2.0"),
    ],
)
def test_bad_values_are_refused(given: list[Training], kind: str, args: list[str], message: str) -> None:
    result = run("a.txt", "--target", "T", "--output", "O", *args, kind=kind)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "\nhint: " in result.stderr
    assert not given


def test_an_interrupt_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_draft", interrupted)
    result = run("a.txt", "--target", "T", "--output", "O", "--steps", "1")
    assert result.exit_code == 130
    assert "the same command continues" in result.stderr
