"""A picture of a page as SVG, for documents: python tools/page_picture.py ADDRESS OUT.svg [--script JS ...]

The page is opened in a browser, the scripts are run one after the other, and what the window then shows is drawn anew
as SVG: boxes, text, lines and the page's own figures. So a picture stays sharp, small, and readable as text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

BROWSER = "/usr/bin/chromium"
DRAW = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1120)
    parser.add_argument("--height", type=int, default=700)
    parser.add_argument("--scheme", choices=["light", "dark"], default="light")
    parser.add_argument("--wait", type=float, default=0.6, help="seconds after the page and each script")
    parser.add_argument("--script", action="append", default=[], help="run in the page, in order")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        size = {"width": given.width, "height": given.height}
        page = browser.new_context(viewport=size, color_scheme=given.scheme, reduced_motion="reduce").new_page()
        page.goto(given.address)
        page.wait_for_timeout(1000 * given.wait)
        for script in given.script:
            page.evaluate(script)
            page.wait_for_timeout(1000 * given.wait)
        picture = page.evaluate(DRAW, [0, 0, given.width, given.height])
        browser.close()
    given.out.write_text(picture, encoding="utf-8")
    print(f"{given.out}: {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
