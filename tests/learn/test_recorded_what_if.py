"""The same request with shorter drafts: the replayed counts are those of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.engine.trace.reader import Trace
from headstart.engine.trace.summary import summarise
from headstart.learn.what_if.recorded import Counts, what_if
from headstart.types import Sampling

PROMPTS = ("def add(a, b):", "import numpy as np\n\ndef mean(values):\n    ", "class Point:\n    def __init__(self")


@pytest.fixture(scope="module")
def run() -> Callable[..., Trace]:
    """run(k, drafter, **sampling): the prompts on the bundled pair, one at a time."""
    target = hs.Target("bundled", dtype="float32")

    def make(k: int, drafter: Any = "bundled", **sampling: Any) -> Trace:
        engine = target.engine(drafter=drafter, num_speculative_tokens=k, pacing="fixed", rule="exact")
        with engine.trace(top=1) as recording:
            for prompt in PROMPTS:
                engine.generate(prompt, Sampling(**{"max_tokens": 41, **sampling}))
        return recording.read()

    return make


def counted(trace: Trace) -> list[Counts]:
    return [Counts(s.forwards, s.drafted, s.accepted) for s in map(summarise, trace.requests)]


def test_replayed_counts_are_those_of_a_run(run: Callable[..., Trace]) -> None:
    long = run(6)
    labels = set()
    for k in (0, 1, 2, 4):
        for request, real in zip(long.requests, counted(run(k)), strict=True):
            found = what_if(long, request, k)
            labels.add(found.label)
            assert found.fewest.forwards <= real.forwards <= found.most.forwards, found.why
            if found.label == "exact":
                assert found.fewest == found.most == real
    assert labels == {"exact", "between"}
    with pytest.raises(InvalidOption):
        what_if(long, long.requests[0], -1)


def test_with_the_k_that_ran_the_counts_stay(run: Callable[..., Trace]) -> None:
    trace = run(5)
    for request, real in zip(trace.requests, counted(trace), strict=True):
        found = what_if(trace, request, 5)
        assert found.label == "exact"
        assert found.most == real


@pytest.mark.parametrize(
    ("drafter", "sampling", "k", "word"),
    [
        ("bundled", {"temperature": 0.8, "seed": 1}, 3, "sampled"),
        ("bundled", {}, 12, "longer"),
        ("ngram", {}, 2, "begun at another place"),
        (["ngram", "bundled"], {}, 2, "several"),
        ("medusa", {}, 2, "trees"),
        ("none", {}, 2, "nothing"),
    ],
)
def test_what_can_only_be_estimated_says_so(
    run: Callable[..., Trace], drafter: Any, sampling: dict[str, Any], k: int, word: str
) -> None:
    trace = run(0 if drafter == "none" else 8, drafter, **sampling)
    for request in trace.requests:
        found = what_if(trace, request, k)
        if any(step.tokens for step in request.steps) or drafter == "none":
            assert found.label == "estimate"
            assert word in found.why
        assert found.fewest.forwards <= found.tokens
        low, high = found.tokens_per_forward
        assert 1 <= low <= high <= k + 1


def test_an_estimate_is_near_the_run(run: Callable[..., Trace]) -> None:
    """Over several prompts: longer and sampled drafts within a quarter of what they then take."""
    trace, longer = run(4), run(8)
    about = sum(what_if(trace, request, 8).most.forwards for request in trace.requests)
    assert about == pytest.approx(sum(real.forwards for real in counted(longer)), rel=0.25)
