"""The words of the documents, the command line, the lessons and the public docstrings are the field's own words.

docs/glossary.md defines them. `PRIVATE` has the words of headstart's own that once stood for them, and what to write.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import headstart
from headstart.base import errors
from headstart.commands.cli import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headstart"
PRIVATE = {
    r"laws?": "distribution",
    r"coins?": "uniform draw",
    r"(?:of|than|times) plain(?! decoding)|over plain|\d+ (?:of|times) plain": "speedup over the baseline",
    r"dear(?:er|est)?": "expensive, costly",
    r"anew": "again",
    r"(?:brings?|brought|bringing)(?! (?:about|back|together))": "gives, adds, saves: say what is gained",
    r"nobody": "say what happens, or what does not",
    r"(?:(?<!Tower )stands?|stood|standing)(?! (?:for|out)\b)": "is, is at, is in",
    r"learnt": "learned, trained on",
    r"great heat|heats? (?:a model|costs?|lowers|raises|flattens)|(?:drawn|sampled|stays?) (?:hot|cool)": "temperature",
    r"comes? along|came along": "bundled",
    r"ours": "headstart's",
    r"in silence": "without a message, silently",
    r"for want of": "because there is no",
    r"flatters": "makes look better",
    r"(?:still )?to be tossed": "still to come",
    r"not known to us|we know(?: of)?": "say what was read or measured",
    r"the issue (?:asks|wants)": "say whose goal it is",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"rooms|(?:a|the|every|each|one|its|this|new|old) room(?! for)": "module, package; capacity",
    r"house": "architecture, package",
    r"(?:draw|draws) (?:is|are|was|were) (?:thrown|tossed)|(?:throw|toss)(?:es|s)? a (?:uniform )?draw": "draw u",
    r"uniform draws? comes? up": "the uniform draw is below the weight",
}
HISTORY = {
    "docs/log.md": "experiments as they were written down when they were made",
    "docs/decisions.md": "decisions as they were written down when they were made",
}
"""Documents that are not checked, and why. CHANGELOG.md is not either: it tells what was renamed."""


ANY = re.compile(rf"\b(?:{'|'.join(PRIVATE)})\b", re.IGNORECASE)


def found_in(text: str) -> list[str]:
    """Each private word in a text, with what is around it and the standard word."""
    found: list[str] = []
    if not ANY.search(text):
        return found
    for private, standard in PRIVATE.items():
        for match in re.finditer(rf"\b(?:{private})\b", text, re.IGNORECASE):
            around = " ".join(text[max(0, match.start() - 50) : match.end() + 40].split())
            found.append(f"{match[0]!r} (write: {standard}) in: {around}")
    return found


def prose(markdown: str) -> str:
    """A document without code, which may name old fields, and without the addresses of links."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def documents() -> list[str]:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [name for name in (str(path.relative_to(ROOT)) for path in paths) if name not in HISTORY]


@pytest.mark.parametrize("name", documents())
def test_documents_use_the_words_of_the_field(name: str) -> None:
    assert not found_in(prose((ROOT / name).read_text(encoding="utf-8")))


def helps(command: Any) -> Iterator[str]:
    """All help of a command and of those below it."""
    yield command.help or ""
    yield from (parameter.help or "" for parameter in command.params if hasattr(parameter, "help"))
    for each in getattr(command, "commands", {}).values():
        yield from helps(each)


def test_the_command_line_uses_the_words_of_the_field() -> None:
    assert not [hit for text in helps(typer.main.get_command(app)) for hit in found_in(text)]


def strings(javascript: str) -> Iterator[str]:
    """What a reader of a page may see: string and template literals of several words."""
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`', javascript):
        text = re.sub(r"\$\{[^{}]*\}", " ", match[0])
        if " " in text:
            yield text


PAGES = sorted(str(path.relative_to(PACKAGE)) for path in (PACKAGE / "base" / "web" / "modules").rglob("*.js"))


def test_lessons_and_pages_use_the_words_of_the_field() -> None:
    texts = {name: (PACKAGE / name).read_text(encoding="utf-8") for name in PAGES}
    assert not [(name, hit) for name, text in texts.items() for each in strings(text) for hit in found_in(each)]


def test_exercises_use_the_words_of_the_field() -> None:
    answers = PACKAGE / "learn" / "exercises" / "answers.txt"
    assert not found_in(answers.read_text(encoding="utf-8"))


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file: of the module, its classes, functions and fields; and its longer strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


FILES = sorted(
    str(path.relative_to(PACKAGE))
    for package in ("types", "rule", "theory", "learn")
    for path in (PACKAGE / package).rglob("*.py")
)


@pytest.mark.parametrize("name", FILES)
def test_docstrings_use_the_words_of_the_field(name: str) -> None:
    assert not [hit for text in docstrings(PACKAGE / name) for hit in found_in(text)]


ERRORS = {name for name, each in vars(errors).items() if inspect.isclass(each)} | {"Refused"}
SOURCES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def messages(path: Path) -> Iterator[str]:
    """What the errors that a file raises say: their messages and hints."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in ERRORS:
            for each in [*node.args, *(keyword.value for keyword in node.keywords)]:
                parts = [part for part in ast.walk(each) if isinstance(part, ast.Constant)]
                yield " ".join(part.value for part in parts if isinstance(part.value, str))


def test_errors_use_the_words_of_the_field() -> None:
    said = {name: list(messages(PACKAGE / name)) for name in SOURCES}
    assert sum(len(each) for each in said.values()) > 500
    assert not [f"{name}: {hit}" for name, texts in said.items() for text in texts for hit in found_in(text)]


@pytest.mark.parametrize("name", headstart.__all__)
def test_public_docstrings_use_the_words_of_the_field(name: str) -> None:
    value = getattr(headstart, name)
    members = [each for key, each in vars(value).items() if key[0] != "_"] if inspect.isclass(value) else []
    texts = [inspect.getdoc(each) or "" for each in (value, *members) if not isinstance(each, str)]
    assert not [hit for text in texts for hit in found_in(text)]


@pytest.mark.parametrize(
    ("planted", "times"),
    [
        ("Text keeps the law of the target.", 1),
        ("Throw a coin for each node.", 1),
        ("It makes 2.09 of plain decoding.", 1),
        ("1.2 over plain, and dear.", 2),
        ("What it brings is computed anew, and nobody looks.", 3),
        ("The figure stands below.", 1),
        ("A uniform draw is thrown; the uniform draw comes up.", 2),
        ("Every room of this house.", 2),
        ("Heat lowers it where the draft stays cool; a head comes along; it fails in silence.", 4),
        ("Two hits stand for the field's words: a distribution and a uniform draw, faster than plain decoding.", 0),
        ("Lawful, coincide, endear, leave no room for, understands, bringer: only whole words count.", 0),
    ],
)
def test_a_planted_word_is_found(planted: str, times: int) -> None:
    assert len(found_in(planted)) == times
    assert len(found_in(prose(f"{planted} `law`\n\n```\na coin\n```\n"))) == times
    assert len([hit for text in strings(f'say("{planted}"); // law') for hit in found_in(text)]) == times


def test_the_glossary_has_every_standard_word() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    for word in ("distribution", "uniform draw", "speedup", "baseline decoding", "target", "drafter", "draft token"):
        assert f"**{word}**" in page
