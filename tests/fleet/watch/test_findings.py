"""What must hold between counters, and that each way to break it is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.findings import broken

FINE = Counters(
    kind="vllm", counts_drafts=True, generated=3400, drafts=1000, drafted=4000, accepted=2380,
    accepted_per_position=(880, 680, 480, 340), ended=20, running=2.0,
)  # fmt: skip


def test_counters_that_fit_are_not_complained_of() -> None:
    assert broken(FINE) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"accepted": 1190}, "by position sum to 2380, but 1190 are counted"),  # one engine of two was summed
        ({"drafted": 2000}, "2380 tokens were accepted of 2000"),
        ({"accepted_per_position": (680, 880, 480, 340)}, "after a rejected one are counted"),
        ({"drafts": 800, "generated": 3200}, "position 1 was accepted 880 times in 800 drafts"),
        ({"drafts": 5000}, "less than one each"),
        ({"generated": 2500}, "generated tokens are missing"),
        ({"kind": "headstart", "counted_forwards": 500}, "do not fit to 500 forwards"),
    ],
)
def test_each_contradiction_is_named(fault: dict[str, object], words: str) -> None:
    assert words in " ".join(broken(replace(FINE, **fault)))


def test_a_page_written_in_the_middle_of_a_step_is_allowed_for() -> None:
    assert broken(replace(FINE, accepted=2380 - 8)) == []
    assert broken(replace(FINE, accepted=2380 - 40))


def test_a_server_that_counts_no_drafts_has_nothing_to_check() -> None:
    assert broken(Counters(kind="sglang", generated=100)) == []
