"""Requests may be cancelled at any moment, waiting or running, while adaptive pacing skips its decisions."""

from __future__ import annotations

import pytest
from support.matrix_cells import ENTRIES, Entry, Workshop
from support.pacing import give

import headstart as hs
from headstart.drafters import capabilities
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts

LAST = 43
"""Steps after which requests are cancelled: beyond a pause between two decisions."""
ROWS = ((1, 0.010), (16, 0.013), (64, 0.014))
DEAR, CHEAP = 0.02, 0.001
"""Seconds of a drafted token: one never drafts, and its steps are not thought about; the other drafts often."""
SAMPLING = hs.Sampling(max_tokens=44, ignore_eos=True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("cancelling"))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.make is not None], ids=lambda entry: entry.name)
def test_cancelling_at_any_step(entry: Entry, shop: Workshop) -> None:
    engine = shop.engine(entry, "exact", 2)
    drafter = engine.drafter
    assert drafter is not None
    sources = [
        Source(part.name, capabilities.limit(part), tuple(capabilities.sizes(part)))
        for part in capabilities.parts(drafter)
    ]
    for seconds in (CHEAP,) if "tree" in entry.name else (DEAR, CHEAP):  # a drafter that rests has no trees
        costs = StepCosts(ROWS, 0.0, {source.name: DraftCost(token=seconds) for source in sources})
        give(engine, AdaptivePacing(sources, costs))
        requests = [engine.submit([4, 7, 4, 7], SAMPLING) for _ in range(2)]
        for _ in range(LAST + 1):  # one that waits is cancelled after every single step
            waiting = engine.submit([4, 7], SAMPLING)
            engine.step()
            engine.cancel(waiting)
        for request in requests:
            engine.cancel(request)
            assert request.speculation.error is None, "nor was the drafter hurt"
        for k in (0, 1, 4, 9) if entry.name != "n-gram" else range(LAST + 1):
            _cancel_all_after(k, engine)
    engine.cache.check()


def _cancel_all_after(k: int, engine: hs.Engine) -> None:
    running, other, waiting = (engine.submit([4, 7, 4, 7], SAMPLING) for _ in range(3))
    for _ in range(k):
        engine.step()
    for request in (waiting, running):
        engine.cancel(request)
        engine.step()
    late = engine.submit([4, 7], hs.Sampling(max_tokens=2, ignore_eos=True))
    while late.finish_reason is None:
        engine.step()
    assert late.finish_reason == "length"
    engine.cancel(other)
    assert not engine.scheduler.requests()
