"""The stats of drafting ahead are those of the steps; other drafters have none."""

from __future__ import annotations

from collections.abc import Callable

import headstart as hs
from headstart.types import AheadStats, Step

Load = Callable[..., hs.Engine]
PROMPTS = [[5, 9, 12], [7, 3, 3, 8, 41]]


def test_stats_are_what_the_steps_say(load: Load, tiny: Callable[..., str]) -> None:
    engine = load("llama", f"ahead:{tiny('llama', noise=0.02)}", num_speculative_tokens=3)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    outputs = engine.generate(PROMPTS, hs.Sampling(max_tokens=24, ignore_eos=True))
    for number, output in enumerate(outputs):
        mine = [step for step in steps if step.request == number and step.tokens and step.draft.prepared is not None]
        ahead = output.stats.ahead
        assert ahead is not None
        assert ahead.drafts == len(mine) > 2
        assert ahead.hits == sum(step.draft.prepared.hit for step in mine if step.draft.prepared)
        assert ahead.rounds < ahead.drafts, "before the first draft there is no round"
        assert len(ahead.rounds_per_depth) == len(ahead.hits_per_depth)
        assert sum(ahead.hits_per_depth) == ahead.hits
        for step in mine:
            prepared = step.draft.prepared
            assert prepared is not None
            assert step.began <= prepared.asked <= prepared.answered
            assert prepared.waited <= step.seconds.total
    assert sum((output.stats.ahead or AheadStats() for output in outputs), AheadStats()).drafts > 4
    began = [step.began for step in steps]
    assert began == sorted(began)
    assert began[0] > 0


def test_drafting_in_turn_has_none(load: Load, tiny: Callable[..., str]) -> None:
    engine = load("llama", tiny("llama", noise=0.02), num_speculative_tokens=3)
    assert engine.generate(PROMPTS[0], hs.Sampling(max_tokens=8)).stats.ahead is None
