"""Every trainer runs in bfloat16, the default where the processor multiplies it, and sees the losses of float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headstart import train as training
from headstart.train import Shape

SHAPE = Shape(hidden=32, layers=1, intermediate=64, heads=2, kv_heads=1)


@dataclass(frozen=True)
class Trainer:
    train: Callable[..., Any]
    options: type[training.Training]
    more: dict[str, Any] = field(default_factory=dict)


TRAINERS = {
    "draft": Trainer(training.train_draft, training.DraftTraining, {"shape": SHAPE}),
    "draft, parallel": Trainer(training.train_draft, training.DraftTraining, {"shape": SHAPE, "parallel": 3}),
    "eagle3": Trainer(training.train_eagle3, training.Eagle3Training),
    "eagle3, parallel": Trainer(
        training.train_eagle3, training.Eagle3Training, {"parallel": 3, "layers": 2, "selector_rank": 4}
    ),
    "medusa": Trainer(training.train_medusa, training.MedusaTraining),
    "exit": Trainer(training.train_exit, training.ExitTraining),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_in_bfloat16_loses_what_one_in_float32_does(name: str, target: Path, texts: Path, tmp_path: Path) -> None:
    trainer, losses = TRAINERS[name], {}
    for dtype in ("float32", "bfloat16"):
        options = trainer.options(
            target=target,
            output=tmp_path / dtype,
            data=(texts,),
            steps=3,
            batch_size=4,
            sequence_length=32,
            validation=0.2,
            validation_windows=8,
            device="cpu",
            dtype=dtype,  # type: ignore[arg-type]
            **trainer.more,
        )
        seen: list[float] = []
        trainer.train(options, observe=lambda progress, seen=seen: seen.append(progress.loss))
        losses[dtype] = [loss for loss in seen if math.isfinite(loss)]
    assert losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.03)
