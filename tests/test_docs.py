"""The documents: every link leads somewhere, anchors too, and the site shows what a code host shows."""

from __future__ import annotations

import importlib
import itertools
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import headstart
from headstart.loading.checkpoint import DEFAULT_LENGTH

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
NAMED = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


@cache
def parsed(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


def links(path: Path) -> list[str]:
    """The addresses of links and pictures."""
    children = [child for token in parsed(path) for child in token.children or []]
    found = [
        child.attrs.get("href", child.attrs.get("src")) for child in children if child.type in ("link_open", "image")
    ]
    return [str(each) for each in found]


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that code hosts give headings: lower case, words joined by dashes, a number for what comes again."""
    tokens, seen, found = parsed(path), Counter[str](), set()
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            text = "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return frozenset(found)


@pytest.mark.parametrize("name", NAMED)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(name: str) -> None:
    path, broken = ROOT / name, []
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(("https://", "mailto:")), link
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or not file.is_relative_to(ROOT):
            broken.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(file):
            broken.append(f"{link}: no such heading; there are {sorted(anchors(file))}")
    assert not broken


def test_a_heading_has_the_anchor_that_code_hosts_give_it(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("# A `b`: c - d\n\n# Twice\n\n# Twice\n", encoding="utf-8")
    assert anchors(path) == {"a-b-c---d", "twice", "twice-1"}


def test_every_document_has_a_place_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    generated = {"index.md", "see/index.md", "reference/command-line.md", "changelog.md", "contributing.md"}
    assert named - generated == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


@pytest.mark.parametrize("name", [each for each in NAMED if each.startswith("docs/")])
def test_lists_begin_after_an_empty_line(name: str) -> None:
    """Without one a code host shows a list, and the site a paragraph."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    for token in parsed(ROOT / name):
        if token.type in ("bullet_list_open", "ordered_list_open") and token.level == 0 and token.map and token.map[0]:
            assert not lines[token.map[0] - 1].strip(), f"line {token.map[0] + 1}: {lines[token.map[0]]}"


GUIDES = ["README.md", "CONTRIBUTING.md", *(each for each in NAMED if each.startswith("docs/guides/"))]


@pytest.mark.parametrize("name", GUIDES)
def test_every_column_of_a_table_in_a_guide_has_a_name(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    heads = [lines[token.map[0]] for token in parsed(ROOT / name) if token.type == "table_open" and token.map]
    assert [head for head in heads if not all(cell.strip() for cell in head.strip().strip("|").split("|"))] == []
    assert not [head for head in heads if head.startswith("| |")]


def test_the_reference_has_the_whole_public_contract() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: headstart\.(\w+)$", page, re.MULTILINE))
    beside = {"HeadstartError", "__version__"}  # with the errors; a string
    assert shown - {"loading"} == set(headstart.__all__) - beside


LIVING = [each for each in NAMED if each not in ("CHANGELOG.md", "docs/log.md")]
"""The documents that say how things are; the other two say how they were."""
OF_OTHERS = ("vllm/", "srt/", "vendor/")
"""Where files of vLLM, SGLang and llama.cpp are."""
FIELDS = {"ahead", "finish_reason", "json", "reasoning", "sampling", "seeds", "steps", "toml", "tools"}
"""What follows `headstart.` in the name of a file or of a field that the server answers."""


@cache
def files() -> frozenset[str]:
    """All files and folders that can be named, from the root."""
    roots = [ROOT / name for name in ("src", "tests", "docs", "tools", "benchmarks")]
    return frozenset(str(path.relative_to(ROOT)) for root in roots for path in root.rglob("*"))


def absent(text: str) -> list[str]:
    """The files of programs that a text names with a folder, and that are in no folder of such a name."""
    named = re.findall(r"(?<![\w/.:@-])((?:[\w.-]+/)+[\w.-]+\.(?:py|js|cpp|h))\b", text)
    whole = {f"/{path}" for path in files()}
    return [
        name
        for each in named
        if not (name := re.sub(r"^(\.\./)+", "", each)).startswith(OF_OTHERS)
        and "NAME" not in name
        and not any(path.endswith(f"/{name}") for path in whole)
    ]


@pytest.mark.parametrize("name", LIVING)
def test_the_files_that_documents_name_exist(name: str) -> None:
    assert absent((ROOT / name).read_text(encoding="utf-8")) == []


def test_the_order_of_reading_says_how_long_the_files_are() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| \d \| `([\w/.]+)` \| (\d+) \|", page, re.MULTILINE)
    assert len(order) == 8
    for name, lines in order:
        text = (ROOT / "src" / "headstart" / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) == pytest.approx(int(lines), rel=0.15), name


def test_a_file_that_does_not_exist_is_found() -> None:
    assert absent("`insight/report.py`, [verify](../src/headstart/rule/verify.py), `rule/verify.py`") == [
        "insight/report.py"
    ]


@pytest.mark.parametrize("name", LIVING)
def test_the_modules_and_names_that_documents_name_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [
        token.content
        for token in parsed(ROOT / name)
        if token.type in ("fence", "code_block") and "headstart" in token.content
    ]
    imports = [
        f"{module}.{name.split()[0]}"
        for block in blocks
        for module, names in re.findall(r"^ *from (headstart[\w.]*) import ([\w, ]+)$", block, re.MULTILINE)
        for name in names.split(",")
    ]
    spans = [each for each in re.findall(r"`(headstart(?:\.\w+)+)`", text) if each.split(".")[1] not in FIELDS]
    spans = [each for each in spans if each not in ("headstart.toml", "headstart.json")]  # files
    gone = [each for each in {*imports, *spans} if not resolves(each)]
    assert not gone


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_a_name_that_does_not_exist_is_found() -> None:
    assert resolves("headstart.learn.simulate.speculate")
    assert resolves("headstart.Target.engine")
    assert not resolves("headstart.simulate")


@pytest.fixture(scope="module")
def hooks() -> Any:
    """The site's own Python, which needs mkdocs."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install -e '.[docs]'")
    import runpy

    return SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "docsite" / "hooks.py")))


@pytest.mark.parametrize(
    ("here", "link", "there"),
    [
        ("concepts/rule.md", "../exactness-matrix.md", "../exactness-matrix.md"),
        ("concepts/rule.md", "../../src/headstart/rule/verify.py", "../files/src/headstart/rule/verify.py.md"),
        ("concepts/rule.md", "../../CONTRIBUTING.md#style", "../contributing.md#style"),
        ("changelog.md", "docs/guides/serve.md", "guides/serve.md"),
        ("figures.md", "../benchmarks/results", "files/benchmarks/results.md"),
        ("files/benchmarks/results.md", "peers-T1B-20261121-134222.json", "results/peers-T1B-20261121-134222.json"),
        ("files/benchmarks/README.md", "../docs/figures.md", "../../figures.md"),
    ],
)
def test_links_out_of_docs_lead_to_pages_of_the_site(hooks: Any, here: str, link: str, there: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=here))
    assert hooks.on_page_markdown(f"[x]({link})", page=page) == f"[x]({there})"


def test_every_results_file_says_when_and_by_which_commit_it_was_made(hooks: Any) -> None:
    rows = [line.split(" | ") for line in hooks.index().splitlines() if line.startswith("| [")]
    assert len(rows) == len(list((ROOT / "benchmarks" / "results").glob("*.json")))
    assert not [row[0] for row in rows if not re.fullmatch(r"\d{4}-\d\d-\d\d", row[1]) or not row[4].strip("`")]
    assert len([row[0] for row in rows if not row[2]]) <= 1  # one of 24 November does not say it


@pytest.mark.parametrize("guide", ["chat", "gguf"])  # the server takes as many tokens as fit
def test_guides_say_how_long_the_context_is(guide: str) -> None:
    page = " ".join((DOCS / "guides" / f"{guide}.md").read_text(encoding="utf-8").split())
    (sentence,) = re.findall(r"[^.]*\b\d{4} tokens[^.]*--max-model-len", page)
    assert f"{DEFAULT_LENGTH} tokens" in sentence


def test_readme_fits_on_its_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_command_line_is_described_as_it_is() -> None:
    import sys

    sys.path.insert(0, str(ROOT / "tools" / "docsite"))
    try:
        from command_line import command_line
    finally:
        sys.path.pop(0)
    page = command_line()
    for command in ("generate", "serve", "audit", "train medusa"):
        assert re.search(rf"^#+ headstart {command}$", page, re.MULTILINE)
    row = re.search(r"^\| `--temperature`, `-T` `X` \| (.*) \| `0.0` \|$", page, re.MULTILINE)
    assert row
    assert "likeliest token" in row[1]
    assert "COMMAND --help`" in page.split("\n\n")[1]
    groups = ["Run a model", "Choose and check", "Prove", "Operate"]
    assert [page.index(f"\n## {name}\n") for name in groups] == sorted(page.index(f"\n## {name}\n") for name in groups)
    assert "\n**Structured output**\n" in page
    assert page.count("`--traceback`") == 1, "said once, of every command"


def test_the_reference_shows_the_default_and_the_words_of_an_option() -> None:
    griffe = pytest.importorskip("griffe", reason="needs griffe: pip install -e '.[docs]'")
    extensions = griffe.load_extensions(str(ROOT / "tools" / "docsite" / "docstrings.py"))
    sampling = griffe.load("headstart.types", search_paths=[ROOT / "src"], extensions=extensions)["Sampling"]
    assert str(sampling["temperature"].value) == "0.0"
    assert "likeliest token" in sampling["temperature"].docstring.value
    assert {str(each.default) for each in sampling.parameters if each.name == "max_tokens"} == {"256"}
