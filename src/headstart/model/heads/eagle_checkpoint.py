"""Reading EAGLE heads: one layer that drafts from a target's hidden states, as published by several projects.

Three forms of checkpoint are known. EAGLE-1 and -2: a Llama config of one layer; tensors `fc.*`, `layers.0.*`, no
norm before attention. EAGLE-3 as its authors write it: `midlayer.*`, `norm`, `lm_head` over a draft vocabulary, `d2t`
(target id = draft id + d2t) and `t2d`. EAGLE-3 of the `speculators` library, which vLLM reads: the same tensors as
`layers.0.*`, the layer's config nested in `transformer_layer_config`.

Which layers of the target an EAGLE-3 head reads has two conventions, one apart. Here an id is the layer whose *input*
is read (transformers' hidden_states[id]; the number of layers means the output of the final norm). `speculators` and
vLLM name inputs too (`eagle_aux_hidden_state_layer_ids` at the top of the config); SGLang and other trainers nest the
same field in `eagle_config` and name *outputs* there. A field `headstart` says which it means, {"layer_ids": [...],
"layer_ids_are": "inputs"}. Engines look in different places, so all that are there must name the same layers. Without
any of them the ids are `default_layer_ids`.

A head may have several layers: `layers.{i}.*`, of which the first takes [embedding | state] and the others are plain
ones. P-EAGLE heads are EAGLE-3's with a mask token (`mask_token_id`, elsewhere `pard_token` or `ptd_token_id`) and the
state of masked rows, `mask_hidden`; speculators' type of them is `peagle`. With `selector_rank` and `selector_top_k`
there is a selector, whose tensors are `candidate_selector.*`, in the same file or in one of their own.

A matrix may be on int8 beside a scale for each of its outputs (`X.weight` and `X.weight_scale`, as compressed-tensors
names them): that is how small heads are kept (`stored_tensors.rounded`), and only headstart reads it.

Only safetensors is read. Sources: EAGLE (arXiv:2401.15077), EAGLE-2 (2406.16858), EAGLE-3 (2503.01840), P-EAGLE
(2602.01469).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.model.heads.config_fields import check_target, read_config
from headstart.model.heads.dflash_config import in_family
from headstart.model.heads.eagle_config import (
    EAGLE1,
    EAGLE3,
    HeadConfig,
    check_kind,
    default_layer_ids,
    head_config,
)
from headstart.model.heads.eagle_tensors import canonical, check_tensors
from headstart.model.heads.stored_tensors import names_in, read_tensors, token_ids_of
from headstart.model.reading import object_in

__all__ = [
    "EAGLE1",
    "EAGLE3",
    "HeadCheckpoint",
    "HeadConfig",
    "default_layer_ids",
    "is_eagle",
    "read",
]


@dataclass(frozen=True, slots=True, eq=False)
class HeadCheckpoint:
    """A head as read, and checked against its target.

    tensors: by name, the layer's own prefix taken off ("self_attn.q_proj.weight", "fc.weight", ...). token_ids: int64
    [draft V], the target's id of each draft token; None where the vocabularies are one.
    """

    config: HeadConfig
    tensors: Mapping[str, Tensor]
    token_ids: Tensor | None


def is_eagle(folder: str | Path) -> bool:
    """Whether a directory looks like such a head, from its config and its tensors' names alone."""
    path = Path(folder)
    config = object_in(path / "config.json")
    if not config or in_family(config):
        return False
    if "speculators_model_type" in config or "draft_vocab_size" in config:
        return True
    if any("eagle" in str(name).lower() for name in config.get("architectures") or ()):
        return True
    try:
        names = {canonical(name) for file in path.glob("*.safetensors") for name in names_in(file)}
    except Exception:  # whatever the file is, it is no head
        return False
    return {"fc.weight", "self_attn.q_proj.weight"} <= names


def read(folder: str | Path, target: Any) -> HeadCheckpoint:
    """The head in a directory, for the target with this config of transformers.

    Raises:
        ModelNotFound: no config, or no weights.
        PickleCheckpoint: weights as a pickle only.
        UnsupportedModel: another kind of drafter, damaged, or made for another target; the message names the field.
    """
    path = Path(folder)
    raw = read_config(path)
    check_kind(path, raw)
    tensors = read_tensors(path, canonical)
    config = head_config(str(path), raw, tensors, target.get_text_config())
    check_target(config, target.get_text_config())
    mask = tensors.get("mask_hidden")
    if mask is not None and mask.numel() == config.features:  # some have it without the leading ones
        tensors["mask_hidden"] = mask.reshape(1, 1, -1)
    token_ids = token_ids_of(config, tensors)
    check_tensors(config, tensors)
    return HeadCheckpoint(config, tensors, token_ids)
