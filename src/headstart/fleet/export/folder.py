"""Writing a folder as a whole or not at all: into a new sibling, which then takes the folder's name."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headstart.base.errors import InvalidOption

OURS = frozenset(
    ("manifest.json", "drafter", "prompts.jsonl", "README.md", "vllm.yaml", "serve-vllm.sh", "serve-sglang.sh",
     "serve-llama-server.sh", "compose.yaml", "k8s", "ray-serve.yaml", "prometheus.yml", "prometheus-rules.yaml",
     "prometheus-rules-test.yaml", "grafana.json")
)  # fmt: skip
"""What an export writes; anything else in its folder is the user's, and is kept when the folder is replaced."""

_HASHED = (".json", ".safetensors", ".gguf", ".model", ".jinja", ".txt")


@contextmanager
def whole_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A new folder to write into, which becomes `path` when the block ends, or is removed if the block fails.

    A folder with something in it is refused; with force it is kept until the new one is complete, and then removed.

    Raises:
        InvalidOption: the folder is not empty, or cannot be made.
    """
    path = path.absolute()
    _check(path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as error:
        raise InvalidOption(f"cannot write {path}: {error.strerror}", hint="name another folder") from error
    os.umask(umask := os.umask(0))  # which cannot be read without being set
    fresh.chmod(0o777 & ~umask)
    try:
        yield fresh
        _replace(fresh, path, force)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _check(path: Path, force: bool) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise InvalidOption(f"{path} is no folder", hint="name a folder that does not exist yet")
    if path.is_dir() and any(path.iterdir()):
        if not force:
            raise InvalidOption(f"{path} is not empty", hint="name a new folder, or replace this one with --force")
        if not (path / "manifest.json").is_file():
            raise InvalidOption(
                f"{path} is not empty and no export, so --force does not replace it", hint="name a new folder"
            )


def _replace(fresh: Path, path: Path, force: bool) -> None:
    _check(path, force)  # somebody may have written there meanwhile
    if not path.exists():
        os.rename(fresh, path)
        return
    for entry in path.iterdir():
        if entry.name not in OURS:
            os.rename(entry, fresh / entry.name)  # what the user put there stays
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-"))
    os.rename(path, old / path.name)
    os.rename(fresh, path)
    shutil.rmtree(old)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of a model's files by name; folder: or its one file."""
    found = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else [folder]:
        if file.is_file() and file.suffix in _HASHED and not file.name.startswith("."):
            with file.open("rb") as stream:
                found[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
