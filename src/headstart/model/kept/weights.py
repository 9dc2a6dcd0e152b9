"""A model's tensors where the decoder looks for them: a tree with the names of transformers' modules, and no forward.

It is made from a list of what the real model held, and filled from the files of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headstart.model.decoders.grouped import GroupedEmbedding, GroupedExperts, GroupedLinear
from headstart.model.decoders.linears import lies_by_inputs, linear_of
from headstart.model.decoders.parts import part
from headstart.model.gguf.files import is_gguf, open_gguf
from headstart.model.grouped import StoredWeights
from headstart.model.kept.config import KeptConfig
from headstart.model.kept.store import Leaf, Passed
from headstart.model.recipes import Recipe, find_recipe
from headstart.model.recipes.recipe import Mlp
from headstart.model.rotation import Rotary, Rotation
from headstart.model.wrappers import names_of

if TYPE_CHECKING:
    from headstart.model.quantised.tensors import Tensors

ReadFloats = Callable[[str, tuple[int, ...], torch.dtype], Tensor]
"""The parameter of a name, shape and dtype."""
ReadCodes = Callable[[str], StoredWeights]
"""The matrix of a parameter that is codes."""
ReadExperts = Callable[[str, torch.dtype], GroupedExperts]
"""The matrices of all experts that a parameter holds as codes, which stand for floats of a dtype."""

_BLOCK = 4096
"""Positions of which rotations are compared at a time."""
_COMPARED = 2**15
"""Positions that are compared for shorter texts too, so that a longer one finds what was kept."""


class KeptModel(nn.Module):
    """The root of the tree: what a decoder and a runner ask of a model."""

    def __init__(self, config: KeptConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype, self.device = config, dtype, torch.device("cpu")

    def get_input_embeddings(self) -> Any:
        """The table of tokens."""
        return part(self, self.config.recipe.embedding)


def listed(model: Any, length: int, limit: int) -> Passed | None:
    """What a model of transformers holds, before a decoder takes it; None where that cannot be said in a list.

    length: of the longest text. limit: that the model was built for; a rotation may change itself behind it.
    """
    recipe = find_recipe(model.config)
    if recipe is None or model.device.type != "cpu" or any(mlp.numbers for mlp in _mlps(recipe)):
        return None
    length = max(length, min(limit, _COMPARED))
    leaves, turns = _leaves(model, recipe), _rotations(model, recipe, length)
    return None if leaves is None or turns is None else Passed(leaves, turns, length, "")


def _mlps(recipe: Recipe) -> list[Mlp]:
    return [layer.dense for _, layer in recipe.kinds if layer.dense is not None]


def _leaves(model: Any, recipe: Recipe) -> tuple[Leaf, ...] | None:
    rotaries = {name for name, *_ in _ropes(recipe)}
    found: list[Leaf] = []
    seen: dict[int, str] = {}
    done = ""
    for name, module in model.named_modules(remove_duplicate=False):
        if (done and name.startswith(done)) or name in rotaries:
            continue
        if lies_by_inputs(module):
            return None
        if (leaf := _leaf(name, module, seen)) is not None:
            found.append(leaf)
            done = f"{name}."
        else:
            found += _own(name, module)
    return tuple(found)


def _leaf(name: str, module: nn.Module, seen: dict[int, str]) -> Leaf | None:
    """A layer that is known as a whole."""
    if isinstance(module, GroupedExperts):
        return Leaf(name, "coded experts", module.shape, _name(module.dtype))
    if hasattr(module, "lie_in"):  # `StoredExperts`, which most models have not
        stored: Any = module
        return Leaf(name, "stored experts", stored.shape, _name(stored.dtype), parts=stored.parts)
    if not isinstance(module, GroupedLinear | GroupedEmbedding | nn.Linear | nn.Embedding):
        return None
    held: Any = module.held if isinstance(module, GroupedLinear | GroupedEmbedding) else module.weight
    tied = seen.setdefault(id(held), name)
    if tied != name:
        return Leaf(name, "tied", like=tied)
    if isinstance(module, GroupedEmbedding):
        return Leaf(name, "coded table", tuple(held.shape), _name(module.dtype), factor=module.factor)
    bias = getattr(module, "bias", None)
    given = "" if bias is None else _name(bias.dtype)
    if isinstance(module, GroupedLinear):
        return Leaf(name, "coded linear", tuple(held.shape), bias=given)
    kind = "linear" if isinstance(module, nn.Linear) else "table"
    return Leaf(name, kind, tuple(held.shape), _name(held.dtype), given)


def _own(name: str, module: nn.Module) -> Iterator[Leaf]:
    """A module's own tensors, and those that it has not, which are None."""
    kept = module.state_dict().keys()
    for inner, tensor in (*module._parameters.items(), *module._buffers.items()):
        full = f"{name}.{inner}" if name else inner
        if tensor is None:
            yield Leaf(full, "none")
        elif inner in kept:  # others are made from the config, and recipes say what is made of them
            yield Leaf(full, "parameter", tuple(tensor.shape), _name(tensor.dtype))


