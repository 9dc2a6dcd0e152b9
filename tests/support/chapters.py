"""A chapter of the lessons in a browser: its tables, its exercises, and a walk through it by the Tab key alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from headstart.base.web import build
from headstart.learn.pages.lessons import styles
from support.browser import opened

_WHERE = """() => {
  const at = document.activeElement;
  const form = at.closest("form.exercise");
  if (!form) return null;
  const fields = [...form.querySelectorAll(".field")];
  const field = fields.indexOf(at.closest(".field"));
  return {id: form.dataset.exercise, field, type: at.type, submit: at.type === "submit"};
}"""
_ANSWERS = """() => window.headstartLessons.exercises().map(([id, {answer}]) => [id, answer ?? null])"""


def by_hand(value: float, digits: int = 2) -> str:
    """A number rounded as one does by hand, ties up: 1.825 is 1.83, whatever its last bit."""
    step = Decimal(1).scaleb(-digits)
    return str((Decimal(repr(round(value, 12)))).quantize(step, ROUND_HALF_UP))


class Chapter:
    """An open chapter."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def figure(self, label: str) -> Any:
        """The figure whose label begins so."""
        return self.page.locator(f'.figure[aria-label^="{label}"]')

    def numbers(self, label: str) -> list[list[str]]:
        """The rows of "The numbers" under a figure, opened by the keyboard."""
        details = self.figure(label).locator("details.numbers")
        if not details.evaluate("each => each.open"):
            details.locator("summary").focus()
            self.page.keyboard.press("Enter")
        rows = details.locator("tbody tr")
        rows.first.wait_for()
        return [row.locator("td").all_inner_texts() for row in rows.all()]

    def slide(self, label: str, name: str, value: float) -> None:
        """A slider of a figure to a value, as the keys would set it."""
        slider = self.figure(label).get_by_role("slider", name=name)
        slider.evaluate("(each, to) => { each.value = to; each.dispatchEvent(new Event('input')); }", value)

    def answers(self) -> dict[str, dict[str, str] | None]:
        """The exercises of the chapter with their right answers; None where a widget is to be set."""
        return dict(self.page.evaluate(_ANSWERS))

    def answer(self, number: str, values: Mapping[str, Any]) -> tuple[bool, str]:
        """Fill an exercise in by the keyboard and check it: whether it was right, and what the page said."""
        form = self.page.locator(f'form.exercise[data-exercise="{number}"]')
        names = list(self.answers()[number] or {})
        for name, value in values.items():
            field = form.locator(".field").nth(names.index(name))
            if field.locator("input[type=radio]").count():
                field.locator(f'input[value="{value}"]').focus()
                self.page.keyboard.press("Space")
            else:
                field.locator("input").focus()
                self.page.keyboard.press("Control+A")
                self.page.keyboard.type(str(value))
        form.get_by_role("button", name="Check").focus()
        self.page.keyboard.press("Enter")
        said = form.locator(".feedback")
        assert said.evaluate("each => each === document.activeElement"), "the answer of the page has the focus"
        return "good" in (said.get_attribute("class") or "").split(), said.inner_text()

    def walk(self, widgets: Mapping[str, Sequence[str]] = {}) -> list[str]:
        """Solve every exercise with nothing but the keyboard, from the top of the page on; the ids that were solved.

        widgets: the keys that set the widget of an exercise.
        """
        answers = self.answers()
        solved: list[str] = []
        self.page.keyboard.press("Control+Home")
        self.page.evaluate("document.activeElement.blur()")
        last: tuple[str, int] | None = None
        for _ in range(600):
            self.page.keyboard.press("Tab")
            at = self.page.evaluate(_WHERE)
            if at is None:
                if len(solved) == len(answers):
                    break
                continue
            place = (at["id"], at["field"])
            if at["submit"]:
                if at["id"] in solved:
                    continue
                self.page.keyboard.press("Enter")
                form = self.page.locator(f'form.exercise[data-exercise="{at["id"]}"]')
                assert "done" in (form.get_attribute("class") or "").split(), (at["id"], form.inner_text())
                solved.append(at["id"])
            elif at["field"] >= 0 and place != last:
                value = list((answers[at["id"]] or {}).values())[at["field"]]
                self._enter(at["type"], value)
            elif at["type"] == "range":
                for key in widgets[at["id"]]:
                    self.page.keyboard.press(key)
            last = place
        return solved

    def _enter(self, kind: str, value: str) -> None:
        if kind != "radio":
            self.page.keyboard.type(str(value))
            return
        self.page.keyboard.press("Space")
        for _ in range(8):
            if self.page.evaluate("document.activeElement.value") == str(value):
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"no choice {value}")


@contextmanager
def lessons(folder: Path, data: Mapping[str, Any]) -> Iterator[Any]:
    """Opens chapters of the page: a function from an id to a `Chapter`; without a network."""
    path = folder / "lessons.html"
    path.write_text(build.page("lessons/main", "Lessons", data=data, styles=styles()), encoding="utf-8")
    with opened() as browser:
        context = browser.new_context(offline=True, reduced_motion="reduce")

        def open_(number: str) -> Chapter:
            chapter = Chapter(context.new_page())
            chapter.page.goto(f"{path.as_uri()}#{number}")
            chapter.page.locator("article").wait_for()
            return chapter

        yield open_
