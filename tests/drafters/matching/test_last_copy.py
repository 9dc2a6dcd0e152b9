"""Copies that go on after a change: near the place where they broke off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.drafters import Row
from headstart.drafters.matching.last_copy import PASSAGE, LastCopy, Match
from headstart.drafters.matching.ngram_index import alike
from headstart.drafters.matching.text_index import TextIndex
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Drafting, Sampling

OLD = list(range(100, 140))
ELSEWHERE = [7, 121, 8, 121, 9, 123, 8]
"""Later text in which the tokens after the changes are followed by others."""


def drafts(drafter: Any, prompt: Sequence[int], reply: Sequence[int], drafting: Drafting = Drafting()) -> list[Any]:  # noqa: B008
    """The draft before each token of a reply that comes token by token."""
    state = SamplingState(Sampling(), (), 1000, frozenset())
    found = []
    for length in range(len(reply)):
        tokens = (*prompt, *reply[:length])
        row = Row(0, tokens, state, Noise(0), prompt_tokens=len(prompt), drafting=drafting, budget=Budget(4))
        found.append(list(drafter.propose([row])[0].tokens))
    return found


@pytest.mark.parametrize("place", ["its own text", "a further text", "the index"])
@pytest.mark.parametrize("drafter", [NgramDrafter, SuffixDrafter])
def test_an_edit_is_copied_on_after_each_change(drafter: type[Any], place: str) -> None:
    reply = [*OLD[:20], 50, *OLD[21:23], 51, 52, *OLD[23:26]]  # a token replaced, then two put in
    own = OLD if place == "its own text" else []
    drafting = Drafting(texts=(tuple(OLD),)) if place == "a further text" else Drafting()
    made = drafter(index=TextIndex.of([OLD]) if place == "the index" else None)
    found = drafts(made, [1, *own, *ELSEWHERE], reply, drafting)
    assert found[19] == OLD[19:23]
    assert found[22] == OLD[22:26], "121 is also in a later place, but here the copy broke off"
    assert found[26] == OLD[24:28], "and it goes on after what was put in"


@pytest.mark.parametrize("drafter", [NgramDrafter(), SuffixDrafter()])
def test_after_a_short_copy_the_latest_place_counts(drafter: Any) -> None:
    reply = [*OLD[20 - PASSAGE // 2 : 20], 50, OLD[21]]
    assert drafts(drafter, [1, *OLD, *ELSEWHERE], [*reply, 0])[-1][:1] == [9]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    source=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    text=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    steps=st.lists(st.integers(1, 6), min_size=1, max_size=20),
    own=st.booleans(),
    start=st.integers(1, 30),
)
def test_what_is_found_is_there(source: list[int], text: list[int], steps: list[int], own: bool, start: int) -> None:
    last, length = LastCopy(), min(start, len(text))
    place = min(start, length - 1 if own else len(source) - 1)
    last.note(Match(None if own else source, place, PASSAGE), length)
    for step in steps:
        length = min(length + step, len(text))
        tokens = tuple(text[:length])
        match = last.find(tokens)
        assert match == last.find(tokens), "asking again changes nothing"
        where = tokens if match.source is None else match.source
        if match.matched:
            assert 1 <= match.place <= len(where)
            assert match.matched == alike(where, match.place, tokens)
            last.note(match, length)
