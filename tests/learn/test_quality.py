"""Every chapter of the lessons is a sound page: see `support.pages` for all that is looked at.

The fast suite has every fifth chapter as it opens; the slow one has every chapter, and with everything shown too, at
both widths and in both themes. The chapters together are seen in all four views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.lessons import CHAPTERS, show_everything, written
from support.pages import VIEWS, View, checked


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("lessons")).as_uri()


def view_of(chapter: str) -> View:
    """One of the four, so that the chapters together are seen in all."""
    return VIEWS[CHAPTERS.index(chapter) % len(VIEWS)]


def views_of(chapter: str) -> list[View]:
    """Each width and each theme once: the narrow page light and the wide one dark, or the other way round."""
    return [VIEWS[0], VIEWS[3]] if CHAPTERS.index(chapter) % 2 else [VIEWS[1], VIEWS[2]]


@pytest.mark.parametrize(
    "views", [pytest.param(VIEWS[:1], id="narrow"), pytest.param(VIEWS[1:], id="rest", marks=pytest.mark.slow)]
)
def test_the_contents_are_sound(browser: Any, lessons: str, views: Sequence[View]) -> None:
    checked(browser, lessons, prepare=show_everything, views=views)


@pytest.mark.parametrize(
    "chapter",
    [pytest.param(each, marks=() if place % 5 == 0 else pytest.mark.slow) for place, each in enumerate(CHAPTERS)],
)
def test_a_chapter_is_sound_as_it_opens(browser: Any, lessons: str, chapter: str) -> None:
    checked(browser, f"{lessons}#{chapter}", views=[view_of(chapter)])


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_is_sound_with_everything_shown(browser: Any, lessons: str, chapter: str) -> None:
    checked(browser, f"{lessons}#{chapter}", prepare=show_everything, views=views_of(chapter))
