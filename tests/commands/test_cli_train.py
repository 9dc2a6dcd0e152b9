"""`headstart train`: the options are those of the classes in `headstart.training`, one for one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headstart import training
from headstart.cli import app
from headstart.commands.train import draft, eagle3
from headstart.training import Acceptance, DraftTraining, Eagle3Training, Shape, Training, TrainingResult

RENAMED = {"output": "output_folder", "generation_temperatures": "generation_temperature", "layer_ids": "layer_id"}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """The options of each call of a `train_...`, which trains nothing here."""
    calls: list[Training] = []

    def train(options: Training, *, observe: Any) -> TrainingResult:
        assert callable(observe)
        calls.append(options)
        acceptance = Acceptance(rate={}, length={}, kl=0.0, target_nats=0.0, draft_nats=0.0, tokens=1)
        return TrainingResult(Path(options.output), 7, 70, 1.0, acceptance)

    for name in ("train_draft", "train_eagle3"):
        monkeypatch.setattr(training, name, train)
    return calls


def run(*args: str, kind: str = "draft") -> Result:
    return CliRunner().invoke(app, ["train", kind, *args])


def test_every_option_arrives(given: list[Training]) -> None:
    words = (
        "a.txt b.jsonl --target T --output O --steps 5 --hidden 64 --layers 2 --intermediate 96 --heads 4 --kv-heads 2 "
        "--init random --generations 3 --generation-tokens 17 --generation-temperature 0.5 --generation-temperature 1 "
        "--sequence-length 32 --validation 0.1 --validation-windows 9 --tv-weight 0.25 --batch-size 6 --micro-batch 3 "
        "--matrix-rate 0.01 --other-rate 0.002 --evaluate-every 11 --save-every 13 --seed 4 --device cpu "
        "--dtype float32"
    )
    result = run(*words.split())
    assert result.exit_code == 0, result.output
    assert given == [
        DraftTraining(
            target="T",
            output="O",
            data=("a.txt", "b.jsonl"),
            shape=Shape(hidden=64, layers=2, intermediate=96, heads=4, kv_heads=2),
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


def test_every_option_of_a_head_arrives(given: list[Training]) -> None:
    words = (
        "a.txt --target T --output O --minutes 2 --ttt-steps 5 --step-decay 0.7 --draft-vocab-size 99 --layer-id 1 "
        "--layer-id 3 --layer-id 4 --norm-before-residual --format both --row-share 0.5 --cache-hidden 1.5 "
        "--begin-with B --init random --generations 3 --generation-tokens 17 --generation-temperature 0.5 "
        "--sequence-length 32 --validation 0.1 --validation-windows 9 --tv-weight 0.25 --batch-size 6 --micro-batch 3 "
        "--matrix-rate 0.01 --other-rate 0.002 --evaluate-every 11 --save-every 13 --seed 4 "
        "--device cpu --dtype float32"
    )
    result = run(*words.split(), kind="eagle3")
    assert result.exit_code == 0, result.output
    assert given == [
        Eagle3Training(
            target="T",
            output="O",
            data=("a.txt",),
            layer_ids=(1, 3, 4),
            ttt_steps=5,
            step_decay=0.7,
            draft_vocab_size=99,
            row_share=0.5,
            norm_before_residual=True,
            cache_hidden=1.5,
            begin_with="B",
            format="both",
            generations=3,
            generation_tokens=17,
            generation_temperatures=(0.5,),
            tv_weight=0.25,
            init="random",
            minutes=2.0,
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


@pytest.mark.parametrize(("kind", "options"), [("draft", DraftTraining), ("eagle3", Eagle3Training)])
def test_the_defaults_are_those_of_the_library(given: list[Training], kind: str, options: type[Training]) -> None:
    assert run("a.txt", "--target", "T", "--output", "O", "--minutes", "1.5", kind=kind).exit_code == 0
    assert given == [options(target="T", output="O", data=("a.txt",), minutes=1.5)]


@pytest.mark.parametrize(("command", "options"), [(draft, DraftTraining), (eagle3, Eagle3Training)])
def test_every_field_has_an_option(command: Any, options: type[Training]) -> None:
    fields = {RENAMED.get(name, name) for name in options.__dataclass_fields__}
    if "shape" in fields:
        fields = fields - {"shape"} | set(Shape.__dataclass_fields__)
    assert fields == set(inspect.signature(command).parameters) - {"traceback"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "exactly one must be given"),
        (["--steps", "1", "--minutes", "1"], "exactly one must be given"),
        (["--steps", "0"], "steps=0"),
        (["--steps", "1", "--tv-weight", "2"], "tv_weight=2.0"),
        (["--steps", "1", "--hidden", "65", "--heads", "4"], "hidden=65 cannot be divided"),
    ],
)
def test_bad_values_are_refused(given: list[Training], args: list[str], message: str) -> None:
    result = run("a.txt", "--target", "T", "--output", "O", *args)
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
    assert "the same command goes on" in result.stderr
