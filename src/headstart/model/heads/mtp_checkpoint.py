"""Reading the MTP heads that checkpoints hold beside their model: layers that were trained to guess further tokens.

Row t of such a head is the pair (token x_{t+1}, the target's state of t behind its final norm), each with a norm of its
own, which a matrix joins; a decoder layer of the target's own family and a final norm follow, and the target's output
matrix gives the guess of x_{t+2}. With its own state in place of the target's the same layer guesses on. That is an
EAGLE-1 head but for the two norms, and it runs as one.

`FORMS` says, for each family, how its tensors are called. Sources: DeepSeek-V3 (arXiv:2412.19437), section 2.2; the
names are those of the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from headstart.base.errors import UnsupportedModel
from headstart.model.heads.eagle_config import EAGLE1, HeadConfig
from headstart.model.heads.stored_tensors import (
    HeadCheckpoint,
    Held,
    Table,
    check_tensors,
    layer_tensors,
    names_in,
    read_tensors,
)
from headstart.model.reading import object_in
from headstart.model.recipes import recipe_of
from headstart.model.recipes.recipe import Attention, Layer, Recipe


@dataclass(frozen=True, slots=True)
class Form:
    """How a family's checkpoints hold their head.

    field: of the config of the text, the number of its layers. prefix: before the names of all its tensors. names: what
    the parts are called below it; `layer` is the prefix of a decoder layer. state_first: whether the matrix takes
    [state | embedding] instead of [embedding | state]. offset: what is added to the stored gains of the norms.
    """

    field: str
    prefix: str
    names: Mapping[str, str]
    state_first: bool = False
    offset: float = 0.0

    def known_as(self, stored: str) -> str | None:
        """The name here of a stored tensor; None for one that is no part of the head."""
        if not stored.startswith(self.prefix):
            return None
        inner = stored.removeprefix(self.prefix)
        for name, part in self.names.items():
            if inner.startswith(part):
                return inner.replace(part, name, 1)
        return inner


_QWEN = Form(
    field="mtp_num_hidden_layers",
    prefix="mtp.",
    names={
        "fc.": "fc.",
        "embedding_norm.": "pre_fc_norm_embedding.",
        "hidden_norm.": "pre_fc_norm_hidden.",
        "norm.": "norm.",
        "": "layers.0.",
    },
    offset=1.0,
)

FORMS = {"qwen3_5_text": _QWEN}
"""By the `model_type` of the text."""

EagleCheckpoint = HeadCheckpoint[HeadConfig]


def has_head(folder: str | Path) -> bool:
    """Whether a model's directory holds an MTP head that can be run, from its config and its tensors' names alone."""
    path = Path(folder)
    config = object_in(path / "config.json")
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    form = FORMS.get(str(text.get("model_type", config.get("model_type"))))
    if form is None or not text.get(form.field):
        return False
    return any(name.startswith(form.prefix) for file in path.glob("*.safetensors") for name in names_in(file))


def read(folder: str | Path, target: Any, *, token_ids: Tensor | None = None) -> EagleCheckpoint:
    """The head in the directory of a target with this config of transformers.

    token_ids: those that it is to guess, rising; None for all.

    Raises:
        UnsupportedModel: there is none, its family's heads are not known, or its tensors are not what they should be.
    """
    text, path = target.get_text_config(), Path(folder)
    form = FORMS.get(text.model_type)
    count = 0 if form is None else int(getattr(text, form.field, 0) or 0)
    if form is None or count < 1:
        raise UnsupportedModel(
            f"{path} holds no MTP head that headstart knows",
            hint=f"heads of {', '.join(sorted(FORMS))} can be run, whose config states {_QWEN.field}",
        )
    if count > 1:
        raise UnsupportedModel(f"the MTP head of {path} has {count} layers", hint="heads of one layer can be run")
    layer = _layer(recipe_of(target))
    config = _config(str(path), text, layer, form, token_ids)
    tensors = read_tensors(path, form.known_as)
    found = check_tensors(config.name, _table(config, layer), tensors)
    if form.offset:
        gains = ("embedding_norm.weight", "hidden_norm.weight", "norm.weight")
        found |= {name: found[name].float() + form.offset for name in gains}
    return HeadCheckpoint(config, found, token_ids)


def _layer(recipe: Recipe) -> Layer:
    """The head's: the target's last layer with full attention on keys of its own."""
    for layer in reversed(recipe.layers):
        mixer = layer.mixer
        if isinstance(mixer, Attention) and mixer.window is None and mixer.keys_of is None:
            return replace(layer, input=None)
    raise UnsupportedModel("the target has no layer with full attention", hint="use another drafter")


def _config(name: str, text: Any, layer: Layer, form: Form, token_ids: Tensor | None) -> HeadConfig:
    attention = layer.attention
    stated = text.rope_parameters or {}
    fields = ("rope_type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor")
    turning = attention.dim if attention.rope is None else attention.rope.rotary
    rope = LlamaConfig(
        head_dim=turning,
        max_position_embeddings=text.max_position_embeddings,
        rope_parameters={field: stated[field] for field in fields if stated.get(field) is not None},
    )
    return HeadConfig(
        name=f"{name} (MTP)",
        width=text.hidden_size,
        target_width=text.hidden_size,
        intermediate=layer.mlp.width,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        dim=attention.dim,
        eps=layer.mlp_in.eps if layer.mlp_in is not None else 1e-6,
        vocab_size=text.vocab_size,
        draft_vocab_size=text.vocab_size if token_ids is None else len(token_ids),
        max_length=text.max_position_embeddings,
        layer_ids=(text.num_hidden_layers,),
        rope=rope,
        version=EAGLE1,
        norm_output=True,
        state_first=form.state_first,
        recipe=layer,
    )


def _table(config: HeadConfig, layer: Layer) -> Table:
    """The tensors of a head whose layer is this one."""
    d = config.width
    table = {"fc.weight": Held((d, 2 * d))}
    table |= {f"{name}.weight": Held((d,)) for name in ("embedding_norm", "hidden_norm", "norm")}
    return table | layer_tensors(layer, d)


def shortlist(vocab_size: int, most: int, also: set[int]) -> Tensor | None:
    """The tokens that a head is to guess: the first `most`, which tokenizers number by how often they merged them, and
    those of `also`. None for all, where the vocabulary is hardly larger."""
    if vocab_size <= 2 * most:
        return None
    return torch.tensor(sorted({*range(most), *(token for token in also if 0 <= token < vocab_size)}))
