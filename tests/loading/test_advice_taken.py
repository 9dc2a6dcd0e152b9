"""`drafter="auto"` takes what doctor found out, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.rows import a_row

import headstart as hs
from headstart.loading import advice
from headstart.loading.advice import Advice
from headstart.loading.checkpoint import Checkpoint

ADVICE = Advice(("ngram",), 3, "auto", 1.83, (0.9,), "2026-11-21")
Load = Callable[..., hs.Engine]


@pytest.fixture(autouse=True)
def _own_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def keep(target: str, found: Advice) -> None:
    ours = Checkpoint(target, "target", dtype="float32", device=torch.device("cpu"))
    assert advice.write(str(ours.source), ours.config.to_dict(), ours.dtype, torch.device("cpu"), None, found)


def test_auto_takes_the_advice(tiny: Callable[..., str], load: Load) -> None:
    assert load(tiny("llama"), "auto").drafter_name == "suffix + ngram"
    keep(tiny("llama"), ADVICE)
    engine = load(tiny("llama"), "auto")
    assert engine.drafter_name == "ngram"
    assert engine.reason == "doctor measured 1.83x with ngram on 21 November 2026"
    assert engine.pacing.plan([a_row(0, 5, 9)]).budgets[0].nodes == 3
    assert load(tiny("llama"), "suffix").reason == "asked for"
    assert load(tiny("llama"), ["prediction", "auto"]).drafter_name == "prediction + ngram"


def test_what_the_user_says_stands(tiny: Callable[..., str], load: Load) -> None:
    keep(tiny("llama"), ADVICE)
    engine = load(tiny("llama"), "auto", num_speculative_tokens=2)
    assert engine.pacing.plan([a_row(0, 5, 9)]).budgets[0].nodes == 2


def test_where_nothing_helped_it_decodes_plainly(tiny: Callable[..., str], load: Load) -> None:
    keep(tiny("llama"), replace(ADVICE, drafters=(), speedup=0.9))
    engine = load(tiny("llama"), "auto")
    assert engine.drafter_name == "none"
    assert engine.reason.startswith("doctor found no drafter that helps")


def test_a_drafter_that_is_gone(tiny: Callable[..., str], load: Load, tmp_path: Path) -> None:
    keep(tiny("llama"), replace(ADVICE, drafters=(str(tmp_path / "gone"),)))
    engine = load(tiny("llama"), "auto")
    assert engine.drafter_name == "suffix + ngram"
    assert engine.reason.endswith("which is no longer there")
