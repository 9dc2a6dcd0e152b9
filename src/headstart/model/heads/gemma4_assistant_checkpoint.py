"""Reading Gemma 4's assistants: a few layers without keys of their own, published beside a Gemma 4 to draft for it.

The directory is one of transformers' (model_type `gemma4_assistant`, or `gemma4_unified_assistant` for the 12B). Its
`text_config` describes the layers; `backbone_hidden_size` is the target's width. Tensors: `pre_projection` [d, 2 *
target d], `model.layers.{i}.*`, `model.norm`, `model.embed_tokens` [V, d], which is the output matrix,
`post_projection` [target d, d]; with `use_ordered_embeddings` also `masked_embedding.centroids` [centroids, d] and
`masked_embedding.token_ordering` [V].

Source: the published checkpoints and transformers 5.23 (`models/gemma4_assistant`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.heads.stored_tensors import Held, Table, check_tensors, layer_tensors, read_tensors
from headstart.model.reading import object_in, reading
from headstart.model.recipes import built, recipe_of
from headstart.model.recipes.recipe import Attention, Layer, Recipe

KINDS = ("gemma4_assistant", "gemma4_unified_assistant")
"""By the `model_type` of the config."""

_OTHER_TARGET = "choose as target the Gemma 4 that this assistant was published for"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_UNUSED = tuple(f"self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm", "v_norm"))
"""What layers without keys may be stored with all the same; transformers passes it over too."""


@dataclass(frozen=True, slots=True, eq=False)
class AssistantCheckpoint:
    """An assistant as read, and checked against its target.

    recipe: its layers attend to the keys of layers of the target. tensors: by their names on disk, but for the output
    matrix, `lm_head.weight`. text: the config of its layers. top: how many centroids are looked behind; 0 where it has
    none.
    """

    recipe: Recipe
    tensors: Mapping[str, Tensor]
    text: Any
    top: int


def is_assistant(folder: str | Path) -> bool:
    """Whether a directory's config is that of an assistant."""
    return object_in(Path(folder) / "config.json").get("model_type") in KINDS


def read(folder: str | Path, target: Any) -> AssistantCheckpoint:
    """The assistant in a directory, for the target with this config of transformers.

    Raises:
        ModelNotFound, PickleCheckpoint: there are no safetensors.
        UnsupportedModel: it is damaged, made for another target, or the target has no keys that it could attend to.
    """
    path = Path(folder)
    config = _config(path)
    recipe = attending(path, target)
    found = read_tensors(path, lambda name: None if name.endswith(_UNUSED) else name)
    embedding = found.pop(_EMBEDDING, None)
    if embedding is not None:
        found.setdefault(_HEAD, embedding)
    tensors = check_tensors(str(path), _table(config, recipe), found)
    top = _top(str(path), config, tensors) if config.use_ordered_embeddings else 0
    return AssistantCheckpoint(recipe, tensors, config.text_config, top)


def attending(folder: str | Path, target: Any) -> Recipe:
    """The layers of the assistant in a directory, from its config alone: of each kind they attend to the last layer of
    the target that stores keys.

    Raises:
        UnsupportedModel: see `read`.
    """
    name, config = str(folder), _config(Path(folder))
    recipe = built(config.text_config, "gemma4.gemma4_assistant")
    _check_target(name, config, target)
    stored = recipe_of(target).stored
    return replace(recipe, layers=tuple(_with_keys(name, layer, stored) for layer in recipe.layers))


def _config(path: Path) -> Any:
    with reading(str(path)):
        config = transformers.AutoConfig.from_pretrained(path)
    if config.model_type not in KINDS:
        raise UnsupportedModel(f"{path} is a {config.model_type}", hint="it is no assistant of Gemma 4")
    return config


def _check_target(name: str, config: Any, target: Any) -> None:
    text = target.get_text_config()
    theirs = {"hidden_size": config.backbone_hidden_size, "vocab_size": config.text_config.vocab_size}
    differing = [field for field in theirs if theirs[field] != getattr(text, field)]
    if differing:
        both = "; ".join(f"{field} is {theirs[field]} there and {getattr(text, field)} here" for field in differing)
        raise UnsupportedModel(f"{name} was made for another target: {both}", hint=_OTHER_TARGET)


def _with_keys(name: str, layer: Layer, stored: Mapping[int, Attention]) -> Layer:
    """The layer, with the layer of the target whose keys it attends to."""
    own = layer.attention
    found = [index for index, each in stored.items() if (each.window is None) == (own.window is None)]
    if not found:
        kind = "full attention" if own.window is None else "a sliding window"
        raise UnsupportedModel(f"{name} attends to a layer with {kind}, which the target lacks", hint=_OTHER_TARGET)
    _check_keys(name, own, stored[found[-1]])
    return layer.attending(keys_of=found[-1])


def _check_keys(name: str, own: Attention, stored: Attention) -> None:
    theirs, ours = (own.kv_heads, own.dim), (stored.kv_heads, stored.dim)
    if theirs != ours:
        raise UnsupportedModel(
            f"{name} attends to {theirs[0]} heads of {theirs[1]}, and the target's keys have {ours[0]} of {ours[1]}",
            hint=_OTHER_TARGET,
        )


def _table(config: Any, recipe: Recipe) -> Table:
    d, backbone = recipe.width, config.backbone_hidden_size
    table = {
        "pre_projection.weight": Held((d, 2 * backbone)),
        "post_projection.weight": Held((backbone, d)),
        "model.norm.weight": Held((d,)),
        _HEAD: Held((recipe.vocabulary, d)),
    }
    for index, layer in enumerate(recipe.layers):
        table |= {f"model.layers.{index}.{name}": held for name, held in layer_tensors(layer, d).items()}
    if config.use_ordered_embeddings:
        table["masked_embedding.centroids.weight"] = Held((config.num_centroids, d))
        table["masked_embedding.token_ordering"] = Held((recipe.vocabulary,))
    return table


def _top(name: str, config: Any, tensors: Mapping[str, Tensor]) -> int:
    """How many centroids are looked behind, where those and the order of tokens are sound."""
    vocabulary, count, top = config.text_config.vocab_size, config.num_centroids, config.centroid_intermediate_top_k
    if not (0 < top <= count and vocabulary % count == 0):
        raise UnsupportedModel(
            f"{name} looks behind {top} of {count} centroids, among which {vocabulary} tokens are shared out",
            hint="compare config.json with the original's",
        )
    order = tensors["masked_embedding.token_ordering"].long()
    if not torch.equal(order.sort().values, torch.arange(vocabulary)):
        raise UnsupportedModel(
            f"{name}: token_ordering does not name each of {vocabulary} tokens once", hint="copy the checkpoint again"
        )
    return int(top)
