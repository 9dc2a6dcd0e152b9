"""The content policy of pages: their own scripts run, and none that markup could bring in."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from gzip import decompress
from hashlib import sha256
from pathlib import Path
from re import DOTALL, findall

import pytest
from support.browser import opened

from headstart.commands.serve import all_pages
from headstart.learn.pages.lessons import lessons_page

WRITERS = [*(page.write for page in all_pages().values()), lessons_page]
PAYLOADS = """
<script>document.title = "broken in";</script>
<script type="module">document.title = "broken in";</script>
<script src="data:text/javascript,document.title='broken in'"></script>
<script type="module" src="data:text/javascript,document.title='broken in'"></script>
<script type="module">import "data:text/javascript,document.title='broken in'";</script>
<img src="data:none" onerror="document.title = 'broken in'">
<svg onload="document.title = 'broken in'"></svg>
<a id="bait" href="javascript:document.title='broken in'">bait</a>
"""


@pytest.mark.parametrize("write", WRITERS)
def test_the_policy_names_each_script_of_the_page(write: Callable[[], str]) -> None:
    text = write()
    policy = findall(r'Content-Security-Policy" content="([^"]*)"', text)[0]
    scripts = next(each for each in policy.split("; ") if each.startswith("script-src "))
    assert not {"'unsafe-inline'", "data:", "blob:", "'unsafe-eval'", "*"} & set(scripts.split())
    running = findall(r"<script>(.*?)</script>", text, DOTALL)
    running += [decompress(b64decode(findall(r'id="data-modules">(.*?)</script>', text)[0])).decode()]
    hashes = {f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in running}
    assert len(hashes) == 2
    assert set(scripts.split()) == {"script-src", "'strict-dynamic'"} | hashes


def test_no_script_in_the_markup_runs_and_the_page_does(tmp_path: Path) -> None:
    text = all_pages()["/trace"].write()
    path = tmp_path / "page.html"
    path.write_text(text.replace("<body>", f"<body>{PAYLOADS}").replace("</body>", f"{PAYLOADS}</body>"), "utf-8")
    errors: list[str] = []
    with opened() as browser:
        page = browser.new_context(offline=True).new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        page.locator("main, h1").first.wait_for()
        page.evaluate("document.querySelectorAll('#bait').forEach((bait) => bait.click())")
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', `<img src='data:none' onerror='document.title=1'>`)"
        )
        page.wait_for_timeout(50)
        title = page.title()
    assert title == "A trace, round by round"
    assert not errors
