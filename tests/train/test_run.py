"""A run's phases, its reading ahead, and its early end, whatever is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from support.clocks import set_clock
from support.training_models import byte_tokenizer
from torch import Tensor, nn

from headstart.base.errors import InvalidOption
from headstart.train import (
    Acceptance,
    DraftTraining,
    MedusaTraining,
    TrainingProgress,
    harness,
    sources,
    train_medusa,
)
from headstart.train import run as run_module
from headstart.train import schedule as schedule_module
from headstart.train.harness import Material, Report
from headstart.train.optimiser import ALIKE
from headstart.train.run import Best, Run, read_ahead
from headstart.train.schedule import Budget, Phases
from headstart.train.windows import Windows

SCORES = [1.0, 2.0, 3.0, 2.5, 3.0, 1.0, 4.0]
"""What the weights are measured to reach, measurement by measurement."""


class Killed(BaseException):
    """What a kill looks like from inside."""


class CountingStudent:
    """One parameter, which grows by every step; its measurements are read off a list."""

    kind = "counting"
    lengths = ALIKE
    logits_per_token = 1
    states: Any = None

    def __init__(self) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.module.weight)
        self.written = 0.0

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield "lm_head", self.module.weight

    def loss(self, ids: Tensor, places: Tensor, step: int) -> Tensor:
        return -self.module.weight.sum()

    def measure(self, heldout: Tensor) -> Acceptance:
        steps = round(self.module.weight.item() / 3e-3)  # AdamW takes the same step each time
        length = SCORES[min(len(SCORES), steps) - 1]
        return Acceptance({"0": 0.5}, {"0": length}, kl=0.0, target_nats=0.0, draft_nats=0.0, tokens=1)

    def write(self, folder: Path) -> None:
        self.written = self.module.weight.item()

    def used(self, folder: Path) -> tuple[str, str]:
        return "target", str(folder)

    def facts(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learning rate that does not change."""
    monkeypatch.setattr("headstart.train.run.rate", lambda progress, step: 1.0)


def counted(options: DraftTraining, observe: Any = lambda _: None) -> tuple[float, Any]:
    student = CountingStudent()
    result = harness.train(options, lambda material: student, observe)
    return student.written / 3e-3, result


@pytest.mark.usefixtures("even")
def test_an_early_end_keeps_the_best_weights(options: DraftTraining) -> None:
    options = replace(options, steps=7, evaluate_every=1, patience=2)
    steps, result = counted(options)
    assert result.steps == 5, "2.5 and 3.0 are no better than 3.0"
    assert steps == pytest.approx(3, abs=0.02)
    assert "2 measurements" in result.stopped
    record = json.loads((result.path / "provenance.json").read_text())
    assert record["stopped_early"] == result.stopped
    assert sorted(p.name for p in result.path.iterdir()) == ["provenance.json"]


@pytest.mark.usefixtures("even")
def test_the_last_weights_stay_where_they_are_the_best(options: DraftTraining) -> None:
    steps, result = counted(replace(options, steps=7, evaluate_every=1, patience=4))
    assert (result.steps, result.stopped) == (7, "")
    assert steps == pytest.approx(7, abs=0.04)
    plain = replace(options, steps=6, evaluate_every=1, output=Path(options.output).parent / "plain")
    assert counted(plain)[0] == pytest.approx(6, abs=0.04), "without patience it is the last that count"


@pytest.mark.usefixtures("even")
@pytest.mark.parametrize("stage", ["training", "measuring"])
@pytest.mark.parametrize("step", [3, 4, 5])
def test_an_early_end_is_the_same_after_a_kill(options: DraftTraining, stage: str, step: int) -> None:
    options = replace(options, steps=7, evaluate_every=1, patience=2)

    def kill(report: Report) -> None:
        if report.stage == stage and report.step == step:
            raise Killed

    with pytest.raises(Killed):
        counted(options, kill)
    steps, result = counted(options)
    assert result.resumed_from >= step - 1
    assert result.steps == 5
    assert steps == pytest.approx(3, abs=0.02)


def test_a_tie_is_no_improvement() -> None:
    def of(length: float) -> Acceptance:
        return Acceptance({}, {"0": length, "1": 1.0}, kl=0.0, target_nats=0.0, draft_nats=0.0, tokens=1)

    best = Best()
    assert [best.judge(of(length)) for length in (1.0, 1.0, 0.5, 1.1, 1.0)] == [True, False, False, True, False]
    assert best == Best(1.05, 1)


# -- phases ------------------------------------------------------------------------------------------------------------


