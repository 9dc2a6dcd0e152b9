"""Runs in turn: who goes first changes, and what is kept of a run is light."""

from __future__ import annotations

from collections.abc import Callable

import headstart as hs
from headstart.engine.in_turn import in_turn, run_once


def test_who_goes_first_changes_with_the_turn(load: Callable[..., hs.Engine]) -> None:
    engines = {name: load("llama", "none") for name in ("a", "b", "c")}
    orders = [
        [run.name for run in in_turn(engines, [5, 6, 7], hs.Sampling(max_tokens=2), turn=turn)] for turn in range(4)
    ]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_a_run_keeps_its_steps_but_not_their_distributions(
    load: Callable[..., hs.Engine], tiny: Callable[..., str]
) -> None:
    engine = load("llama", tiny("llama", noise=0.02), rule="exact", num_speculative_tokens=3)
    drawn = []
    engine.subscribe(lambda step: drawn.append(step.draft.q is not None))
    run = run_once("drafted", engine, [5, 6, 7], hs.Sampling(max_tokens=12, temperature=1.0, seed=1))
    assert any(drawn), "there were distributions to let go"
    assert all(step.draft.q is None for _, step in run.arrivals)
    assert sum(len(step.tokens) for _, step in run.arrivals) == len(run.output.tokens)
    assert [at for at, _ in run.arrivals] == sorted(at for at, _ in run.arrivals)
