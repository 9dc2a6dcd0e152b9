"""The page of the lessons in a browser: its chapters, opened, with everything shown that a reader can bring out."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from headstart.learn.pages.lessons import lessons_page

_LISTED = re.compile(r'"hs/lessons/chapters/(\d\d[a-z]?)-[\w-]+"')
CHAPTERS = sorted(
    _LISTED.findall(
        files("headstart.base.web").joinpath("modules", "lessons", "chapters.js").read_text(encoding="utf-8")
    )
)
"""The ids of all chapters, which are also their addresses."""

EVERYTHING = """() => {
  for (const each of document.querySelectorAll('form.predict button.quiet')) each.click();
  for (const form of document.querySelectorAll('form.exercise')) {
    form.querySelector('button[type=submit]').click();
    for (let i = 0; i < 20; i++) {
      const more = [...form.querySelectorAll('.actions button.quiet')].find((button) => !button.hidden);
      if (!more) break;
      more.click();
    }
  }
  for (const each of document.querySelectorAll('details')) each.open = true;
}"""


def written(folder: Path) -> Path:
    """The page as a file in a folder."""
    path = folder / "lessons.html"
    path.write_text(lessons_page(), encoding="utf-8")
    return path


def show_everything(tab: Any) -> None:
    """Reveal all predictions, hints and solutions, and open all tables."""
    tab.evaluate(EVERYTHING)
    tab.wait_for_timeout(100)
