"""A file's model on its own blocks: its matrices stay codes, of which no copy in floats is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headstart.model import native
from headstart.model.coded import fits_kernels, with_codes
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedExperts, GroupedLinear
from headstart.model.decoders.linears import lies_by_inputs
from headstart.model.gguf import weights
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.names import Names
from headstart.model.gguf.weights import expert_matrices, grouped_matrix
from headstart.model.recipes.experts import Experts


def can_run(file: GgufFile, config: Any, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the row kernels run this model on the file's blocks, and the file holds any."""
    return fits_kernels(config, dtype, device, native.GROUPED4) and bool(types(file))


def types(file: GgufFile) -> dict[str, int]:
    """How many weights are codes, by the type of their blocks; the most first."""
    found: dict[str, int] = {}
    for tensor in file.tensors.values():
        if tensor.type.bits:
            found[tensor.type.name] = found.get(tensor.type.name, 0) + tensor.count
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def load(file: GgufFile, config: Any, dtype: torch.dtype) -> Any:
    """The model, its matrices layers of the file's codes, which are read when a decoder lays them out.

    config: see `weights.check_tensors`. dtype: of what the file holds as floats, and of hidden states.
    """

    names = Names.of(file, config)

    def coded(name: str, module: nn.Module) -> GroupedLinear | GroupedEmbedding | None:
        if not _stays(file, names, name):
            return None
        matrix = grouped_matrix(file, names, f"{name}.weight")
        if isinstance(module, nn.Linear) or lies_by_inputs(module):
            return GroupedLinear(matrix, _bias(file, names, name, module))
        return GroupedEmbedding(matrix, dtype, float(getattr(module, "scalar_embed_scale", 1.0)))

    model = with_codes(config, dtype, coded, lambda name, of: coded_experts(file, names, name, of, dtype))
    weights.fill(model, file, config)
    if next(model.parameters(), None) is None:  # OLMo 1: its norms have no weights, and a model's dtype is that of one
        model.register_parameter("nothing", nn.Parameter(torch.empty(0, dtype=dtype), requires_grad=False))
    return model.eval()


def coded_experts(
    file: GgufFile, names: Names, parameter: str, of: Experts, dtype: torch.dtype
) -> GroupedExperts | None:
    """The matrices of all experts that a parameter holds, by its name in transformers; None where they are floats.

    dtype: of the floats that the codes stand for.
    """
    tensors = [file.tensors[each] for each in names.tensors(parameter)]
    if not all(tensor.type.bits for tensor in tensors):
        return None
    gate_up = len(tensors) > 1
    return GroupedExperts(
        expert_matrices(tensors), dtype, transposed=of.transposed, interleaved=of.interleaved and gate_up
    )


def memory(file: GgufFile, config: Any, dtype: torch.dtype, *, read: bool = False) -> int:
    """Bytes of the model's weights as they will lie in memory. read: only of those that a forward of one row reads."""
    names = Names.of(file, config)
    modules = {stored: module for module, stored in names.matrices()}
    experts = {stored: of for of, tensors in names.of_experts() for stored in tensors}
    unused = names.unused(file)
    total = 0.0
    for stored, tensor in file.tensors.items():
        if stored in unused:
            continue
        if read and stored == "token_embd.weight" and not config.tie_word_embeddings:
            continue
        bits = float(torch.finfo(dtype).bits)
        if stored in modules and _stays(file, names, modules[stored]):
            bits = tensor.type.memory
        elif (of := experts.get(stored)) is not None:
            bits = tensor.type.memory or bits
            if read:
                bits *= of.router.chosen / of.count
        total += tensor.count * bits / 8
    return int(total)


def experts_memory(file: GgufFile, config: Any) -> int:
    """Bytes of those weights that are codes of experts, without those that all tokens share."""
    tensors = [file.tensors[each] for _, stored in Names.of(file, config).of_experts() for each in stored]
    return int(sum(tensor.count * tensor.type.memory / 8 for tensor in tensors if tensor.type.bits))


def _bias(file: GgufFile, names: Names, name: str, module: Any) -> Tensor | None:
    if module.bias is None:
        return None
    bias = torch.empty(module.bias.shape)
    weights.read(file, names, f"{name}.bias", bias)
    return bias


def _stays(file: GgufFile, names: Names, module: str) -> bool:
    """Whether this matrix and all that are joined with it are codes, and may run on them."""
    if names.chooses(module) or names.by_head(f"{module}.weight") is not None:
        return False
    tensors = [file.tensors.get(each) for each in names.together(module)]
    return all(tensor is not None and tensor.type.bits > 0 for tensor in tensors)
