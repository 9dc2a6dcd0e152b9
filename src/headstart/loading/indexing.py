"""From files to an index of their texts, which drafters copy from: what is read, and what is left out."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.base.errors import DamagedStore, InvalidOption
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.text_index import TextIndex
from headstart.model import loading
from headstart.model.tokens.tokenizers import load_tokenizer

_AT_ONCE = 32
"""Files that are tokenized together."""
_NOT_WRITTEN = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
"""Folders that hold what others have written, where git does not say what is ignored."""


@dataclass(slots=True)
class Reading:
    """What was read of some files."""

    texts: list[Sequence[int]] = field(default_factory=list)
    """In tokens."""
    tokens: int = 0
    """Of all texts."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Files and texts that were not taken, by the reason."""

    def add(self, text: Sequence[int], most_tokens: int) -> None:
        if self.tokens + len(text) > most_tokens:
            self.left_out["beyond the most tokens"] += 1
        else:
            self.texts.append(text)
            self.tokens += len(text)


def tokenizer_of(target: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of the model that is to be drafted for; no weights are read.

    Raises:
        InvalidOption, ModelNotFound: there is none.
    """
    tokenizer = load_tokenizer(loading.resolve(target, "target"), trust_remote_code=trust_remote_code)
    if tokenizer is None:
        raise InvalidOption(f"{target} has no tokenizer", hint="name a model that has one")
    return tokenizer


def files_of(paths: Sequence[Path]) -> list[Path]:
    """All files of these folders, and those that are named, in order. In a working tree of git those that it ignores
    are left out, elsewhere hidden ones.

    Raises:
        InvalidOption: there is no such path.
    """
    found: dict[Path, None] = {}
    for path in paths:
        path = path.expanduser()
        if not path.exists():
            raise InvalidOption(f"there is no {path}", hint="name folders, text files, or files of --suffix-store")
        found |= dict.fromkeys(_in_git(path) or sorted(_below(path)) if path.is_dir() else [path])
    return list(found)


def _in_git(folder: Path) -> list[Path]:
    """The files that git knows or would add, none outside of a working tree. A repository may name programs that git is
    to run (`core.fsmonitor`): none is run here."""
    asked = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(asked, cwd=folder, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [folder / os.fsdecode(name) for name in sorted(set(done.stdout.split(b"\0")) - {b""})]


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_WRITTEN]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def read(
    files: Sequence[Path],
    tokenizer: Any,
    *,
    most_bytes: int,
    most_tokens: int,
    escaped: bool = False,
    observe: Callable[[int], None],
) -> Reading:
    """The texts of files, in tokens.

    Args:
        most_bytes: of a file; larger ones are left out.
        most_tokens: of all; texts beyond that are left out.
        escaped: whether each text is also taken as a JSON string spells it.
        observe: called with the number of files that have been read since the last time.

    Raises:
        InvalidOption: there is no text in them.
    """
    reading, seen = Reading(), set[bytes]()
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        words: list[str] = []
        for path in some:
            try:
                if path.suffix == ".safetensors":
                    for tokens in SuffixStore.load(path, vocab_size=len(tokenizer)).texts():
                        reading.add(tokens, most_tokens)
                else:
                    words.append(_text(path, most_bytes, seen))
            except (_LeftOut, OSError, DamagedStore) as error:
                reading.left_out[str(error) if isinstance(error, _LeftOut) else "not readable"] += 1
        if escaped:
            words += [json.dumps(text, ensure_ascii=False)[1:-1] for text in words]
        for ids in tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"] if words else ():
            reading.add(ids, most_tokens)
        observe(len(some))
    if not reading.tokens:
        raise InvalidOption("there is no text in these files", hint="name a folder with text, such as source code")
    return reading


def write(reading: Reading, tokenizer: Any, path: Path) -> None:
    """Write the index of what was read. tokenizer: what it was read with."""
    TextIndex.of(reading.texts).save(path, tokenizer)


class _LeftOut(Exception):
    """A file is left out; the message is the reason."""


def _text(path: Path, most_bytes: int, seen: set[bytes]) -> str:
    """The text of a file that is none of those `seen`.

    Raises:
        OSError, _LeftOut: there is none.
    """
    if path.is_symlink() or not path.is_file():
        raise _LeftOut("links or no files")
    if path.stat().st_size > most_bytes:
        raise _LeftOut("too large")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _LeftOut("not text") from None
    digest = hashlib.sha256(raw).digest()
    if b"\0" in raw:
        raise _LeftOut("not text")
    if not text.strip() or digest in seen:
        raise _LeftOut("empty or read before")
    seen.add(digest)
    return text
