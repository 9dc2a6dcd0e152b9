"""The check of pages sees what it claims to see: a sound page passes, and each planted fault is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import opened
from support.pages import VIEWS, View, checked

PHONE = [View(360, "dark")]
SOUND = """
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sound</title>
<meta name="viewport" content="width=device-width">
<style>
  :root { color-scheme: light dark } body { line-height: 1.6; background: #fff; color: #000 } a { color: #00f }
  @media (prefers-color-scheme: dark) { body { background: #000; color: #fff } a { color: #aaf } }
  button { min-width: 44px; min-height: 44px; background: #fff; color: #000 }
  @media print { :root { color-scheme: light } body { background: #fff; color: #000 } a { color: #000 } }
  HEAD
</style></head><body><main><h1>Sound</h1><p>Words with <a href="#x">a link</a> among them.</p>
<label style="display: inline-block; min-height: 44px">On <input type="checkbox"></label>
<button>Run</button>BODY</main></body></html>
"""
WRONG = [  # what is planted in the head and in the body, and what must be said of it
    ("", "<button style='width:50px'></button>", "button-name"),
    ("", "<p class=faint style='color: #777; background: #888'>faint</p>", r"^  color-contrast.*\.faint"),
    ("", "<p class=wide style='width: 500px'>wide</p>", r"^  the page is 5.. px wide in 360: p\.wide ends at 5"),
    ("", "<img alt='x' src='https://example.invalid/x.png'>", r"asked for https://example\.invalid/x\.png"),
    ("", "<img alt='x' src='beside.png'>", r"asked for file://.*beside\.png"),
    ("", "<script>nothing.here()</script>", "nothing is not defined"),
    ("", "<script>console.warn('beware')</script>", "console: beware"),
    ("", "<script>alert('hello')</script>", "dialog: hello"),
    ("", "<div><button style='min-height:0;height:30px'>Go on</button></div>", '"Go on" is .* x 30 px, not 44'),
    ("", "<ul><li><a href='#y'>alone in its line</a></li></ul>", '"alone in its line" is .* not 44'),
    ("", "<table><tr><td><button style='min-height:0;height:20px'>x</button></table>", '"x" is .* not 24'),
    (".moves { transition: color 0.2s }", "<p class=moves>Words</p>", r"p\.moves still moves"),
    ("@media print { body { background: #eee !important } }", "", r"the paper is rgb\(238, 238, 238\)"),
    ("@media print { h1 { color: #ccc } }", "", "on paper: color-contrast.*h1"),
    ("@media print { h1 { width: 900px } }", "", r"on paper: the page is 9.. px wide in 718: h1\. ends"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened() as browser:
        yield browser


def page(folder: Path, head: str = "", body: str = "") -> Path:
    path = folder / "page.html"
    path.write_text(SOUND.replace("HEAD", head).replace("BODY", body), encoding="utf-8")
    return path


def test_a_sound_page_passes_in_every_view(browser: Any, tmp_path: Path) -> None:
    seen = checked(browser, page(tmp_path), shots=tmp_path / "shots")
    assert [each.view for each in seen] == list(VIEWS)
    assert not any(each.advice for each in seen)
    assert len(list((tmp_path / "shots").iterdir())) == len(VIEWS)


def test_every_planted_fault_is_named(browser: Any, tmp_path: Path) -> None:
    heads, bodies, complaints = zip(*WRONG, strict=True)
    with pytest.raises(AssertionError) as raised:
        checked(browser, page(tmp_path, "\n".join(heads), "\n".join(bodies)), views=PHONE)
    for complaint in complaints:
        assert re.search(complaint, str(raised.value), re.MULTILINE), complaint


def test_what_comes_to_be_when_something_is_pressed_is_looked_at_too(browser: Any, tmp_path: Path) -> None:
    button = "<button onclick=\"this.style.color='#777'; this.style.background='#888'\">Press</button>"
    path = page(tmp_path, "", button)
    checked(browser, path, views=PHONE)
    with pytest.raises(AssertionError, match="color-contrast"):
        checked(browser, path, views=PHONE, prepare=lambda tab: tab.get_by_text("Press").click())


def test_best_practice_is_advice(browser: Any, tmp_path: Path) -> None:
    [seen] = checked(browser, page(tmp_path, "", "<h4>Too deep</h4>"), views=PHONE)
    assert any("heading-order" in each for each in seen.advice)
