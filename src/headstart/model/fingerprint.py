"""Telling models apart without reading all of them: which target wrote a text, or a file of texts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from headstart.model import loading
from headstart.model.gguf.files import is_gguf, parts

_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_FILES = ("*.safetensors", *_TOKENIZERS)


def fingerprint(source: str) -> str:
    """16 hexadecimal digits that differ between models whose weights or tokens differ.

    Of each file of weights and of the tokenizer its name, its size and 16 samples of 64 KiB are hashed, the first one
    with the names and shapes of its tensors: a fraction of a second for any size. A fine-tuned copy differs in nearly
    every sample. A model that is only on the hub has the hash of its name.

    source: a directory, GGUF file or hub id, as `headstart.model.loading.resolve` gives it.
    """
    folder = Path(source).parent if is_gguf(source) else loading.config_folder(source)
    found = hashlib.sha256()
    patterns = _TOKENIZERS if is_gguf(source) else _FILES
    files = [] if folder is None else sorted(file for pattern in patterns for file in folder.glob(pattern))
    files += parts(Path(source)) if is_gguf(source) else ()
    for file in files:
        _add(found, file)
    if not files:
        found.update(source.encode())
    return found.hexdigest()[:16]


def _add(found: hashlib._Hash, file: Path) -> None:
    size = file.stat().st_size
    found.update(f"{file.name} {size}\n".encode())
    with file.open("rb") as handle:
        for sample in range(_SAMPLES):
            handle.seek(sample * max(0, size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            found.update(handle.read(_SAMPLE_BYTES))