def _rotations(model: Any, recipe: Recipe, length: int) -> dict[str, Rotation] | None:
    """None where they are not positions times frequencies: cosine and sine of each position are compared by bits."""
    found: dict[str, Rotation] = {}
    for name, table, pairs, once in _ropes(recipe):
        module, named = part(model, name), (table,) if table else ()
        prefix = f"{table}_" if table else ""
        frequencies = getattr(module, f"{prefix}inv_freq", None)
        factor = getattr(module, f"{prefix}attention_scaling", getattr(module, "attention_scaling", None))
        if not isinstance(frequencies, Tensor) or not isinstance(factor, int | float):
            return None
        polar = isinstance(module(torch.empty(1), torch.zeros(1, 1, dtype=torch.int64), *named), Tensor)
        turns = found[f"{name}:{table}"] = Rotation(tuple(frequencies.float().tolist()), float(factor), polar)
        mine = Rotary({table: turns}, pairs=pairs, once=once)
        for first in range(0, length, _BLOCK):
            given = torch.empty(1), torch.arange(first, min(first + _BLOCK, length))[None], *named
            theirs, ours = module(*given), mine(*given)
            if not all(torch.equal(*each) for each in ([(theirs, ours)] if polar else zip(theirs, ours, strict=True))):
                return None
    return found


def _ropes(recipe: Recipe) -> set[tuple[str, str, bool, bool]]:
    """Module and table of each rotation, and whether its angles come in pairs, or once."""
    ropes = [attention.rope for attention in recipe.attentions if attention.rope is not None]
    return {(str(rope.module or recipe.rotary), rope.table or "", rope.table_pairs, rope.table_once) for rope in ropes}


def kept_model(source: str, config: KeptConfig, dtype: torch.dtype, passed: Passed) -> KeptModel:
    """The tree, its tensors read from a directory or a GGUF file; codes are read when a decoder lays them out.

    Raises:
        Exception: anything, where the files are not those of the list.
    """
    model, recipe = KeptModel(config, dtype), config.recipe
    floats, codes, experts = _gguf(source, config) if is_gguf(source) else _folder(source, config)
    stored = cache(partial(_tensors, source))

    for leaf in passed.leaves:
        owner, last = _owner(model, leaf.name)
        if leaf.kind == "none":
            owner.register_parameter(last, None)
        elif leaf.kind == "parameter":
            found = floats(leaf.name, leaf.shape, getattr(torch, leaf.dtype))
            owner.register_parameter(last, nn.Parameter(found, requires_grad=False))
        elif leaf.kind == "stored experts":
            owner.add_module(last, _stored(stored(), leaf))
        elif leaf.kind == "coded experts":
            owner.add_module(last, experts(leaf.name, getattr(torch, leaf.dtype)))
        else:
            owner.add_module(last, _layer(model, leaf, floats, codes))
    for name, table, pairs, once in _ropes(recipe):
        owner, last = _owner(model, name)
        if not hasattr(owner, last):
            owner.add_module(last, Rotary({}, pairs=pairs, once=once))
        getattr(owner, last).tables[table] = passed.rotations[f"{name}:{table}"]
    return model


