"""The commands and programs that documents show, as a reader would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
SHOWING = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of headstart that a document shows."""

    place: str
    """The document, and the line of the block."""
    words: tuple[str, ...]
    """What follows `headstart`, without redirections and what a pipe leads to."""


def blocks(path: Path) -> Iterator[tuple[int, str, str]]:
    """The blocks of code of a document: line, language and text."""
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            yield (token.map or [0])[0] + 1, token.info.strip(), token.content


def commands(path: Path) -> Iterator[Shown]:
    """The commands of headstart in blocks of code, each line that begins with one; lines that end in \\ go on."""
    for line, language, text in blocks(path):
        if language not in ("", "sh", "bash", "console"):
            continue
        for each in re.sub(r"\\\n\s*", "", text).splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ |\S.* \| )?headstart(?= )(.*)$", each)
            if found and not each.startswith(("pip ", "headstart demo · ")):
                yield Shown(f"{path.relative_to(ROOT)}:{line}", tuple(_words(found[1])))


def _words(rest: str) -> list[str]:
    lexer = shlex.shlex(rest, posix=True, punctuation_chars="|><&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|><&;"):
            break
        words.append(word)
    return words
