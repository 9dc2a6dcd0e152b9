"""`train_exit`: it begins as plain early exit, and learns."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters.trained_exit import TrainedExitDrafter
from headstart.train import DraftTraining, ExitTraining, train_exit


@pytest.fixture
def run(options: DraftTraining) -> ExitTraining:
    shared = {field.name for field in fields(ExitTraining)} & {field.name for field in fields(DraftTraining)}
    given = {name: getattr(options, name) for name in shared if name not in ("matrix_rate", "row_share")}
    return ExitTraining(**{**given, "layers": 1, "steps": 1, "cache_hidden": 0})


def test_it_begins_as_early_exit_and_gets_better(run: ExitTraining, tmp_path: Path) -> None:
    begun = train_exit(replace(run, other_rate=1e-12, matrix_rate=1e-12))
    exit_ = hs.load(run.target, str(begun.path), dtype="float32", draft_quantize=None, num_speculative_tokens=4)
    assert isinstance(exit_.drafter, TrainedExitDrafter)
    own = exit_.target.model.model.norm.weight
    assert torch.equal(exit_.drafter._exit.gain.float(), own.detach().float())
    torch.testing.assert_close(exit_.drafter._exit.linear.float(), torch.eye(len(own)))
    learnt = train_exit(replace(run, steps=60, output=tmp_path / "learnt", row_share=0.5))
    for temperature in ("0", "1"):
        assert learnt.acceptance.rate[temperature] > begun.acceptance.rate[temperature] + 0.02
    assert learnt.acceptance.kl < begun.acceptance.kl


def test_it_may_know_some_of_the_tokens(run: ExitTraining) -> None:
    result = train_exit(replace(run, steps=5, draft_vocab_size=48))
    config = json.loads((result.path / "config.json").read_text())
    assert (config["exit_layers"], config["draft_vocab_size"]) == (1, 48)
    engine = hs.load(run.target, str(result.path), dtype="float32", pacing="fixed")
    out = engine.generate("def f3(x):", hs.Sampling(max_tokens=8, ignore_eos=True))
    assert out.stats.drafted > 0
    with pytest.raises(InvalidOption, match="layers=2"):
        train_exit(replace(run, layers=2, output=result.path.parent / "other"))
