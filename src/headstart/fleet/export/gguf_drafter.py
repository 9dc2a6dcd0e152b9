"""`drafter/head.gguf`: an EAGLE-3, DFlash or DSpark head as llama-server reads it, with the target's own vocabulary.

What stands below `tokenizer.` in the target's file is copied as it is, byte for byte.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import torch

from headstart.fleet.export.subject import Drafter, Subject
from headstart.model.gguf.files import open_gguf
from headstart.model.gguf.header import stored_pairs
from headstart.model.gguf.writing import pair, write_gguf
from headstart.model.heads import dflash_checkpoint, eagle_checkpoint
from headstart.model.heads.gguf_heads import MASK, Head, tensors_of, values_of
from headstart.model.loading import fetch

FILE = "head.gguf"
_VOCABULARY = "tokenizer."


def read_drafter(drafter: Drafter, target: object) -> Head:
    """The head, for the target with this config.

    Raises:
        UnsupportedModel (PickleCheckpoint), ModelNotFound: it cannot be read, or is of another target.
    """
    read = eagle_checkpoint.read if drafter.kind == "eagle3" else dflash_checkpoint.read
    return read(fetch(drafter.source), target)


def write_drafter(folder: Path, subject: Subject, dtype: str) -> tuple[int, ...]:
    """Write the head into a new folder, and return its layer ids, as inputs. dtype: of its matrices; "auto" takes that
    in which they are stored, and float32 for such as are kept on int8.

    Raises: as `read_drafter`.
    """
    head = read_drafter(subject.drafter, subject.target.config)
    matrices = head.tensors["fc.weight"].dtype if dtype == "auto" else getattr(torch, dtype)
    if dtype == "auto" and len({tensor.dtype for tensor in head.tensors.values() if tensor.dim() == 2}) > 1:
        matrices = torch.float32
    folder.mkdir(parents=True)
    pairs = {key: pair(value) for key, value in values_of(head, matrices).items()}
    pairs["general.name"] = pair(subject.drafter.name.rstrip("/").rpartition("/")[2] or subject.drafter.kind)
    write_gguf(folder / FILE, {**_vocabulary(Path(subject.target.source)), **pairs}, tensors_of(head, matrices))
    return head.config.layer_ids


def _vocabulary(target: Path) -> dict[str, bytes]:
    """The target's tokens; a mask token is the head's own."""
    first = open_gguf(target).paths[0]
    with first.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = stored_pairs(data, first.name, _VOCABULARY)
    found.pop(MASK, None)
    return found