def test_time_counts_for_the_innermost_phase_and_over_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    set_clock(monkeypatch, lambda: now[0], schedule_module)
    phases = Phases.of(tmp_path / "phases.json")

    def killed() -> None:
        with phases.doing("training") as training:
            now[0] += 4
            with phases.doing("measuring") as measuring:
                now[0] += 2
                measuring.tokens += 10
            now[0] += 1
            training.tokens = 50
            raise Killed

    with pytest.raises(Killed):
        killed()
    now[0] += 100
    again = Phases.of(tmp_path / "phases.json")
    with again.doing("training"):
        now[0] += 5
    assert again.record() == {
        "training": {"seconds": 10.0, "tokens": 50, "tokens_per_second": 5.0},
        "measuring": {"seconds": 2.0, "tokens": 10, "tokens_per_second": 5.0},
    }


def heads(options: DraftTraining, **more: Any) -> MedusaTraining:
    shared = {name: getattr(options, name) for name in ("target", "output", "data", "batch_size", "sequence_length")}
    same = {name: getattr(options, name) for name in ("validation", "validation_windows", "dtype", "device")}
    return MedusaTraining(**shared, **same, heads=2, **more)


def test_states_are_read_once_before_the_steps_and_all_is_counted(options: DraftTraining) -> None:
    stages: list[str] = []
    console = Console(record=True, width=160, force_terminal=False)
    with TrainingProgress(console, every=100) as show:

        def observe(report: Report) -> None:
            show(report)
            if not stages or stages[-1] != report.stage:
                stages.append(report.stage)

        result = train_medusa(
            heads(options, init="random", steps=3, generations=5, generation_tokens=9), observe=observe
        )
    assert stages == ["loading", "generating", "reading", "training", "done"]
    record = json.loads((result.path / "provenance.json").read_text())
    phases = record["phases"]
    assert phases["writing"]["tokens"] <= 5 * 9
    assert phases["training"]["tokens"] == result.tokens == 3 * 4 * 32
    windows = phases["reading"]["tokens"] // 32
    assert 12 <= windows <= 12 + 8, "the windows of three steps of four, and those held out; not all that there are"
    assert {name: phase.tokens for name, phase in result.phases.items()} == {n: p["tokens"] for n, p in phases.items()}
    assert record["read_with"].startswith("fused")
    text = console.export_text()
    for line in ("loading", "generating 100.0% 5 texts", "reading", "step 1 "):
        assert f"\n{line}" in f"\n{text}", text


def test_no_more_than_half_of_the_minutes_are_read_ahead(options: DraftTraining, tmp_path: Path) -> None:
    """The clock is a scripted one: each window read takes ten seconds of a minute."""
    now = [0.0]

    class Slow:
        read_tokens = 0

        def read_ahead(self, windows: Tensor, at_once: int) -> Iterator[int]:
            for i in range(len(windows)):
                now[0] += 10
                self.read_tokens += 32
                yield i + 1

        def release(self) -> None: ...

    student = CountingStudent()
    student.states = Slow()
    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, lambda: now[0], run_module, schedule_module)
        options = replace(options, steps=None, minutes=1.0, output=tmp_path)
        run = Run.start(options, student, Phases.of(tmp_path / "phases.json"))
        read_ahead(run, Windows.plain(torch.zeros(20, 32)), Windows.plain(torch.zeros(2, 32)), lambda _: None)
        assert run.phases["reading"].seconds == 30
        assert run.phases["reading"].tokens == 3 * 32
        assert run.budget == Budget(minutes=0.5)
        assert run.clock.seconds == 0, "the rate begins at its beginning"
        now[0] += 15
        assert run.progress == pytest.approx(0.5)


def test_a_chat_model_is_trained_for_without_data(
    options: DraftTraining, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = tmp_path / "chat"
    chat.mkdir()
    for file in target.iterdir():
        (chat / file.name).write_bytes(file.read_bytes())
    (chat / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    monkeypatch.setattr(sources, "asked", lambda ask, output: f"{ask.opening} {len(output.tokens)} words please")
    found: list[Windows] = []

    def make(material: Material) -> CountingStudent:
        found.append(material.train)
        return CountingStudent()

    options = replace(options, target=str(chat), data=(), self_prompts=12, generation_tokens=24, steps=1)
    result = harness.train(options, make, lambda _: None)
    assert result.phases["writing"].tokens > 12 * 20
    assert " words please</><assistant>" in byte_tokenizer().decode(found[0].ids.flatten().tolist())
    assert json.loads((result.path / "provenance.json").read_text())["data"] == []


def test_a_target_that_cannot_ask_itself_leaves_nothing_behind(options: DraftTraining) -> None:
    with pytest.raises(InvalidOption, match="chat template"):
        counted(replace(options, data=(), self_prompts=5))
    assert not options.folder.exists()
