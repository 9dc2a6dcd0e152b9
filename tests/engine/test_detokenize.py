"""Text while it comes: stop strings are found exactly, at a cost that their length does not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.engine.detokenize import TextStream
from headstart.types.sampling import LONGEST_STOP, MOST_STOP_CHARACTERS

LETTERS = st.text("ab", min_size=1, max_size=6)


def stream_of(pieces: Sequence[str], stops: Sequence[str]) -> TextStream:
    """A stream whose token n writes piece n."""
    return TextStream(lambda ids: "".join(pieces[token] for token in ids), (), stops)


def held_back(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text that begin a stop string, by trying all."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def first_stop(text: str, new: int, stops: Sequence[str]) -> int | None:
    """Where the first stop string begins that ends in the last `new` characters, by trying all places."""
    places = range(len(text) + 1)
    return min(
        (at for stop in stops for at in places if text.startswith(stop, at) and at + len(stop) > len(text) - new),
        default=None,
    )


@given(st.lists(LETTERS, max_size=12), st.lists(LETTERS, min_size=1, max_size=4), st.integers(0, 4))
def test_stop_strings_are_found_as_by_trying_all_places(pieces: list[str], stops: list[str], from_piece: int) -> None:
    """Also where stop strings overlap, hold each other, or may only count from some piece on (`min_tokens`)."""
    stream, text, taken = stream_of(pieces, stops), "", ""
    for number, piece in enumerate(pieces):
        stream.push([number])
        text += piece
        place = first_stop(text, len(piece), stops)
        if number >= from_piece:
            assert stream.stopped() == (place is not None)
            if place is not None:
                assert stream.text == text[:place]
                assert stream.stop in stops
                assert text.startswith(str(stream.stop), place)
                assert taken + stream.take(final=True) == text[:place]
                return
        taken += stream.take()
        assert taken == text[: max(len(taken), len(text) - held_back(text, stops))]
    assert taken + stream.take(final=True) == text


class Counted(str):
    """A string that counts how many of its characters are looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> str:
        found = super().__getitem__(place)
        Counted.looked_at += len(found)
        return found


@pytest.mark.parametrize("length", [10, 1000, 100_000])
@pytest.mark.parametrize("repeated", ["x", "xy", "xxxxy"])
def test_a_long_stop_string_costs_no_more_than_the_text(length: int, repeated: str) -> None:
    """Clients choose the strings, and all requests share the thread: nothing may grow with their length."""
    stop = Counted((repeated * length)[:length] + "!")
    stream = stream_of(["xx", "xy"], [stop])
    Counted.looked_at = 0
    for token in [0, 1, 0, 0, 1] * 20:
        stream.push([token])
        stream.stopped()
        stream.take()
    assert Counted.looked_at <= 8 * 200, "a few looks for each of the 200 characters"


def test_stop_strings_that_are_too_long_are_refused_in_one_line() -> None:
    longest = "x" * LONGEST_STOP
    assert hs.Sampling(stop=[longest]).stop == (longest,)
    with pytest.raises(InvalidOption, match=rf"stop\[1\] has {LONGEST_STOP + 1} characters") as raised:
        hs.Sampling(stop=["a", longest + "x"])
    assert len(str(raised.value)) < 300, "it does not repeat the string"
    many = [longest] * (MOST_STOP_CHARACTERS // LONGEST_STOP)
    assert len(hs.Sampling(stop=many).stop) == len(many)
    with pytest.raises(InvalidOption, match=r"stop=.* in 5 strings"):
        hs.Sampling(stop=[*many, "x"])
