"""What a head borrows of its target: the embedding and the output matrix, where it has none of its own."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.decoders.grouped import GroupedEmbedding
from headstart.model.gguf.files import is_gguf, open_gguf
from headstart.model.loading import fetch
from headstart.model.quantised.tensors import Tensors
from headstart.model.runner import ModelRunner
from headstart.model.wrappers import names_of

_OUTPUT = "lm_head.weight"


def borrowed(
    target: ModelRunner, source: str | Path, own: Container[str], token_ids: Tensor | None = None
) -> tuple[Tensor | GroupedEmbedding, Tensor]:
    """The target's embedding [V, d], which may be codes, and its output matrix [V, d].

    source: the directory or the GGUF file of its weights, or its hub id. own: names of the head's tensors; what is
    there is not looked for, and has no meaning in what is returned. token_ids: whose outputs are wanted; None for all.
    """
    module = target.model.get_input_embeddings()
    embedding = module if isinstance(module, GroupedEmbedding) else module.weight.detach()
    if _OUTPUT in own:
        return embedding, torch.empty(0)
    if target.config.get_text_config().tie_word_embeddings:
        if token_ids is None:
            return embedding, module.weight.detach()
        if isinstance(embedding, GroupedEmbedding):  # only those rows are made floats
            return embedding, embedding.rows(token_ids)
        return embedding, embedding[token_ids.to(embedding.device)]
    # the runner's own is laid out for its kernels by now
    if is_gguf(source):
        from headstart.model.gguf.drafting import output_matrix

        return embedding, output_matrix(open_gguf(source), target.config, target.dtype, token_ids)
    output = stored_output(fetch(str(source)), target.config)
    return embedding, output if token_ids is None else output[token_ids]


def stored_output(folder: Path, config: Any) -> Tensor:
    """The output matrix [V, d] of a model in a directory. config: the model's.

    Raises:
        UnsupportedModel: the directory has none, as that of a model whose head is on codes.
    """
    stored = Tensors(folder, names_of(config))
    for name in sorted(stored.names, key=len):
        if name == _OUTPUT or name.endswith(f".{_OUTPUT}"):
            return stored.read(name)
    raise UnsupportedModel(
        f"{folder} has no tensor {_OUTPUT}, which the head needs of its target",
        hint="use a head that has one of its own",
    )
