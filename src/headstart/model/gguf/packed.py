"""A file's model on its own blocks: its matrices stay codes, of which no copy in floats is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from headstart.model import int4, native
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedLinear
from headstart.model.decoders.llama import is_llama_config
from headstart.model.gguf import weights
from headstart.model.gguf.blocks import BITS
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.weights import grouped_matrix

_JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of the same input, which decoders join into one: so they are all codes, or all floats."""

_BITS = {
    "Q4_0": 4.5, "Q4_1": 5.0, "Q5_0": 5.5, "Q5_1": 6.0, "Q8_0": 8.5, "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.625,
    "IQ4_NL": 8.5, "IQ4_XS": 8.375,
}  # fmt: skip
"""Memory of a weight in the kernels, by the type of its block: a code, and its part of the scales and minimums."""

_OF_256 = {"Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}


def _bits(types: set[str]) -> float:
    """Memory of a weight where these types are joined: the most bits of any, the smallest groups, and minimums."""
    if len(types) == 1:
        return _BITS[next(iter(types))]
    small, units = "Q6_K" in types, types <= _OF_256
    scales = (1.125 if small else 0.625) if units else (2.0 if small else 1.0)
    return max(BITS[each] for each in types) + scales


def can_run(file: GgufFile, config: Any, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the row kernels run this model on the file's blocks, and the file holds any."""
    widths = (config.hidden_size, config.intermediate_size, config.head_dim)
    return (
        dtype in (torch.float32, torch.bfloat16)
        and is_llama_config(config, weights.model_class(config).__name__)
        and not any(width % native.LANES for width in widths)
        and bool(types(file))
        and int4.can_run(device)
    )


def types(file: GgufFile) -> dict[str, int]:
    """How many weights are codes, by the type of their blocks; the most first."""
    found: dict[str, int] = {}
    for tensor in file.tensors.values():
        if tensor.type.name in BITS:
            found[tensor.type.name] = found.get(tensor.type.name, 0) + tensor.count
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def load(file: GgufFile, config: Any, dtype: torch.dtype) -> Any:
    """The model, its matrices layers of the file's codes, which are read when a decoder lays them out.

    config: see `weights.check_tensors`. dtype: of what the file holds as floats, and of hidden states.
    """
    with torch.device("meta"), initialization.no_init_weights():
        model = weights.model_class(config)._from_config(config, dtype=dtype)
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear | nn.Embedding) or not _stays(file, name):
            continue
        matrix = grouped_matrix(file, config, f"{name}.weight")
        if isinstance(module, nn.Embedding):
            model.set_submodule(name, GroupedEmbedding(matrix, dtype))
        else:
            model.set_submodule(name, GroupedLinear(matrix, _bias(file, config, name, module)))
    base = model.model.to_empty(device="cpu")
    base.rotary_emb = type(base.rotary_emb)(config=model.config)
    if config.tie_word_embeddings and isinstance(base.embed_tokens, GroupedEmbedding):
        model.lm_head = GroupedLinear(base.embed_tokens.held)
    elif config.tie_word_embeddings:
        model.lm_head.weight = base.embed_tokens.weight
    else:
        model.lm_head.to_empty(device="cpu")
    weights.fill(model, file, config)
    return model.eval()


def memory(file: GgufFile, config: Any, dtype: torch.dtype, *, read: bool = False) -> int:
    """Bytes of the model's weights as they will lie in memory. read: only of those that a forward of one row reads."""
    names = {weights.tensor_name(f"{module}.weight"): module for module in weights.modules(config)}
    total = 0.0
    for stored, tensor in file.tensors.items():
        if read and stored == "token_embd.weight" and not config.tie_word_embeddings:
            continue
        bits = float(torch.finfo(dtype).bits)
        if stored in names and _stays(file, names[stored]):
            bits = _bits({file.tensors[each].type.name for each in _together(names[stored])})
        total += tensor.count * bits / 8
    return int(total)


def _bias(file: GgufFile, config: Any, name: str, module: nn.Linear) -> Tensor | None:
    if module.bias is None:
        return None
    bias = torch.empty(module.out_features)
    weights.read(file, config, f"{name}.bias", bias)
    return bias


def _together(module: str) -> list[str]:
    """The file's names of the matrices that are joined with this one, itself among them."""
    owner, _, kind = module.rpartition(".")
    kinds = next((names for names in _JOINED if kind in names), (kind,))
    return [weights.tensor_name(f"{owner}.{each}.weight") for each in kinds] if owner else ["output.weight"]


def _stays(file: GgufFile, module: str) -> bool:
    """Whether this matrix and all that are joined with it are codes."""
    tensors = [file.tensors.get(each) for each in _together(module)]
    return all(tensor is not None and tensor.type.name in BITS for tensor in tensors)
