"""Rounds of runs, and what shorter drafts would have made of them: cut by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.engine.in_turn import Round, run_once
from headstart.measure.doctor.prediction import conditional, recut, shares, whole_goes_on


def chain(drafted: int, accepted: int, source: str = "d") -> Round:
    return Round(source if drafted else "", drafted, drafted, accepted, accepted + 1)


def cut(rounds: list[Round], k: int, *, joined: bool = False) -> list[tuple[int, int, int]]:
    return [(one.nodes, one.accepted, one.tokens) for one in recut(rounds, k, joined=joined)]


def test_a_shorter_draft_takes_more_rounds_over_the_same_stretch() -> None:
    # five of eight accepted and a bonus: six tokens, by twos three and three
    assert cut([chain(8, 5)], 2) == [(2, 2, 3), (2, 2, 3)]
    # seven tokens: the third round meets the guess that was wrong
    assert cut([chain(8, 6)], 2) == [(2, 2, 3), (2, 2, 3), (2, 0, 1)]
    assert cut([chain(8, 0)], 2) == [(2, 0, 1)]
    assert cut([chain(0, 0)], 2) == [(0, 0, 1)]
    assert cut([chain(8, 5)], 8) == [(8, 5, 6)]


def test_no_drafts_at_all_is_plain_decoding() -> None:
    assert cut([chain(8, 5), chain(0, 0)], 0) == [(0, 0, 1)] * 7


def test_a_draft_that_was_right_to_its_end_might_have_gone_on() -> None:
    rounds = [chain(4, 4), chain(4, 1)]
    assert cut(rounds, 2) == [(2, 2, 3), (2, 1, 2), (2, 1, 2)]
    # as one stretch of 4 + the guessed bonus + 1 right ones, seven tokens: the seventh stands after a wrong guess
    assert cut(rounds, 2, joined=True) == [(2, 2, 3), (2, 2, 3), (2, 0, 1)]
    assert cut([chain(4, 4), chain(0, 0)], 2, joined=True) == [(2, 2, 3), (2, 1, 2), (0, 0, 1)]
    assert cut([chain(4, 4), chain(4, 1, "e")], 2, joined=True) == cut([chain(4, 4), chain(4, 1, "e")], 2)
    assert cut(rounds, 4, joined=True) == [(4, 4, 5), (4, 1, 2)], "nothing is shorter than it was"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12), st.integers(0, 9), st.booleans())
def test_the_text_stays_the_same(shapes: list[tuple[int, int]], k: int, joined: bool) -> None:
    rounds = [chain(drafted, min(drafted, accepted)) for drafted, accepted in shapes]
    pieces = recut(rounds, k, joined=joined)
    assert sum(one.tokens for one in pieces) == sum(one.tokens for one in rounds)
    assert all(1 <= one.tokens <= one.accepted + 1 <= one.nodes + 1 for one in pieces)
    assert all(one.nodes <= k for one in pieces)
    assert len(pieces) >= len(rounds) or joined


def test_conditional_acceptance_counts_what_was_tested() -> None:
    rounds = [chain(3, 3), chain(3, 1), chain(3, 0), chain(1, 1), chain(0, 0)]
    assert conditional(rounds) == ((3, 4), (1, 2), (1, 1))
    assert shares(conditional(rounds)) == pytest.approx((0.75, 0.5, 1.0))
    assert whole_goes_on(rounds) == pytest.approx(2 / 3), "positions 2 and 3: two of three"
    assert whole_goes_on([chain(0, 0)]) == 0


def test_rounds_of_a_run_leave_out_the_step_that_reads_the_prompt(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", "ngram", num_speculative_tokens=4)
    run = run_once("x", engine, [5, 6, 7, 5, 6, 7, 5, 6], hs.Sampling(max_tokens=24, ignore_eos=True))
    rounds = run.rounds
    steps = [step for _, step in run.arrivals if step.tokens]
    assert len(rounds) == len(steps) - 1
    assert sum(one.tokens for one in rounds) == 24 - len(steps[0].tokens)
    assert sum(one.seconds for one in rounds) == pytest.approx(run.arrivals[-1][0] - run.arrivals[0][0])
    assert all(one.seconds >= one.parts.draft + one.parts.verify > 0 for one in rounds)
    assert {one.source for one in rounds if one.nodes} <= {"ngram"}
