"""The MTP head in a GGUF file: a block behind those of the model's layers, and tensors called `nextn` in it.

Source: src/models/qwen35.cpp and gguf-py/gguf/constants.py of ggml-org/llama.cpp.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headstart.model.gguf.architectures import ARCHITECTURES
from headstart.model.gguf.blocks import floats
from headstart.model.gguf.description import DRAFTING
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.names import Names, joins_experts, same_shape, splits_latents
from headstart.model.gguf.weights import read
from headstart.model.heads.stored_tensors import Table
from headstart.model.recipes import recipe_of
from headstart.model.recipes.recipe import Layer

_CALLED = {
    "fc": "eh_proj", "embedding_norm": "enorm", "hidden_norm": "hnorm", "norm": "shared_head_norm",
    "embed_tokens": "embed_tokens", "lm_head": "shared_head_head",
}  # fmt: skip
"""Modules of the head that are not its layer's."""


class _HeadNames(Names):
    """The names of a head's tensors: those of its layer as in one more layer of the model, the others by themselves."""

    def __init__(self, file: GgufFile, config: Any, layer: Layer, number: int) -> None:
        recipe = recipe_of(config)
        self.block = len(recipe.layers) + number
        self._file, self._stack = file, recipe.stack
        self._offset = 0.0 if recipe.final_norm is None else recipe.final_norm.offset
        architecture = ARCHITECTURES[file.metadata.text("general.architecture")]
        layers = (*recipe.layers, *[layer] * (number + 1))
        apart = splits_latents(file, (self.block,))
        joined = joins_experts(file, (self.block,))
        super().__init__(replace(recipe, layers=layers), architecture, joined=joined, apart=apart)

    def parameter(self, name: str) -> str:
        """A tensor of the head, as the other methods take it."""
        return name if name.rpartition(".")[0] in _CALLED else f"{self._stack}.{self.block}.{name}"

    def tensors(self, parameter: str) -> tuple[str, ...]:
        module, _, kind = parameter.rpartition(".")
        if module not in _CALLED:
            return super().tensors(parameter)
        stored = f"blk.{self.block}.nextn.{_CALLED[module]}.{kind}"
        return ("output_norm.weight",) if module == "norm" and stored not in self._file.tensors else (stored,)

    def added(self, parameter: str) -> float:
        module = parameter.rpartition(".")[0]
        if module not in _CALLED:
            return super().added(parameter)
        return self._offset if module.endswith("norm") else 0.0


def has_head(file: GgufFile, number: int = 0) -> bool:
    """Whether a file holds a head of this number that can be read. Some files state one and hold no tensors of it."""
    name = file.metadata.text("general.architecture", "")
    architecture = ARCHITECTURES.get(name)
    count = file.metadata.whole(f"{name}.{DRAFTING}", 0)
    if architecture is None or not architecture.drafting or number >= count:
        return False
    block = file.metadata.whole(f"{name}.block_count", 0) - count + number
    return f"blk.{block}.nextn.eh_proj.weight" in file.tensors


def head_tensors(
    file: GgufFile, config: Any, layer: Layer, table: Table, number: int = 0, *, numbers: bool = True
) -> dict[str, Tensor]:
    """Those of the table that the file holds, in float32, as a checkpoint in safetensors has them.

    config: the target's. layer: the head's. number: which head, where there are several. numbers: else tensors of their
    shapes on the device "meta".

    Raises:
        DamagedModel: one is of another shape.
    """
    names, found = _HeadNames(file, config, layer, number), {}
    for name, held in table.items():
        parameter = names.parameter(name)
        stored = names.tensors(parameter)
        if any(each not in file.tensors for each in stored):
            continue
        for each, shape in zip(stored, names.shapes(parameter, held.shape), strict=True):
            if not same_shape(file.tensors[each].shape, shape):
                raise file.damaged(f"tensor {each!r} is {list(file.tensors[each].shape)}, and {list(shape)} is needed")
        found[name] = torch.empty(held.shape, device="cpu" if numbers else "meta")
        if numbers:
            read(file, names, parameter, found[name])
    return found


def output_matrix(file: GgufFile, config: Any, dtype: torch.dtype, rows: Tensor | None = None) -> Tensor:
    """The output matrix [V, d] of a model that has one beside its embedding. rows: those that are wanted, for all."""
    names = Names.of(file, config)
    (stored,) = names.tensors(f"{names.recipe.head}.weight")
    tensor = file.tensors[stored]
    chosen = slice(None) if rows is None else rows.numpy()
    return torch.from_numpy(floats(tensor, chosen)).to(dtype)
