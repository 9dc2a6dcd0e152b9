"""Every page of the library, held to one list: `checked(browser, page)` opens it and raises if anything on it is wrong.

What is checked, at 360 and 1280 px and in the light and the dark theme (`VIEWS`):

- axe-core finds no violation of WCAG 2.0 or 2.1, levels A and AA. What it calls best practice is returned as `advice`.
- Nothing is wider than the window, on the screen (`sideways`) and on A4 paper.
- The page asks for nothing: every request is aborted and reported, except for `data:` and `blob:` addresses and the
  page itself. With `allow_origin` ("http://127.0.0.1:8000"), requests to that origin go through.
- The console shows no error and no warning, and no dialog opens.
- What can be pressed is at least 44 px high and wide. 24 px are enough in a line of text and in a grid, a table or a
  drawing, where neighbours stand close (WCAG 2.2, 2.5.8).
- With reduced motion, nothing has an animation or a transition.
- On paper, the text is dark on white in the dark theme too.

    with opened() as browser:                                   # from support.browser; skips without a browser
        checked(browser, path)                                  # a file, or an address: "file:///page.html#03"
        checked(browser, url, allow_origin=url)                 # a page of a server
        checked(browser, path, prepare=lambda page: page.get_by_role("button", name="Run").click())

`prepare(page)` brings the page into the state to be looked at, once per view. `views` and `shots` (a folder for
pictures of the whole page) are for those who want fewer views or want to see them. All problems of a view are reported
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe

LEVELS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
PAPER = 718
"""The width of A4 in CSS px, less the margins that browsers leave."""


@dataclass(frozen=True, slots=True)
class View:
    width: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.width} px, {self.scheme}"


VIEWS = tuple(View(width, scheme) for width in (360, 1280) for scheme in ("light", "dark"))
EITHER = (View(360, "light"), View(1280, "dark"))
"""Each width and each theme once: for the fast suite, where a slow test has all."""

TARGETS = """() => {
  const pressed = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role=slider],'
    + '[role=checkbox], [role=radio], [role=switch], [role=tab], [role=option], [role=menuitem]';
  const least = (box) => Math.min(box.width, box.height);
  const boxOf = (element) => {  // a label is pressed in place of its input
    const boxes = [element, ...(element.labels ?? [])].map((each) => each.getBoundingClientRect());
    return boxes.reduce((a, b) => (least(b) > least(a) ? b : a));
  };
  const inText = (element) => {
    if (!getComputedStyle(element).display.startsWith('inline')) return false;
    let block = element.parentElement;
    while (block && getComputedStyle(block).display === 'inline') block = block.parentElement;
    return (block?.textContent ?? '').trim().length > element.textContent.trim().length;
  };
  const found = [];
  for (const element of document.querySelectorAll(pressed)) {
    if (element.disabled || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (element.closest('[aria-hidden=true], [inert]') || getComputedStyle(element).pointerEvents === 'none') continue;
    const box = boxOf(element);
    if (box.right < 0 || box.bottom + scrollY < 0 || !box.width) continue;  // shown once it has the focus
    const line = inText(element);
    const close = line || element.closest('[role=grid], table, svg');
    const height = line ? Math.max(box.height, parseFloat(getComputedStyle(element).lineHeight) || 0) : box.height;
    const wanted = close ? 24 : 44;
    const narrow = !line && box.width < wanted - 0.5;
    if (height < wanted - 0.5 || narrow) {
      const words = element.getAttribute('aria-label') || element.textContent.trim() || element.id || element.type;
      found.push(`${element.tagName.toLowerCase()}.${element.className?.baseVal ?? element.className}`
        + ` "${words.slice(0, 40)}" is ${Math.round(box.width)} x ${Math.round(height)} px, not ${wanted}`);
    }
  }
  return found;
}"""

SIDEWAYS = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = (element) => {
    for (let each = element.parentElement; each && each !== document.body; each = each.parentElement)
      if (getComputedStyle(each).overflowX !== 'visible') return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')]
    .filter((each) => each.getBoundingClientRect().right > width + 0.5 && !scrolls(each))
    .map((each) => `${each.tagName.toLowerCase()}.${each.className?.baseVal ?? each.className} ends at `
      + Math.round(each.getBoundingClientRect().right));
  return [`the page is ${document.documentElement.scrollWidth} px wide in ${width}: ${wide.slice(0, 5).join('; ')}`];
}"""

MOTION = """() => {
  const lasts = (times) => times.split(',').some((time) => parseFloat(time) > 0.001);
  const moves = [...document.querySelectorAll('*')].filter((each) => {
    const style = getComputedStyle(each);
    return (style.animationName !== 'none' && lasts(style.animationDuration)) || lasts(style.transitionDuration);
  });
  const name = (each) => `${each.tagName.toLowerCase()}.${each.className?.baseVal ?? each.className}`;
  return moves.slice(0, 8).map((each) => `${name(each)} still moves`);
}"""

PAPER_BACK = """() => {
  const back = getComputedStyle(document.body).backgroundColor;
  return ['rgb(255, 255, 255)', 'rgba(0, 0, 0, 0)'].includes(back) ? [] : [`the paper is ${back}`];
}"""

