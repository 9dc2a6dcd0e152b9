"""Reading DFlash and DSpark heads: a few layers that guess a block of tokens from a target's hidden states.

Three forms of checkpoint are known. The `speculators` library's, which vLLM reads: type `dflash` or `dspark`, the
layers' config nested in `transformer_layer_config`, and `aux_hidden_state_layer_ids`, layers whose *inputs* are read.
DFlash as its authors write it: a flat config of Qwen3's with `dflash_config` {mask_token_id, target_layer_ids}, layers
whose *outputs* are read. DSpark as its authors write it (Qwen3DSparkModel): flat too, `target_layer_ids` at the top.
The tensors are the same in all: `fc`, `hidden_norm`, `norm`, `layers.{i}.*`; the embedding and the output matrix are
the target's, or stand there as copies. DSpark adds `markov_head.*`, and `confidence_head.*`, which is not used: how
long a draft is, pacing decides.

Where the masks stand differs: at the place that they guess (DFlash), or one before it, so that x0's own row guesses the
first token (DSpark). `sample_from_anchor` says which; what its absence means differs between engines (`dflash_config`).

Only safetensors is read. Sources: DFlash (arXiv:2602.06036), DSpark (2607.05147); the readers of speculators (August
2026), z-lab/dflash and deepseek-ai/DeepSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.model.heads.config_fields import check_target, read_config
from headstart.model.heads.dflash_config import DFlashConfig, check_kind, head_config, in_family
from headstart.model.heads.markov import MIXING
from headstart.model.heads.stored_tensors import ATTENTION, MLP, Shapes, check_shapes, read_tensors, token_ids_of
from headstart.model.reading import object_in

_UNUSED = ("confidence_head.", "verifier_norm.", "verifier_lm_head.")


@dataclass(frozen=True, slots=True, eq=False)
class DFlashCheckpoint:
    """A head as read, and checked against its target.

    tensors: by name, as on disk. token_ids: int64 [draft V], the target's id of each draft token; None where the
    vocabularies are one.
    """

    config: DFlashConfig
    tensors: Mapping[str, Tensor]
    token_ids: Tensor | None


def is_dflash(folder: str | Path) -> bool:
    """Whether a directory looks like such a head, from its config alone."""
    return in_family(object_in(Path(folder) / "config.json"))


def read(folder: str | Path, target: Any) -> DFlashCheckpoint:
    """The head in a directory, for the target with this config of transformers.

    Raises:
        ModelNotFound: no config, or no weights.
        PickleCheckpoint: weights as a pickle only.
        UnsupportedModel: another kind of drafter, damaged, or made for another target; the message names the field.
    """
    path = Path(folder)
    raw = read_config(path)
    check_kind(path, raw)
    config = head_config(str(path), raw, target.get_text_config())
    check_target(config, target.get_text_config())
    tensors = {
        name: tensor
        for name, tensor in read_tensors(path, lambda name: name.removeprefix("model.")).items()
        if not name.startswith(_UNUSED)
    }
    token_ids = token_ids_of(config, tensors)
    check_shapes(config.name, *_shapes(config), tensors)
    return DFlashCheckpoint(config, tensors, token_ids)


def _shapes(config: DFlashConfig) -> tuple[Shapes, Shapes]:
    """Shapes of the tensors that must be there, and of those that may."""
    d, inner = config.width, config.intermediate
    queries, keys = config.heads * config.dim, config.kv_heads * config.dim
    attention = dict(zip(ATTENTION, ((queries, d), (keys, d), (keys, d), (d, queries)), strict=True))
    needed: Shapes = {"fc.weight": (d, config.features), "hidden_norm.weight": (d,), "norm.weight": (d,)}
    optional: Shapes = {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
    for i in range(config.layers):
        layer: Shapes = {f"{name}.weight": (d,) for name in ("input_layernorm", "post_attention_layernorm")}
        layer |= {f"self_attn.{name}.weight": (config.dim,) for name in ("q_norm", "k_norm")}
        layer |= {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
        layer |= {f"mlp.{name}.weight": (inner, d) for name in MLP[:2]} | {"mlp.down_proj.weight": (d, inner)}
        needed |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        optional |= {f"layers.{i}.self_attn.{name}.bias": shape[:1] for name, shape in attention.items()}
    if rank := config.markov_rank:
        needed |= {"markov_head.markov_w1.weight": (config.vocab_size, rank)}
        needed |= {"markov_head.markov_w2.weight": (config.draft_vocab_size, rank)}
        rows, columns = {"gated": (rank, d + rank), "rnn": (3 * rank, 2 * rank + d)}.get(config.markov_kind, (0, 0))
        if rows:
            name = f"markov_head.{MIXING[config.markov_kind]}"
            needed |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    # The target's own stand in where they fit
    fitting = d == config.target_width
    (optional if fitting else needed)["embed_tokens.weight"] = (config.vocab_size, d)
    borrowable = fitting and config.draft_vocab_size == config.vocab_size
    (optional if borrowable else needed)["lm_head.weight"] = (config.draft_vocab_size, d)
    return needed, optional
