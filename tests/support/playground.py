"""The playground in a browser: a tab on a server of ours, and what a reader does on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headstart.commands.serve import all_pages
from support.http_server import Running
from support.pages import watched

WRITERS = {path: page.write for path, page in all_pages().items()}
"""As an `Application` takes them."""
PATIENCE = 60_000
"""Milliseconds."""
REFUSED = "Failed to load resource"
"""The browser's own note of an answer with an error status, which the page can do nothing about."""


class Reader:
    """Somebody in front of the page.

    wrong: requests to other origins, and what the console said.
    """

    def __init__(self, tab: Any, wrong: list[str]) -> None:
        self.tab, self.wrong = tab, wrong

    def ready(self) -> Reader:
        self.tab.locator(".lamp.ready").wait_for(timeout=PATIENCE)
        return self

    def set(self, **values: Any) -> None:
        """Move sliders, by their labels' first words; `seed` and `prompt` are texts."""
        for name, value in values.items():
            if name == "seed":
                self.tab.locator("#seed").fill(str(value))
            elif name == "prompt":
                self.tab.locator(".text-part textarea").last.fill(value)
            else:
                self.slider(name).fill(str(value))

    def slider(self, name: str) -> Any:
        labels = {"temperature": "Temperature", "tokens": "Most tokens", "draft": "Most guesses a round"}
        return self.tab.get_by_label(labels[name])

    def run(self) -> None:
        """Press Run, and wait for the end."""
        self.tab.locator(".ask .run").click()
        self.ended("done")

    def ended(self, status: str = "done") -> None:
        self.tab.locator(f".answer[data-status={status}]").wait_for(timeout=PATIENCE)
        self.tab.wait_for_timeout(50)  # the next frame draws the last tokens

    def tokens(self) -> list[tuple[str, str]]:
        """[text, origin] of each token of the answer."""
        found = self.tab.locator(".answer .tok[data-index]").evaluate_all(
            "all => all.map(e => [[...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(''), "
            "[...e.classList].find(c => ['accepted', 'correction', 'bonus', 'plain'].includes(c))])"
        )
        return [(text, origin) for text, origin in found]

    def text(self) -> str:
        return "".join(text for text, _ in self.tokens())

    def figures(self) -> Mapping[str, str]:
        """The figures under the answer, by name."""
        names = self.tab.locator(".answer .figures dt").all_inner_texts()
        values = self.tab.locator(".answer .figures dd").all_inner_texts()
        return dict(zip(names, values, strict=True))

    def errors(self) -> list[str]:
        """What is wrong but the browser's notes of refused requests."""
        return [each for each in self.wrong if REFUSED not in each]


@contextmanager
def reading(
    browser: Any, server: Running | str, *, ready: bool = True, width: int = 1280, motion: bool = False
) -> Iterator[Reader]:
    """A reader of this server's playground. Afterwards nothing may have gone wrong on the page.

    motion: whether the page may move by itself; then it runs its first prompt.
    """
    url = server if isinstance(server, str) else server.url
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        accept_downloads=True,
        reduced_motion="no-preference" if motion else "reduce",
    )
    try:
        tab, wrong = watched(context, f"{url}/", url)
        tab.goto(f"{url}/")
        reader = Reader(tab, wrong)
        if ready:
            reader.ready()
        yield reader
        assert reader.errors() == []
    finally:
        context.close()
