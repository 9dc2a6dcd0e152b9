"""Checkpoints as GGUF by llama.cpp's own converter, all floats, without a tokenizer.

    python convert_llamacpp.py SOURCES FOLDER [FOLDER ...]        (where torch and transformers are)

SOURCES is a checkout of llama.cpp (`vendor/llama.cpp` in llama-cpp-python's source package). The file of a folder is
FOLDER.gguf.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sources, *folders = map(Path, sys.argv[1:])
sys.path[:0] = [str(sources / "gguf-py"), str(sources)]

import gguf  # noqa: E402 -- the one of the sources
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402


def below(kind: type) -> Iterator[type]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def no_vocabulary(self: Any) -> None:
    """What llama.cpp needs of a file without tokens."""
    self.gguf_writer.add_tokenizer_model("no_vocab")
    if not any(key.endswith(".vocab_size") for key in self.gguf_writer.kv_data[0]):
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])


ModelBase.no_mtp = True  # checkpoints without a head that drafts
for folder in folders:
    wanted = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
    for kind in below(ModelBase):
        if "set_vocab" in vars(kind):
            kind.set_vocab = no_vocabulary
    with torch.inference_mode():
        wanted(folder, gguf.LlamaFileType.ALL_F32, folder.with_name(f"{folder.name}.gguf")).write()
