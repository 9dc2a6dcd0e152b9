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

from pathlib import Path
from typing import Any

from headstart.model.heads.dflash_config import in_family
from headstart.model.heads.eagle_config import (
    EAGLE1,
    EAGLE3,
    HeadConfig,
    check_kind,
    default_layer_ids,
    head_config,
)
from headstart.model.heads.stored_tensors import (
    Form,
    HeadCheckpoint,
    Held,
    Table,
    decoder_layer,
    names_in,
    read_head,
    vocabulary_tensors,
)
from headstart.model.reading import object_in

__all__ = [
    "EAGLE1",
    "EAGLE3",
    "SELECTOR",
    "EagleCheckpoint",
    "HeadConfig",
    "default_layer_ids",
    "is_eagle",
    "layer_name",
    "read",
]

SELECTOR = "candidate_selector"
"""The prefix of a selector's tensors."""

EagleCheckpoint = HeadCheckpoint[HeadConfig]


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
        names = {_canonical(name) for file in path.glob("*.safetensors") for name in names_in(file)}
    except Exception:  # whatever the file is, it is no head
        return False
    return {"fc.weight", "self_attn.q_proj.weight"} <= names


def read(folder: str | Path, target: Any) -> EagleCheckpoint:
    """The head in a directory, for the target with this config of transformers; the first layer's tensors are named
    without its prefix ("self_attn.q_proj.weight", "fc.weight", ...).

    Raises what `read_head` raises.
    """
    return read_head(folder, target, _FORM)


def layer_name(layer: int, name: str) -> str:
    """A layer's tensor as it is known here: those of the first have no prefix."""
    return f"layers.{layer}.{name}" if layer else name


def _canonical(name: str) -> str:
    """The name without what tells one form of checkpoint from another."""
    for prefix in ("model.", "midlayer.", "layers.0."):
        name = name.removeprefix(prefix)
    return name


def _table(config: HeadConfig) -> Table:
    d, third = config.width, config.version == EAGLE3
    table = {"fc.weight": Held((d, config.fused_inputs)), "fc.bias": Held((d,), needed=False)}
    for i in range(config.layers):
        # The first of EAGLE-3 takes [embedding | state], that of EAGLE-1 has no norm
        first = i == 0
        layer = decoder_layer(config, 2 * d if first and third else d, biases=("self_attn", "mlp"), head_norms=False)
        if third or not first:
            layer["input_layernorm.weight"] = Held((d,))
        table |= {layer_name(i, name): held for name, held in layer.items()}
    if third:
        table |= {f"{name}.weight": Held((d,)) for name in ("hidden_norm", "norm")}
        if config.norm_before_fc:
            table["input_norm.weight"] = Held((config.fused_inputs,))
        if config.fc_norm:
            table |= {f"fc_norm.{i}.weight": Held((config.target_width,)) for i in range(len(config.layer_ids))}
    if config.parallel:
        table["mask_hidden"] = Held((1, 1, config.features), loose=True)  # some have it without the leading ones
    if rank := config.selector_rank:
        table |= {
            f"{SELECTOR}.predecessor_codebook": Held((config.vocab_size, rank)),
            f"{SELECTOR}.successor_codebook": Held((config.draft_vocab_size, rank)),
            f"{SELECTOR}.hidden_projection.weight": Held((rank, d)),
        }
    vocabulary = vocabulary_tensors(config)
    return table | {name: held for name, held in vocabulary.items() if third or name not in ("d2t", "t2d")}


_FORM = Form(_canonical, check_kind, head_config, _table)
