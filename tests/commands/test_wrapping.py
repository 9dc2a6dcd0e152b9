"""Streamed text on a terminal: words stay whole, whatever the pieces in which they come."""

from __future__ import annotations

import re

import pytest
from rich.style import Style

from headstart.commands.wrapping import WordWrap


def screen(written: str) -> list[str]:
    """The lines that a terminal shows, which knows a step to the left and the clearing of a line's end."""
    lines = [""]
    column = 0
    for left, char in re.findall(r"\x1b\[(\d+)D\x1b\[K|(.|\n)", written):
        if left:
            column -= int(left)
            lines[-1] = lines[-1][:column]
        elif char == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] += char
            column += 1
    return lines


def shown(pieces: list[str], width: int) -> list[str]:
    wrap = WordWrap(width)
    return screen("".join(part for piece in pieces for part, _ in wrap.take(piece)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_words_stay_whole(size: int) -> None:
    text = "The sky is blue because shorter wavelengths are scattered more strongly by air.\nIndeed."
    found = shown([text[i : i + size] for i in range(0, len(text), size)], 30)
    assert max(map(len, found)) < 30
    assert [line.rstrip() for line in found] == [
        "The sky is blue because", "shorter wavelengths are", "scattered more strongly by", "air.", "Indeed.",
    ]  # fmt: skip


def test_a_word_of_more_than_a_line_is_cut_and_wide_characters_take_two_columns() -> None:
    assert shown(["x" * 70], 31) == ["x" * 30, "x" * 30, "x" * 10]
    assert shown(["天" * 20], 31) == ["天" * 15, "天" * 5]


def test_a_narrow_terminal_wraps_by_itself_and_styles_go_along() -> None:
    assert shown(["one two three four five six seven"], 12) == ["one two three four five six seven"]
    wrap, green = WordWrap(24), Style(color="green")
    parts = [*wrap.take("twenty columns and some"), *wrap.take("thing", green)]
    assert ("thing", green) in parts
    assert ("s", None) in parts, "what is written again keeps its style"
