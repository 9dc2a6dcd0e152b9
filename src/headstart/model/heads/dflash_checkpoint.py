"""Reading DFlash and DSpark heads: a few layers that guess a block of tokens from a target's hidden states.

Four forms of checkpoint are known. The `speculators` library's, which vLLM reads: type `dflash` or `dspark`, the
layers' config nested in `transformer_layer_config`, and `aux_hidden_state_layer_ids`, layers whose *inputs* are read.
DFlash as its authors write it: a flat config of Qwen3's with `dflash_config` {mask_token_id, target_layer_ids}, layers
whose *outputs* are read. DSpark as its authors write it (Qwen3DSparkModel): flat too, `target_layer_ids` at the top.
DSpark as Liquid AI publishes it for LFM2.5 (Lfm2DSparkDraftModel): flat, with the fields of DFlash in `dflash_config`.
There `rope_is_neox_style` is false: neighbouring numbers of a head turn together, so the rows of queries and keys are
put in the order in which all other forms have them. The tensors are the same in all: `fc`, `hidden_norm`, `norm`,
`layers.{i}.*`; the embedding and the output matrix are the target's, or copies of them are stored. DSpark adds
`markov_head.*`, and `confidence_head.*`, which is not used: how long a draft is, pacing decides.

A mask is at the place it guesses (DFlash), or one before it, so that x0's own row guesses the first token (DSpark).
`sample_from_anchor` says which; what its absence means differs between engines (`dflash_config`).

Only safetensors is read. Sources: DFlash (arXiv:2602.06036), DSpark (2607.05147); the readers of speculators (August
2026), z-lab/dflash and deepseek-ai/DeepSpec; for LFM2.5's those of vLLM (lfm2_dspark) and llama.cpp (#27383).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.model.heads.dflash_config import DFlashConfig, check_kind, head_config, in_family
from headstart.model.heads.markov import MIXING
from headstart.model.heads.stored_tensors import (
    Form,
    HeadCheckpoint,
    Held,
    Table,
    decoder_layer,
    read_head,
    vocabulary_tensors,
)
from headstart.model.reading import object_in

_UNUSED = ("confidence_head.", "verifier_norm.", "verifier_lm_head.")


def is_dflash(folder: str | Path) -> bool:
    """Whether a directory looks like such a head, from its config alone."""
    return in_family(object_in(Path(folder) / "config.json"))


def read(folder: str | Path, target: Any) -> HeadCheckpoint[DFlashConfig]:
    """The head in a directory, for the target with this config of transformers; its tensors are named as on disk.

    Raises what `read_head` raises.
    """
    found = read_head(folder, target, _FORM)
    if not found.config.pairs:
        return found
    return replace(found, tensors={name: _halved(name, tensor, found.config) for name, tensor in found.tensors.items()})


def _halved(name: str, tensor: Tensor, config: DFlashConfig) -> Tensor:
    """A tensor whose outputs are numbers of queries or keys, those that turn together half a head apart instead of
    beside each other; any other as it is."""
    if not re.fullmatch(r"layers\.\d+\.self_attn\.[qk]_(proj|norm)\.(weight|bias)", name):
        return tensor
    return tensor.reshape(-1, config.dim // 2, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _known_as(name: str) -> str | None:
    name = name.removeprefix("model.")
    return None if name.startswith(_UNUSED) else name


def _config(name: str, raw: Mapping[str, Any], _: object, target: Any) -> DFlashConfig:
    return head_config(name, raw, target)


def _table(config: DFlashConfig) -> Table:
    d, drafted = config.width, config.draft_vocab_size
    table = {"fc.weight": Held((d, config.features)), "hidden_norm.weight": Held((d,)), "norm.weight": Held((d,))}
    layer = {"input_layernorm.weight": Held((d,))}
    layer |= decoder_layer(config, d, biases=("self_attn",), head_norms=True)
    table |= {f"layers.{i}.{name}": held for i in range(config.layers) for name, held in layer.items()}
    if rank := config.markov_rank:
        table |= {"markov_head.markov_w1.weight": Held((config.vocab_size, rank))}
        table |= {"markov_head.markov_w2.weight": Held((drafted, rank))}
        rows, columns = {"gated": (rank, d + rank), "rnn": (3 * rank, 2 * rank + d)}.get(config.markov_kind, (0, 0))
        if rows:
            name = f"markov_head.{MIXING[config.markov_kind]}"
            table |= {f"{name}.weight": Held((rows, columns)), f"{name}.bias": Held((rows,))}
    return table | vocabulary_tensors(config)


_FORM = Form(_known_as, check_kind, _config, _table)
