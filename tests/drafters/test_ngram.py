"""N-gram lookup against a direct search of the context."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.base.errors import InvalidOption
from headstart.drafters import Row
from headstart.drafters.ngram import NgramDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling


def context(tokens: Sequence[int], budget: int, request: int = 0) -> Row:
    distribution = SamplingState(Sampling(), (), 100, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(0), budget=Budget(budget))


def search(tokens: Sequence[int], budget: int, longest: int, shortest: int) -> tuple[int, ...]:
    """Straight from the definition: the latest earlier occurrence of the longest matching suffix, continued."""
    for n in range(longest, shortest - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if len(tokens) >= n and list(tokens[end - n : end]) == list(tokens[-n:]):
                copy = list(tokens)
                for i in range(budget):
                    copy.append(copy[end + i])
                return tuple(copy[len(tokens) :])
    return ()


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    budget=st.integers(1, 9),
    cut=st.integers(1, 40),
    shortest=st.integers(1, 3),
)
def test_equals_a_direct_search_also_when_the_context_grows(
    tokens: list[int], budget: int, cut: int, shortest: int
) -> None:
    drafter = NgramDrafter(longest=3, shortest=shortest)
    for length in sorted({min(cut, len(tokens)), len(tokens)}):
        (draft,) = drafter.propose([context(tokens[:length], budget)])
        assert draft.tokens == search(tokens[:length], budget, 3, shortest)
        assert draft.is_chain
        assert draft.q is None


def test_a_loop_is_continued_beyond_its_end() -> None:
    (draft,) = NgramDrafter().propose([context([1, 2, 3, 1, 2, 3], 8)])
    assert draft.tokens == (1, 2, 3, 1, 2, 3, 1, 2)


def test_requests_do_not_see_each_other_and_are_forgotten() -> None:
    drafter = NgramDrafter()
    first, second = drafter.propose([context([1, 2, 1], 2, 0), context([1, 3, 1], 2, 1)])
    assert (first.tokens, second.tokens) == ((2, 1), (3, 1))
    drafter.release(0)
    (again,) = drafter.propose([context([9], 2, 0)])
    assert again.tokens == Draft().tokens
    drafter.release(5)


@pytest.mark.parametrize("options", [{"longest": 0}, {"shortest": 0}, {"longest": 2, "shortest": 3}, {"budget": -1}])
def test_options(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption):
        NgramDrafter(**options)