def holds(source: str, config: Any, passed: Passed) -> bool:
    """Whether the files have the tensors of the list under these names: transformers renames those of some models, and
    joins some, such as the three convolutions of olmo_hybrid."""
    if is_gguf(source):
        return True
    from headstart.model.quantised.tensors import Tensors

    names = Tensors(Path(source), names_of(config)).names
    for leaf in passed.leaves:
        if leaf.kind == "parameter" and leaf.name not in names:
            return False
        if leaf.kind in ("linear", "table") and f"{leaf.name}.weight" not in names:
            return False
        if leaf.bias and f"{leaf.name}.bias" not in names:
            return False
    return True


def _layer(model: KeptModel, leaf: Leaf, floats: ReadFloats, codes: ReadCodes) -> nn.Module:
    name = f"{leaf.name}.weight"
    if leaf.kind == "tied":
        of = part(model, leaf.like)
        return GroupedLinear(of.held) if hasattr(of, "held") else linear_of(of.weight.detach())
    if leaf.kind == "coded table":
        return GroupedEmbedding(codes(name), getattr(torch, leaf.dtype), leaf.factor)
    bias = floats(f"{leaf.name}.bias", leaf.shape[:1], getattr(torch, leaf.bias)) if leaf.bias else None
    if leaf.kind == "coded linear":
        return GroupedLinear(codes(name), bias)
    weight = floats(name, leaf.shape, getattr(torch, leaf.dtype))
    if leaf.kind == "linear":
        return linear_of(weight, bias)
    outputs, inputs = leaf.shape  # the numbers are given, since drawing some on "meta" imports PyTorch's compiler
    return nn.Embedding(outputs, inputs, _weight=weight, _freeze=True)


def _tensors(source: str) -> Tensors:
    from headstart.model.quantised.tensors import Tensors

    return Tensors(Path(source))


def _stored(tensors: Tensors, leaf: Leaf) -> nn.Module:
    from headstart.model.streamed import StoredExperts

    made = StoredExperts(leaf.shape, getattr(torch, leaf.dtype))
    made.lie_in(tensors, leaf.parts)
    return made


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that holds what a name says, made where there is none yet; and the last part of the name."""
    *path, last = name.split(".")
    owner = model
    for each, below in zip(path, name.split(".")[1:], strict=True):
        if each not in owner._modules:
            owner.add_module(each, nn.ModuleList() if below.isdigit() else nn.Module())
        owner = getattr(owner, each)
    return owner, last


def _gguf(source: str, config: KeptConfig) -> tuple[ReadFloats, ReadCodes, ReadExperts]:
    from headstart.model.gguf import packed, weights
    from headstart.model.gguf.names import Names

    file = open_gguf(source)
    names = Names.of(file, config)

    def read(parameter: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        made = torch.empty(shape, dtype=dtype)
        weights.read(file, names, parameter, made)
        return made

    def experts(parameter: str, dtype: torch.dtype) -> GroupedExperts:
        of = names.experts_of(parameter)
        found = None if of is None else packed.coded_experts(file, names, parameter, of, dtype)
        if found is None:
            raise ValueError(f"{parameter} is no codes of experts here")
        return found

    return read, lambda parameter: weights.grouped_matrix(file, names, parameter), experts


def _folder(source: str, config: KeptConfig) -> tuple[ReadFloats, ReadCodes, ReadExperts]:
    from headstart.model.quantised.tensors import Tensors

    tensors = Tensors(Path(source), names_of(config))

    def read(parameter: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        found = tensors.read(parameter)  # still in the file, where the dtype is the file's
        if tuple(found.shape) != shape:
            raise ValueError(f"{parameter} is {list(found.shape)}, not {list(shape)}")
        return found.to(dtype)

    def none(parameter: str, *_: torch.dtype) -> Any:
        raise ValueError(f"{parameter} is no matrix of codes here")

    return read, none, none


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
