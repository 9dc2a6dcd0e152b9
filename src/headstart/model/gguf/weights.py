"""From a file's tensors to a transformers model in memory, a few rows at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.coded import empty, without_memory
from headstart.model.gguf import header
from headstart.model.gguf.blocks import decoded, floats
from headstart.model.gguf.files import GgufFile
from headstart.model.grouped import GroupedWeights, Rows, StoredWeights, stacked

FREQUENCIES = "rope_freqs.weight"
"""What each frequency of the rotation is divided by: how files of Llama 3.1 and later say their rope scaling."""

_AT_ONCE = 1 << 17
"""Numbers that are made into floats at a time: what stays in a processor's cache."""

_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OF_GEMMA = {
    **_INNER,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA = ("gemma2", "gemma3_text")
"""Models that norm what their layers add as well, and multiply by 1 + gain; files hold the sum."""


def tensor_name(parameter: str, model_type: str = "llama") -> str:
    """What a file calls a parameter of a transformers model of this type: a Llama-shaped one or Gemma."""
    module, _, kind = parameter.rpartition(".")
    if module in _OUTER:
        return f"{_OUTER[module]}.{kind}"
    _, _, index, inner = module.split(".", 3)
    names = _OF_GEMMA if model_type in _GEMMA else _INNER
    return f"blk.{index}.{names[inner]}.{kind}"


def modules(config: Any) -> list[str]:
    """The modules of a Llama-shaped transformers model that hold weights."""
    inner = (f"model.layers.{index}.{name}" for index in range(config.num_hidden_layers) for name in _INNER)
    return [*_OUTER, *inner]


def check_tensors(file: GgufFile, config: Any) -> None:
    """Compare the file's tensors with what the model needs, before any memory is taken.

    Raises:
        DamagedModel: a tensor is missing, or of another shape.
        UnsupportedModel: one would be left over, so the model is not the one that it seems to be.
    """
    wanted = _wanted(config)
    for name, (parameter, shape) in wanted.items():
        if name in file.tensors and file.tensors[name].shape != shape:
            raise file.damaged(f"tensor {name!r} is {list(file.tensors[name].shape)}, and {list(shape)} is needed")
        if name not in file.tensors and not parameter.endswith("o_proj.bias"):
            raise file.damaged(f"tensor {name!r} is missing")
    divided = set() if config.model_type in _GEMMA else {FREQUENCIES}
    left = sorted(file.tensors.keys() - wanted.keys() - divided)
    if left:
        raise UnsupportedModel(
            f"{file.label} holds {left[0]!r} (and {len(left) - 1} more), which {config.model_type} models have not",
            hint="give the original checkpoint, a directory with config.json and *.safetensors",
        )
    factors = file.tensors.get(FREQUENCIES)
    if factors is not None and factors.shape != (config.head_dim // 2,):
        raise file.damaged(f"{FREQUENCIES} has {factors.count} numbers for heads {config.head_dim} wide")


def _wanted(config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By the name of each tensor that the model needs: the first parameter of that kind, and its shape. A model of one
    layer is made, on no device: all layers of these models are alike."""
    first = copy.deepcopy(config)
    first.num_hidden_layers = 1
    if getattr(config, "layer_types", None):
        first.layer_types = config.layer_types[:1]
    found = {}
    for parameter, tensor in without_memory(first).named_parameters():
        name = tensor_name(parameter, config.model_type)
        inner = name.removeprefix("blk.0.")
        names = [name] if inner == name else [f"blk.{index}.{inner}" for index in range(config.num_hidden_layers)]
        found.update(dict.fromkeys(names, (parameter, tuple(tensor.shape))))
    return found


def load(file: GgufFile, config: Any, dtype: torch.dtype) -> Any:
    """The model on the CPU, its weights the file's own numbers rounded to `dtype`. config: see `check_tensors`.

    Beside the weights it takes a few megabytes: some rows at a time are made into floats and put where they will stay.
    """
    model = empty(config, dtype)
    fill(model, file, config)
    return model.eval()


def fill(model: Any, file: GgufFile, config: Any) -> None:
    """Read all parameters of a model on the CPU, and what its rotation is divided by."""
    for name, parameter in model.named_parameters():
        read(file, config, name, parameter.data)
    if FREQUENCIES in file.tensors:
        factors = torch.from_numpy(floats(file.tensors[FREQUENCIES])[0].copy())
        if not bool((factors > 0).all()) or not bool(factors.isfinite().all()):
            raise file.damaged(f"{FREQUENCIES} holds numbers that are not positive")
        model.model.rotary_emb.inv_freq /= factors


def read(file: GgufFile, config: Any, parameter: str, to: Tensor) -> None:
    """Read a parameter, by its name in transformers, into a tensor of its shape."""
    tensor = file.tensors.get(tensor_name(parameter, config.model_type))
    if tensor is None:  # of those that were checked, the bias of an output projection alone may be missing
        to.zero_()
    elif config.model_type in _GEMMA and to.dim() == 1:  # biases there are none
        to.copy_(torch.from_numpy(floats(tensor)[0]) - 1)
    else:
        _fill(to, tensor, _turned(file, config, parameter))


def grouped_matrix(file: GgufFile, config: Any, parameter: str) -> StoredWeights:
    """A matrix that the file holds as codes, by the parameter's name in transformers, its rows in transformers' order:
    for products that run on the codes themselves."""
    tensor = file.tensors[tensor_name(parameter)]
    outputs, inputs = tensor.shape
    heads = _turned(file, config, parameter)
    order = np.arange(outputs)
    if heads:
        order = order.reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)

    def rows_of(rows: Rows) -> GroupedWeights:
        wanted = order[rows]
        slices = [wanted[part] for part in _slices(len(wanted), inputs)]
        return stacked([decoded(tensor, each) for each in slices])

    return StoredWeights((outputs, inputs), tensor.type.bits, rows_of)


def _turned(file: GgufFile, config: Any, parameter: str) -> int:
    """Heads whose rows llama.cpp has interleaved; 0 where it has not. Architecture llama rotates neighbouring rows,
    transformers rotates a row with the one half a head further on."""
    if file.metadata.text("general.architecture") != "llama":
        return 0
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return int(heads.get(parameter.split(".")[-2], 0))


def _fill(parameter: Tensor, tensor: header.Tensor, heads: int) -> None:
    """Copy a tensor into a parameter of its shape. heads: see `_turned`."""
    if parameter.dim() == 1:
        row = torch.from_numpy(floats(tensor)[0])
        parameter.copy_(row if not heads else row.view(heads, -1, 2).transpose(1, 2).reshape(-1))
        return
    places = parameter
    if heads:  # [heads, 2, dim / 2, inputs] seen in the order of the file
        places = parameter.view(heads, 2, -1, parameter.shape[-1]).transpose(1, 2)
    for rows in _slices(parameter.shape[0], parameter.shape[1]):
        found = torch.from_numpy(floats(tensor, rows))
        if not heads:
            places[rows] = found
        else:
            index = torch.arange(rows.start, rows.stop)
            half = places.shape[1]
            places[index // (2 * half), index // 2 % half, index % 2] = found.to(parameter.dtype)


def _slices(rows: int, inputs: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // inputs)
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))