_FOLLOW = """() => {
  window.reached = new Set();
  window.unmarked = new Set();
  window.covered = [];
  const marked = (element) => {
    const style = getComputedStyle(element);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) || style.boxShadow !== 'none';
  };
  document.addEventListener('focusin', ({ target }) => {
    window.reached.add(target);
    if (![target, target.closest('label'), target.parentElement].some((each) => each && marked(each)))
      window.unmarked.add(target);
    const [line, place] = [document.querySelector('header.top'), target.getBoundingClientRect()];
    const away = line.contains(target) || target.matches('.skip') || !place.height;
    if (!away && place.bottom <= line.getBoundingClientRect().bottom)
      window.covered.push(target.outerHTML.slice(0, 80));
  });
}"""
_CONTROLS = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility({ visibilityProperty: true }))"""
_NAME = """(each) => `${each.tagName.toLowerCase()}.${each.className?.baseVal ?? each.className} "`
  + `${(each.getAttribute('aria-label') || each.textContent || each.name || '').trim().slice(0, 40)}"`"""
_MISSED = f"""() => ({_CONTROLS})().filter((each) => !window.reached.has(each)
  && !(each.type === 'radio' && [...window.reached].some(({{ type, name }}) => type === 'radio' && name === each.name)))
  .map({_NAME})"""
_UNMARKED = f"() => [...window.unmarked].filter((each) => each.isConnected && each.tabIndex >= 0).map({_NAME})"


def walked_by_tab(tab: Any) -> None:
    """Go through an open page by the Tab key: every control is reached, shows that it has the focus, and is not under
    the line at the top."""
    tab.evaluate(_FOLLOW)
    for _ in range(tab.evaluate(f"({_CONTROLS})().length") + 5):
        tab.keyboard.press("Tab")
    assert tab.evaluate(_MISSED) == []
    assert tab.evaluate(_UNMARKED) == []
    assert tab.evaluate("window.covered") == []


@dataclass(frozen=True, slots=True)
class Checked:
    """What a view showed that is no error. advice: axe-core's best practices that were not kept, one line each."""

    view: View
    advice: tuple[str, ...]


def checked(
    browser: Any,
    page: Path | str,
    *,
    prepare: Callable[[Any], object] | None = None,
    allow_origin: str | None = None,
    views: Sequence[View] = VIEWS,
    shots: Path | None = None,
) -> list[Checked]:
    """Open a page in every view and raise an AssertionError with all that is wrong; see the module.

    Args:
        browser: from `support.browser.opened`.
        page: a file or an address.
        prepare: is given the open page before it is looked at.
        allow_origin: the page's own server, which it may talk to.
        views: the widths and themes to look at.
        shots: a folder for pictures of the whole page.
    """
    address = page.resolve().as_uri() if isinstance(page, Path) else page
    return [_looked_at(browser, address, view, prepare, allow_origin, shots) for view in views]


def _looked_at(
    browser: Any,
    address: str,
    view: View,
    prepare: Callable[[Any], object] | None,
    allow_origin: str | None,
    shots: Path | None,
) -> Checked:
    context = browser.new_context(viewport={"width": view.width, "height": 900}, color_scheme=view.scheme)
    try:
        tab, wrong = watched(context, address, allow_origin)
        tab.goto(address)
        tab.wait_for_load_state("load")
        if prepare:
            prepare(tab)
        violations, advice = _axe(tab, (*LEVELS, "best-practice"))
        wrong += [*violations, *tab.evaluate(SIDEWAYS), *tab.evaluate(TARGETS)]
        if shots:
            shots.mkdir(parents=True, exist_ok=True)
            name = address.rsplit("/", 1)[-1].replace(".html", "").replace("#", "-") or "page"
            tab.screenshot(path=shots / f"{name}-{view.width}-{view.scheme}.png", full_page=True)
        wrong += _calm_and_printed(tab)
    finally:
        context.close()
    assert not wrong, f"{address.rsplit('/', 1)[-1]} at {view}:\n  " + "\n  ".join(wrong)
    return Checked(view, tuple(advice))


def watched(context: Any, address: str, allow_origin: str | None = None) -> tuple[Any, list[str]]:
    """A tab that can reach nothing but the page (and its origin, where allowed), and the list that its errors go to."""
    wrong: list[str] = []
    own = address.split("#")[0]

    def ask(route: Any) -> None:
        url = route.request.url
        if url.split("#")[0] == own or (allow_origin and url.startswith(allow_origin.rstrip("/") + "/")):
            route.continue_()
        else:
            wrong.append(f"the page asked for {url[:120]}")
            route.abort()

    context.route("**/*", ask)
    tab = context.new_page()
    tab.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    tab.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    return tab, wrong


def _calm_and_printed(tab: Any) -> list[str]:
    """What is wrong with reduced motion and on paper; leaves the page as it would be printed."""
    tab.emulate_media(reduced_motion="reduce")
    wrong = list(tab.evaluate(MOTION))
    tab.emulate_media(media="print", reduced_motion="reduce")
    tab.set_viewport_size({"width": PAPER, "height": 1000})
    faint, _ = _axe(tab, rules=("color-contrast",))
    return wrong + [f"on paper: {each}" for each in (*tab.evaluate(SIDEWAYS), *tab.evaluate(PAPER_BACK), *faint)]


def _axe(tab: Any, tags: Sequence[str] = (), rules: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """axe-core's violations of the levels asked for, and of best practice, one line for each place."""
    only = {"type": "tag", "values": list(tags)} if tags else {"type": "rule", "values": list(rules)}
    results = Axe().run(tab, options={"resultTypes": ["violations"], "runOnly": only})
    violations, advice = [], []
    for found in results.response["violations"]:
        where = [" ".join(map(str, node["target"])) for node in found["nodes"]]
        why = [said["message"] for node in found["nodes"][:1] for said in (*node["any"], *node["all"], *node["none"])]
        line = f"{found['id']}: {found['help']}, at {'; '.join(where[:4])} ({len(where)}): {'; '.join(why)[:200]}"
        (advice if "best-practice" in found["tags"] else violations).append(line)
    return violations, advice
