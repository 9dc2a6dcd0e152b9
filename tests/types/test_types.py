"""What drafting ahead brought, counted draft by draft and added up over requests."""

from __future__ import annotations

import pytest

from headstart.types import AheadStats, Preparation

FIRST = Preparation(False, asked=1.0, answered=1.5)
HIT = Preparation(True, 1, 2, 0, 8, 3, 2.0, 2.9, 3.0, 3.01)
MISS = Preparation(False, -1, 0, None, 8, 3, 4.0, 5.1, 5.0, 5.4)
OTHERWISE = Preparation(False, None, 0, None, 8, 1, 6.0, 6.1, 6.2, 6.3)
"""The text went on in a way that no outcome covers."""


def counted(*prepared: Preparation) -> AheadStats:
    found = AheadStats()
    for each in prepared:
        found = found.counting(each)
    return found


def test_every_draft_is_counted_and_rounds_where_something_was_foreseen() -> None:
    found = counted(FIRST, HIT, MISS, OTHERWISE)
    assert (found.drafts, found.hits, found.misses, found.rounds) == (4, 1, 2, 3)
    assert found.hit_rate == pytest.approx(1 / 3)
    assert found.waits == 1, "one was asked for while a forward ran"
    assert found.seconds_on_hits == pytest.approx(0.01)
    assert found.seconds_on_misses == pytest.approx(0.5)
    assert found.rounds_per_depth == (1, 0, 1), "none of the round whose outcome had no place in the draft"
    assert found.hits_per_depth == (0, 0, 1)


def test_counts_add_up() -> None:
    both = counted(FIRST, HIT) + counted(MISS, OTHERWISE)
    whole = counted(FIRST, HIT, MISS, OTHERWISE)
    assert both == whole
    assert AheadStats() + whole == whole
    assert AheadStats().hit_rate == 0
