"""`page`: one self-contained HTML file from JavaScript modules, styles and data. It opens offline, from a file too.

Browsers load no module from a `file://` page, so each one becomes a `data:` URL, and an import map leads from its bare
name (`hs/base/dom` is modules/base/dom.js) to it. A module is written as if it were served; nothing is translated or
bundled. The map is packed, since it takes a third of the room so, and a short script unpacks it. The content policy in
the head of the page names that script and the map by their hashes: they run, and what they import; no other script
does, and nothing is asked but the page's own server, where it has one. The type face is in the page, too.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

_IMPORT = re.compile(r'^\s*(?:import|export)\b[^"\';]*?["\']hs/([\w/-]+)["\'];?', re.MULTILINE)
_THEME = ("theme", "base")
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 12h6M4 8h7M8 4h7' stroke='%230b7fc7' stroke-width='2.4' stroke-linecap='round'/%3E%3C/svg%3E"
)


def page(
    entry: str,
    title: str,
    *,
    data: Mapping[str, Any] | None = None,
    styles: Sequence[str] = (),
    connects: bool = False,
    description: str = "",
    body: str = "",
) -> str:
    """A whole page as text.

    Args:
        entry: the module that runs, by its name below `modules/`: "viewer/main".
        title: of the page.
        data: values that go to JSON; the module reads them with `data(name)` of `hs/base/dom`.
        styles: names below `styles/`, after the theme's.
        connects: whether the page may talk to the server that it came from.
        description: one sentence for those who find the page.
        body: HTML that stands in the page before any script runs.

    Raises:
        FileNotFoundError: a module or a style is not there.
        ValueError: two modules import each other, so that neither could run first.
    """
    imports = {f"hs/{name}": _as_url(source) for name, source in modules(entry).items()}
    import_map = json.dumps({"imports": imports})
    main = "\n" + _RUN.replace("ENTRY", f"hs/{entry}")
    policy = f"default-src 'none'; script-src 'strict-dynamic' {_hash(import_map)} {_hash(main)}; "
    policy += "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    if connects:
        policy += "; connect-src 'self'"
    scripts = [_datum(name, json.dumps(value, ensure_ascii=False)) for name, value in (data or {}).items()]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        *([f'<meta name="description" content="{escape(description)}">'] if description else []),
        f'<link rel="icon" href="{_ICON}">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_face()}</style>",
        *(f"<style>\n{style(name)}</style>" for name in (*_THEME, *styles)),
        *([_HIDDEN] if body else []),
    ]
    whole = [
        body or "<noscript><p>This page is drawn by its own scripts, which are switched off here.</p></noscript>",
        *scripts,
        _packed("modules", import_map),
        f"<script>{main}</script>",
    ]
    return "\n".join(
        ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *whole, "</body>", "</html>", ""]
    )


_HIDDEN = "<noscript><style>.drawn-by-script { display: none; }</style></noscript>"


_PACKED_FROM = 20_000
"""Characters from which a datum is packed: recorded traces shrink to a fifth."""

_RUN = """\
(async () => {
  for (const packed of document.querySelectorAll('script[type="application/gzip"]')) {
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    packed.textContent = await new Response(unpacked).text();
    packed.type = "application/json";
  }
  const modules = document.getElementById("data-modules");
  const map = Object.assign(document.createElement("script"), { type: "importmap", textContent: modules.textContent });
  modules.replaceWith(map);
  const src = JSON.parse(map.textContent).imports["ENTRY"];
  document.body.append(Object.assign(document.createElement("script"), { type: "module", src }));
})();
"""
"""A classic script: a map may not come after a module, and an import would need its URL in the policy."""


def _hash(script: str) -> str:
    """How a content policy names an inline script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _datum(name: str, text: str) -> str:
    """A script element that holds JSON, packed where it is long; the page unpacks it before its own module runs."""
    if len(text) >= _PACKED_FROM:
        return _packed(name, text)
    return f'<script type="application/json" id="data-{escape(name)}">{for_script(text)}</script>'


def _packed(name: str, text: str) -> str:
    packed = b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/gzip" id="data-{escape(name)}">{packed}</script>'


@cache
def _face() -> str:
    """The type face of every page: Inter, cut down to the letters and signs that the pages use (fonts/README.md)."""
    font = b64encode(files("headstart.base.web").joinpath("fonts", "inter.woff2").read_bytes()).decode()
    return (
        '@font-face { font-family: "Inter"; font-weight: 400 700; font-display: block; '
        f'src: url("data:font/woff2;base64,{font}") format("woff2"); }}\n'
    )


def modules(entry: str) -> dict[str, str]:
    """The sources of a module and of all that it imports, by name; what is imported stands before what imports it.

    Raises:
        FileNotFoundError, ValueError: see `page`.
    """
    found: dict[str, str] = {}
    open_: list[str] = []

    def visit(name: str) -> None:
        if name in found:
            return
        if name in open_:
            raise ValueError(f"modules import each other: {' -> '.join([*open_[open_.index(name) :], name])}")
        open_.append(name)
        source = _read(f"modules/{name}.js")
        for imported in _IMPORT.findall(source):
            visit(imported)
        open_.pop()
        found[name] = source

    visit(entry)
    return found


def style(name: str) -> str:
    """One of the style sheets below `styles/`."""
    return _read(f"styles/{name}.css")


def for_script(text: str) -> str:
    """JSON that may stand in a script element: no character in it can end or open one (HTML, 13.2.5.4)."""
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "&<>\u2028\u2029"})


_COMMENT = re.compile(r"^[ \t]*(?:/\*\*.*?\*/[ \t]*|//[^\n]*)\n", re.MULTILINE | re.DOTALL)
_INDENT = re.compile(r"^[ \t\n]+", re.MULTILINE)
"""Empty lines too."""
_PLAIN = " !$'()*+,-./:;=?@[]^_`{|}~\"\\"
"""What stands for itself in the body of a data URL; the rest takes three characters."""


def _as_url(source: str) -> str:
    """Without indentation, empty lines and comments on lines of their own, which are for who reads the files. No
    template may run over several lines, therefore."""
    return "data:text/javascript;charset=utf-8," + quote(_INDENT.sub("", _COMMENT.sub("", source)), safe=_PLAIN)


@cache
def _read(path: str) -> str:
    found = files("headstart.base.web").joinpath(path)
    if not found.is_file():
        raise FileNotFoundError(f"the package has no {path}")
    return found.read_text(encoding="utf-8")
