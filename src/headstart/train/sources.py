"""Texts to learn from: files, directories, JSONL and served traffic, each remembered with its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidOption, TrainingFailed
from headstart.base.traffic import is_header

SUFFIXES = frozenset(
    {".txt", ".md", ".rst", ".tex", ".html", ".css", ".toml", ".yaml", ".yml", ".jsonl", ".py", ".pyi", ".rb", ".php"}
    | {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".rs", ".go", ".java", ".kt", ".swift", ".js", ".jsx", ".ts", ".tsx"}
    | {".sh", ".sql"}
)
"""What is read from a directory. A file named by itself is read whatever its suffix."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or a conversation that the target is to continue (`turns`: the user's messages, in order); or `tokens`,
    token ids that are learnt from as they are: the first `asked` of them a prompt, the others the target's answer."""

    text: str = ""
    turns: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    asked: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that was read. Its path is kept as the user gave it."""

    path: str
    sha256: str
    documents: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """All documents, and the files they came from."""

    documents: tuple[Document, ...]
    files: tuple[SourceFile, ...]


def read(paths: Sequence[str | Path]) -> Corpus:
    """Read every path, in order; directories by sorted relative path.

    Raises:
        InvalidOption: a path does not exist, is not UTF-8, or a JSONL line has none of the known fields.
        TrainingFailed: nothing to learn from was found.
    """
    documents: list[Document] = []
    files: list[SourceFile] = []
    for path in _files(paths):
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidOption(f"{path} is not UTF-8 text", hint="convert it, or leave it out") from error
        found = list(_jsonl(path, text)) if path.suffix == ".jsonl" else [Document(text=text)]
        found = [d for d in found if d.text.strip() or d.turns or d.tokens]
        files.append(SourceFile(str(path), hashlib.sha256(raw).hexdigest(), len(found)))
        documents += found
    if not documents:
        hint = f"name files by themselves, or directories with {', '.join(sorted(SUFFIXES))}"
        raise TrainingFailed(f"no text in {', '.join(map(str, paths))}", hint=hint)
    return Corpus(tuple(documents), tuple(files))


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in SUFFIXES)
        elif path.is_file():
            yield path
        else:
            raise InvalidOption(f"data: {path} does not exist", hint="give a text file, a directory or a JSONL file")


def _jsonl(path: Path, text: str) -> Iterator[Document]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except ValueError as error:
            raise InvalidOption(f"{path}, line {number}: not JSON", hint="one JSON object per line") from error
        if not (number == 1 and is_header(record)):
            yield _document(record, f"{path}, line {number}")


def _document(record: Any, where: str) -> Document:
    """`turns` as in Spec-Bench and MT-Bench; `prompt` is a single turn; `text` is learnt from as it is, and so are
    `prompt` and `output` in token ids (`headstart.base.traffic`)."""
    fields = record if isinstance(record, dict) else {}
    ids = [fields.get("prompt"), fields.get("output")]
    if all(isinstance(part, list) and all(type(token) is int and token >= 0 for token in part) for part in ids):
        return Document(tokens=(*ids[0], *ids[1]), asked=len(ids[0]))  # type: ignore[misc, arg-type]
    turns = fields.get("turns", fields.get("prompt"))
    if isinstance(fields.get("text"), str):
        return Document(text=fields["text"])
    if isinstance(turns, str):
        return Document(turns=(turns,))
    if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
        return Document(turns=tuple(turns))
    raise InvalidOption(f"{where}: no text", hint='a line needs a string "text" or "prompt", or a list "turns"')
