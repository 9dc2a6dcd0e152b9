"""From a file's tensors to a transformers model in memory, a few rows at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.coded import empty, without_memory
from headstart.model.gguf.blocks import FORMS, decoded, floats
from headstart.model.gguf.description import FREQUENCIES, LONG_FACTORS, SHORT_FACTORS, factors_of
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.header import Tensor as Stored
from headstart.model.gguf.names import Names, Order, same_shape
from headstart.model.grouped import (
    BlockRows,
    ChannelWeights,
    GroupedWeights,
    JoinedWeights,
    Rows,
    StoredWeights,
    below,
    side_by_side,
    stacked,
)
from headstart.model.memory import release
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.latent import Latent

_AT_ONCE = 1 << 17
"""Numbers that are made into floats at a time: what stays in a processor's cache."""

_CODES_AT_ONCE = 1 << 20
"""Codes that are read at a time."""


def check_tensors(file: GgufFile, config: Any) -> None:
    """Compare the file's tensors with what the model needs, before any memory is taken.

    Raises:
        DamagedModel: a tensor is missing, or of another shape.
        UnsupportedModel: one would be left over, so the model is not the one that it seems to be.
    """
    names = Names.of(file, config)
    wanted = _wanted(names, config)
    for name, (parameter, shape) in wanted.items():
        if name in file.tensors and not same_shape(file.tensors[name].shape, shape):
            raise file.damaged(f"tensor {name!r} is {list(file.tensors[name].shape)}, and {list(shape)} is needed")
        if name not in file.tensors and not names.may_be_missing(parameter):
            raise file.damaged(f"tensor {name!r} is missing")
    rope = getattr(config, "rope_parameters", None) or {}
    by_length = {LONG_FACTORS, SHORT_FACTORS} if rope.get("rope_type") == "longrope" else set()
    divided = {FREQUENCIES} if names.architecture.frequencies else set()
    others = names.unused(file) | by_length | divided | names.architecture.tensors
    left = sorted(file.tensors.keys() - wanted.keys() - others)
    if left:
        raise UnsupportedModel(
            f"{file.label} holds {left[0]!r} (and {len(left) - 1} more), which {config.model_type} models have not",
            hint="give the original checkpoint, a directory with config.json and *.safetensors",
        )
    activation_numbers(file, names)
    factors = file.tensors.get(FREQUENCIES)
    rotary = max((each.rope.rotary for each in names.recipe.attentions if each.rope), default=0)
    if factors is not None and factors.shape != (rotary // 2,):
        raise file.damaged(f"{FREQUENCIES} has {factors.count} numbers for heads of which {rotary} turn")


def _wanted(names: Names, config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By the name of each tensor that the model needs: a parameter of that kind, and its shape. Where all layers are
    alike, a model of the first one is made."""
    layers = config.num_hidden_layers
    if names.alike:
        config = _first_layer(config)
    found = {}
    for parameter, tensor in _stored(without_memory(config)):
        for name, shape in zip(names.tensors(parameter), names.shapes(parameter, tensor.shape), strict=True):
            _, dot, inner = name.partition("blk.0.")
            alike = dot and config.num_hidden_layers == 1
            each = [f"blk.{index}.{inner}" for index in range(layers)] if alike else [name]
            found.update(dict.fromkeys(each, (parameter, shape)))
    return found


def _first_layer(config: Any) -> Any:
    """The config of a model of one layer."""
    first, count = copy.deepcopy(config), config.num_hidden_layers
    first.num_hidden_layers = 1
    for key, value in vars(config).items():
        if isinstance(value, list) and len(value) == count and key != "eos_token_id":  # what is said layer by layer
            setattr(first, key, value[:1])
    return first


def _stored(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Parameters, and the buffers that checkpoints hold (Gemma 4's factors of layers), by their names; tied ones
    once."""
    yield from model.named_parameters()
    kept = model.state_dict().keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def activation_numbers(file: GgufFile, names: Names) -> dict[int, dict[str, float]]:
    """The learned numbers of activations, by layer and by name, which stand in the metadata.

    Raises:
        DamagedModel: they are missing, or not one for each layer.
    """
    layers = names.recipe.layers
    if all(layer.dense is None or layer.dense.numbers is None for layer in layers):
        return {}
    found = {name: file.metadata.each(f"xielu.{name}", len(layers)) for name in ("alpha_p", "alpha_n", "beta", "eps")}
    return {index: {name: each[index] for name, each in found.items()} for index in range(len(layers))}


def load(file: GgufFile, config: Any, dtype: torch.dtype) -> Any:
    """The model on the CPU, its weights the file's own numbers rounded to `dtype`. config: see `check_tensors`.

    Beside the weights it takes a few megabytes: some rows at a time are made into floats and put where they will stay.
    """
    model = empty(config, dtype)
    fill(model, file, config)
    return model.eval()


def fill(model: Any, file: GgufFile, config: Any) -> None:
    """Read all parameters of a model on the CPU, and what its rotation is divided by."""
    names = Names.of(file, config)
    for name, tensor in _stored(model):
        if names.tensors(name):
            read(file, names, name, tensor.data)
    for index, each in activation_numbers(file, names).items():
        module = model.get_submodule(f"{names.recipe.stack}.{index}.{names.recipe.layers[index].mlp.numbers}")
        for name, number in each.items():
            getattr(module, name).data.fill_(number)
    if FREQUENCIES in file.tensors and names.architecture.frequencies:
        model.model.rotary_emb.inv_freq /= torch.from_numpy(factors_of(file, FREQUENCIES))


def read(file: GgufFile, names: Names, parameter: str, to: Tensor) -> None:
    """Read a parameter, by its name in transformers, into a tensor of its shape.

    Raises:
        DamagedModel: decays do not decay.
    """
    tensors = [file.tensors[name] for name in names.tensors(parameter) if name in file.tensors]
    order, columns = names.rows(parameter), names.columns(parameter)
    if names.transposed(parameter):
        to = to.T
    if (experts := names.experts_of(parameter)) is not None:
        _read_experts(tensors, experts, to)
    elif (latent := names.by_head(parameter)) is not None:
        _read_heads(tensors[0], tensors[1], latent, to)
    elif not tensors:  # of those that were checked, the bias of an output projection alone may be missing
        to.zero_()
    elif to.dim() != 2:
        values = np.concatenate([floats(each).reshape(-1) for each in tensors]).reshape(to.shape)
        values -= np.float32(names.added(parameter))
        if names.is_decay(parameter):
            if not (np.isfinite(values).all() and (values < 0).all()):
                raise file.damaged(f"{tensors[0].name} holds numbers that are not negative")
            values = np.log(-values)
        to.copy_(torch.from_numpy(values if order is None else values[order]))
    else:
        for part, tensor in zip(to.chunk(len(tensors)), tensors, strict=True):
            for rows in _slices(*part.shape):
                found = floats(tensor, rows if order is None else order[rows])
                part[rows] = torch.from_numpy(found if columns is None else found[:, columns])


def _read_experts(tensors: list[Stored], experts: Experts, to: Tensor) -> None:
    """Weights or biases of experts, of which a file keeps those of gate and up apart."""
    for number, each in enumerate(to):
        whole = each.T if experts.transposed and to.dim() == 3 else each
        halves = [whole[::2], whole[1::2]] if experts.interleaved and len(tensors) == 2 else whole.chunk(len(tensors))
        for part, tensor in zip(halves, tensors, strict=True):
            if to.dim() == 2:
                part.copy_(torch.from_numpy(floats(tensor, slice(number, number + 1))[0]))
                continue
            begin = number * len(part)
            for rows in _slices(*part.shape):
                part[rows] = torch.from_numpy(floats(tensor, slice(begin + rows.start, begin + rows.stop)))


def _read_heads(of_keys: Stored, of_values: Stored, latent: Latent, to: Tensor) -> None:
    """What makes keys and values of a latent, head by head."""
    by_head = to.view(latent.heads, -1, latent.rank)
    keys, values = by_head[:, : latent.nope], by_head[:, latent.nope :]
    for head in range(latent.heads):
        first, begin = head * latent.rank, head * latent.value_dim
        keys[head] = torch.from_numpy(floats(of_keys, slice(first, first + latent.rank))).T
        values[head] = torch.from_numpy(floats(of_values, slice(begin, begin + latent.value_dim)))


def grouped_matrix(file: GgufFile, names: Names, parameter: str) -> StoredWeights:
    """A matrix that the file holds as codes, by the parameter's name in transformers, its rows in transformers' order:
    for products that run on the codes themselves."""
    parts = [(tensor, 0, tensor.shape[0]) for tensor in (file.tensors[name] for name in names.tensors(parameter))]
    columns = names.columns(parameter)
    belongs = None if columns is None else np.argsort(columns).astype(np.int32)
    return _side_by_side(parts, names.rows(parameter), belongs)


def expert_matrices(tensors: Sequence[Stored]) -> list[StoredWeights]:
    """The matrix of each expert; of several tensors their outputs side by side."""
    outputs = [tensor.shape[1] for tensor in tensors]
    return [
        _side_by_side([(tensor, number * count, count) for tensor, count in zip(tensors, outputs, strict=True)])
        for number in range(tensors[0].shape[0])
    ]


def _side_by_side(
    parts: Sequence[tuple[Stored, int, int]], order: Order | None = None, belongs: NDArray[np.int32] | None = None
) -> StoredWeights:
    """Rows of tensors, so many from a first one on, as one matrix. order: which of them each row of it is; belongs: the
    input of each column."""
    inputs = parts[0][0].shape[-1]
    ends = np.cumsum([count for _, _, count in parts])
    order = np.arange(ends[-1]) if order is None else order

    def runs(rows: Rows) -> Iterator[tuple[Stored, NDArray[np.int64], int, int]]:
        """Of some rows in turn the tensor, where they lie in it, and of which rows of it they are."""
        wanted = order[rows]
        among = np.searchsorted(ends, wanted, side="right")
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(among)) + 1):
            tensor, first, count = parts[among[run[0]]]
            yield tensor, wanted[run] - (ends[among[run[0]]] - count) + first, first, count

    def rows_of(rows: Rows) -> GroupedWeights | ChannelWeights | JoinedWeights:
        found = []
        for tensor, own, first, count in runs(rows):
            begin = int(own[0])
            together = np.array_equal(own, np.arange(begin, begin + len(own)))  # a slice of them is not copied
            codes = stacked(
                [
                    decoded(tensor, slice(begin + part.start, begin + part.stop) if together else own[part])
                    for part in _slices(len(own), inputs, _CODES_AT_ONCE)
                ]
            )
            if len(own) == count:  # all of it, and what is made of it stays
                release(tensor.data[first : first + count])
            found.append(codes if belongs is None else replace(codes, order=belongs))
        return side_by_side(found)

    def blocks_of() -> tuple[BlockRows, ...]:
        found = []
        for tensor, own, _, _ in runs(slice(None)):
            rows = (tensor.data.ctypes.data + own * tensor.data.strides[0]).astype(np.intp)
            found.append(BlockRows(tensor.name, FORMS[tensor.type.name], rows, inputs, (tensor.data,), belongs))
        return below(found)

    bits = min(tensor.type.bits for tensor, _, _ in parts)
    return StoredWeights((len(order), inputs), bits, rows_of, blocks=blocks_of)


def _slices(rows: int, inputs: int, at_once: int = _AT_ONCE) -> Iterator[slice]:
    step = max(1, at_once // inputs)
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))
