"""JavaScript functions of the pages, called from Python: for tests that hold them to their Python twins."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headstart.base.web
from headstart.base.web.build import modules
from support.browser import opened

_MODULES = Path(headstart.base.web.__file__).parent / "modules"
_READY = """async (names) => {
  window.hs = {};
  for (const name of names) window.hs[name.split("/").at(-1)] = await import(`hs/${name}`);
  const { Fraction } = await import("hs/algorithm/rational");
  // Fractions travel as texts, maps and functions not at all.
  window.sent = (value) =>
    value instanceof Fraction ? String(value)
    : Array.isArray(value) ? value.map(sent)
    : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, sent(v)]))
    : typeof value === "function" ? null
    : value;
}"""


class Twin:
    """Modules by the last part of their names, `hs.rules` and so on, in a browser."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def __call__(self, function: str, argument: Any = None) -> Any:
        """What a JavaScript function gives for one argument; fractions in the result come as texts."""
        return self._page.evaluate(f"(argument) => sent(({function})(argument))", argument)


@contextmanager
def twin(folder: str = "algorithm") -> Iterator[Twin]:
    """A page with all modules of a folder; the test is skipped where there is no browser."""
    with opened() as browser:
        yield twin_in(browser, names_in(folder))


def names_in(folder: str) -> list[str]:
    """The modules of a folder, as they are imported."""
    return sorted(f"{folder}/{path.stem}" for path in (_MODULES / folder).glob("*.js"))


def twin_in(browser: Any, names: Sequence[str]) -> Twin:
    """A page with modules by name, in a browser that is open."""
    sources = modules("algorithm/rational")
    for name in names:
        sources.update(modules(name))
    urls = {
        f"hs/{name}": "data:text/javascript;base64," + base64.b64encode(source.encode()).decode()
        for name, source in sources.items()
    }
    page = browser.new_page()
    page.set_content(f'<script type="importmap">{json.dumps({"imports": urls})}</script>')
    page.evaluate(_READY, list(names))
    return Twin(page)
