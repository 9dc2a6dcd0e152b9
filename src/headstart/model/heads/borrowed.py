"""What a head borrows of its target: the embedding and the output matrix, where it has none of its own."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.loading import fetch
from headstart.model.runner import ModelRunner


def borrowed(target: ModelRunner, folder: str | Path, own: Container[str]) -> tuple[Tensor, Tensor]:
    """The target's embedding [V, d] and output matrix [V, d]. folder: where its safetensors are, or its hub id. own:
    names of the head's tensors; what is there is not looked for, and has no meaning in what is returned."""
    embedding = target.model.get_input_embeddings().weight.detach()
    output = embedding
    if "lm_head.weight" not in own and not target.config.get_text_config().tie_word_embeddings:
        # the runner's own is laid out for its kernels by now
        output = read_target(fetch(str(folder)), "lm_head.weight")
    return embedding, output


def read_target(folder: str | Path, name: str) -> Tensor:
    """One tensor of a model in a directory, by the end of its name."""
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            for full in stored.keys():  # noqa: SIM118 -- not a mapping
                if full == name or full.endswith(f".{name}"):
                    return stored.get_tensor(full)  # type: ignore[no-any-return]
    raise UnsupportedModel(
        f"{folder} has no tensor {name}, which the head needs of its target", hint="use a head that has one of its own"
    )
