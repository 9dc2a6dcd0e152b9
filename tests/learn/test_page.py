"""The page of the lessons: one small file that opens offline, asks for nothing and reports no error."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from support.browser import opened, until

from headstart.learn.pages import lessons as learn_page
from headstart.learn.pages.lessons import TITLE, lessons_page, styles

BUDGET = 500_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lessons") / "lessons.html"
    file.write_text(lessons_page(), encoding="utf-8")
    return file


def test_the_page_keeps_its_budget(path: Path) -> None:
    assert path.stat().st_size <= BUDGET


def test_the_page_names_no_address_that_it_could_ask(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=[\"']?(?!data:)\w+:", text)
    assert "connect-src" not in text


def test_it_opens_from_a_file_without_a_request_and_every_chapter_without_an_error(path: Path) -> None:
    wrong: list[str] = []
    asked: list[str] = []
    with opened() as browser:
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert page.title() == TITLE
        until(page, "!!window.headstartLessons")  # the data of the page are unpacked first
        chapters = page.evaluate("window.headstartLessons.chapters")
        for chapter in chapters:
            page.goto(f"{path.as_uri()}#{chapter['id']}")
            page.get_by_role("heading", level=1, name=chapter["title"]).wait_for()
            assert not wrong, f"chapter {chapter['id']}: {wrong}"
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_chapter_has_its_styles_and_the_shared_ones_come_first() -> None:
    names = styles()
    assert "lessons" in names
    assert not {"theme", "base"} & set(names)
    first = next((i for i, name in enumerate(names) if name.startswith("chapter-")), len(names))
    assert all(name.startswith("chapter-") for name in names[first:])


def test_what_the_page_was_built_with_arrives_in_it(path: Path) -> None:
    wanted = {"traces": learn_page.traces(), "race": learn_page.race(), "scenarios": learn_page.situations()}
    with opened() as browser:
        page = browser.new_context(offline=True).new_page()
        page.goto(path.as_uri())
        until(page, "!!window.headstartLessons")
        for name, value in wanted.items():
            assert page.evaluate(f"import('hs/base/dom').then(({{ data }}) => data('{name}'))") == json.loads(
                json.dumps(value)
            )


def test_the_readme_shows_the_same_race() -> None:
    root = Path(__file__).parents[2]
    tool = runpy.run_path(str(root / "tools" / "picture.py"))
    shown = (root / "docs" / "demo.svg").read_text(encoding="utf-8")
    assert shown == tool["picture"](learn_page.race()), "python tools/picture.py draws it again"
    (times,) = re.findall(r">(\d\.\d times as fast), and the same letters", shown)
    assert f"{times}, and the same letters](docs/demo.svg)" in (root / "README.md").read_text(encoding="utf-8")
