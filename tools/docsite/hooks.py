"""What mkdocs does besides: pages from outside of docs/, and links that lead out of it.

The documents are written for a code host, where a link to a source file opens the file. In the site such a link leads
to a page that shows the file. The documents beside docs/ are pages too: README.md is the first one.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from command_line import command_line  # noqa: E402 (mkdocs loads this file by its path, and knows no folder of it)
from results_index import RESULTS, index  # noqa: E402

from headstart.base.web.build import page  # noqa: E402
from headstart.learn.pages.lessons import lessons_page, traces  # noqa: E402

BESIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Documents beside docs/, and their places in the site."""
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
_SEE = """# See it

## The lessons

[**Speculative decoding, taken apart**](lessons.html): short chapters with pictures to play with and exercises that the
page checks. It is one file, works offline and sends nothing anywhere.

## Recorded runs

Each is a run of the bundled pair in the viewer: every round with its guesses, their probabilities, the uniform draw and
the weight that decided, and where the time went.

{links}
"""
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Any, config: Any) -> Any:
    """Add what is generated: documents beside docs/, the command line, the lessons; the type face; files linked to."""
    texts = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in BESIDE.items()}
    texts["reference/command-line.md"] = command_line()
    texts |= see_it()
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    face = ROOT / "src/headstart/base/web/fonts/inter.woff2"
    files.append(File.generated(config, "assets/inter.woff2", content=face.read_bytes()))
    waiting = list(files.documentation_pages())
    while waiting:
        document = waiting.pop()
        for target in _outside(document.src_uri, document.content_string):
            if place_of(target) not in files.src_uris:
                shown = File.generated(
                    config, place_of(target), content=_shown(target), inclusion=InclusionLevel.NOT_IN_NAV
                )
                files.append(shown)
                waiting += [shown] if shown.is_documentation_page() else []
    return files


def see_it() -> dict[str, str]:
    """The lessons and the recorded traces, each in its viewer, and the page that leads to them; texts by place."""
    recorded = traces()
    pages = {"see/lessons.html": lessons_page()}
    for each in recorded:
        data = {"trace": each["lines"]}
        pages[f"see/{each['name']}.html"] = page("viewer/main", each["title"], data=data, styles=["viewer"])
    links = "\n".join(f"- [{each['title']}]({each['name']}.html)" for each in recorded)
    return {**pages, "see/index.md": _SEE.format(links=links)}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/ go to the pages that stand for those files."""
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        target = source_of(here, link[1])
        place = target.removeprefix("docs/") if _inside(target) else place_of(target)
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (link[2] or "")

    return _LINK.sub(moved, markdown)


def place_of(target: str) -> str:
    """Where the site shows a file or folder of the repository that stands outside of docs/."""
    if target in BESIDE or target.endswith(".md"):
        return BESIDE.get(target, f"files/{target}")
    return f"files/{target}{'.md' if (ROOT / target).is_dir() or target.endswith('.py') else ''}"


def source_of(here: str, link: str) -> str:
    """What a link leads to, relative to the repository; `here` is the place in the site where the link stands."""
    beside = {place: name for name, place in BESIDE.items()}
    name = beside.get(here) or f"docs/{here}"
    if here.startswith("files/"):
        name = here.removeprefix("files/")
        name = name if (ROOT / name).exists() else name.removesuffix(".md")
        name = f"{name}/." if (ROOT / name).is_dir() else name
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def _outside(here: str, markdown: str) -> list[str]:
    """The files and folders outside of docs/ that a page links to, relative to the repository."""
    targets = [source_of(here, link[1]) for link in _LINK.finditer(markdown)]
    return [each for each in targets if not _inside(each)]


def _inside(target: str) -> bool:
    """Whether mkdocs itself takes care of it; it complains of what is nowhere."""
    return target.startswith("docs/") or not (ROOT / target).exists()


def _shown(target: str) -> str | bytes:
    """A page that shows a file, or lists a folder; or what is no text for people, as it is."""
    path = ROOT / target
    if path == RESULTS:
        return f"{_UNSEARCHED}{index()}"
    if path.is_dir():
        names = "\n".join(f"- [{each.name}]({each.name})" for each in sorted(path.iterdir()) if each.is_file())
        return f"{_UNSEARCHED}# {target}\n\n{names}\n"
    if path.suffix != ".py":
        return path.read_bytes()
    text = path.read_text(encoding="utf-8")
    fence = "`" * (3 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{_UNSEARCHED}# {target}\n\n{fence}python\n{text}\n{fence}\n"
