"""A transformers model whose matrices stay codes: made without memory, its layers replaced, the rest to be read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headstart.base.lazy import transformers
from headstart.model import native
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedExperts, GroupedLinear
from headstart.model.decoders.linears import lies_by_inputs
from headstart.model.recipes import find_recipe, recipe_of
from headstart.model.recipes.experts import Experts


def joined_with(config: Any, module: str) -> list[str]:
    """The linear layers of the same input as this one, itself among them: see `Recipe.joined_with`."""
    recipe = find_recipe(config)
    return [module] if recipe is None else recipe.joined_with(module)


def chooses(config: Any, module: str) -> bool:
    """Whether a linear layer is a router, which stays floats: see `Recipe.chooses`."""
    recipe = find_recipe(config)
    return recipe is not None and recipe.chooses(module)


def model_class(config: Any) -> Any:
    """The class of transformers that a causal LM with this config has."""
    return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def without_memory(config: Any) -> Any:
    """The model that a config describes, on no device: for its names and shapes."""
    with torch.device("meta"), transformers.initialization.no_init_weights():
        model = model_class(config)(config)
    model.tie_weights()
    return model


def empty(config: Any, dtype: torch.dtype) -> Any:
    """The model on the CPU, its floats still to be read."""
    with transformers.initialization.no_init_weights():
        model = _of_dtype(config, dtype)
    model.tie_weights()
    return model


def _of_dtype(config: Any, dtype: torch.dtype) -> Any:
    """Of a config of its own: transformers writes the dtype into it."""
    return model_class(config)._from_config(copy.deepcopy(config), dtype=dtype)


def with_codes(
    config: Any,
    dtype: torch.dtype,
    coded: Callable[[str, nn.Module], GroupedLinear | GroupedEmbedding | None],
    coded_experts: Callable[[str, Experts], GroupedExperts | None] = lambda _name, _experts: None,
) -> Any:
    """The same with layers of codes in place of matrices.

    coded: gives such a layer for a linear layer or an embedding by its name; None where it stays floats. coded_experts:
    the same for the parameter of all experts' matrices.
    """
    with torch.device("meta"), transformers.initialization.no_init_weights():
        model = _of_dtype(config, dtype)
    recipe = recipe_of(config)
    for name, module in list(model.named_modules()):
        taken = isinstance(module, nn.Linear | nn.Embedding) or lies_by_inputs(module)
        if taken and (layer := coded(name, module)) is not None:
            model.set_submodule(name, layer)
    if recipe.experts:
        model.set_experts_implementation("eager")  # which takes the matrix of one expert after the other
    for index, each in enumerate(recipe.layers):
        if (experts := each.experts) is None:
            continue
        for inner in (*experts.gate_up, experts.down):
            path, _, last = (name := f"{recipe.stack}.{index}.{inner}").rpartition(".")
            if (codes := coded_experts(name, experts)) is not None:
                owner = model.get_submodule(path)
                delattr(owner, last)
                owner.add_module(last, codes)
    base = getattr(model, model.base_model_prefix).to_empty(device="cpu")
    ropes = [attention.rope for attention in recipe.attentions if attention.rope is not None]
    rotaries = {}
    for name in {each.module or recipe.rotary for each in ropes}:
        rotary = model.get_submodule(name)
        rotaries[name] = type(rotary)(config=rotary.config)
        model.set_submodule(name, rotaries[name])
    for module in base.modules():
        holds = next(module.buffers(recurse=False), None) is not None and module not in rotaries.values()
        if holds or module is base:
            for parameter in module.parameters(recurse=False):
                parameter._is_hf_initialized = True
            # buffers that no checkpoint holds: the factor of Gemma's embedding, those of Falcon-H1's mixers, which the
            # whole model fills in
            model._init_weights(module)
    embedding = model.get_submodule(recipe.embedding)
    if not isinstance(model.lm_head, nn.Linear):
        return model
    if config.tie_word_embeddings and isinstance(embedding, GroupedEmbedding):
        model.lm_head = GroupedLinear(embedding.held)
    elif config.tie_word_embeddings:
        model.lm_head.weight = embedding.weight
    else:
        model.lm_head.to_empty(device="cpu")
    return model


def fits_kernels(config: Any, dtype: torch.dtype, device: torch.device, kind: int) -> bool:
    """Whether the row kernels run a model with this config on codes here. kind: of their products."""
    recipe = find_recipe(config)
    return (
        dtype in (torch.float32, torch.bfloat16)
        and device.type == "cpu"
        and recipe is not None
        and not any(width % native.LANES for width in recipe.widths)
        and native.available()
        and bool(native.kernels().supported(kind))
    )
