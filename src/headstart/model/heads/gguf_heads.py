"""EAGLE-3, DFlash and DSpark heads as GGUF files, in the forms that llama.cpp has for them.

A head is a model of architecture `eagle3` or `dflash` there, with the vocabulary of its target. Layer ids are those
whose inputs are read. `d2t` holds ids of the target, not offsets. Heads of `eagle3` rotate neighbours, so that rows of
queries and keys change places; those of `dflash` rotate halves, as here. A DSpark head is a `dflash` one with a Markov
head beside it; its file says whether x0's own row guesses.

Source: conversion/llama.py, conversion/qwen.py, src/models/eagle3.cpp and src/models/dflash.cpp of ggml-org/llama.cpp,
as llama-cpp-python 0.3.36 carries them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.base.lazy import transformers
from headstart.model.gguf.blocks import floats
from headstart.model.gguf.description import FREQUENCIES
from headstart.model.gguf.files import GgufFile, open_gguf
from headstart.model.gguf.metadata import Metadata
from headstart.model.gguf.writing import Value
from headstart.model.heads.dflash_config import DFlashConfig
from headstart.model.heads.eagle_config import EAGLE3, HeadConfig
from headstart.model.heads.stored_tensors import HeadCheckpoint

Head = HeadCheckpoint[HeadConfig] | HeadCheckpoint[DFlashConfig]

MASK = "tokenizer.ggml.mask_token_id"
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OUTER = {"fc": "fc", "norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd"}
_OF_EAGLE = {"input_norm": "enc.output_norm", "hidden_norm": "blk.0.attn_norm_2"}
_OF_DFLASH = {
    "hidden_norm": "enc.output_norm",
    "markov_head.markov_w1": "markov_w1",
    "markov_head.markov_w2": "markov_w2",
}
_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_VOCABULARY = ("d2t", "t2d")
_FILE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 32}
"""`general.file_type`, by what the matrices are in."""
_SCALED = {"linear", "yarn"}
_YARN = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}
"""What is said of a YaRN rotation there; anything else about it changes the numbers."""


def without_form(head: Head) -> str:
    """What the head has, or lacks, for which the form has no place; empty where it can be written."""
    config = head.config
    rope = config.rope.rope_parameters
    unknown = sorted(set(head.tensors) - set(names_of(config)) - set(_VOCABULARY))
    if isinstance(config, HeadConfig):
        found = {
            "the form of EAGLE-1 and -2": config.version != EAGLE3,
            "masked rows, which guess all tokens in one forward": config.parallel,
            f"{config.layers} layers": config.layers != 1,
            f"states of {len(config.layer_ids)} layers of the target, not of three": len(config.layer_ids) != 3,
            "norm_output, by which its own states are fed back behind the final norm": config.norm_output,
            "fc_norm, which norms the target's states by layer": config.fc_norm,
            f"a window of {config.window} tokens": config.window is not None,
        }
    else:
        found = {
            f"a width of {config.width} beside the target's {config.target_width}": config.width != config.target_width,
            "layers that are causal beside others that are not": len(set(config.causal)) > 1,
            f"windows of {len(set(config.windows) - {None})} sizes": len(set(config.windows) - {None}) > 1,
            f"a Markov head of the kind {config.markov_kind!r}": config.markov_kind != "vanilla",
        }
    found[f"a rotation of the kind {rope['rope_type']!r} with {sorted(set(rope) - _YARN)}"] = (
        rope["rope_type"] == "yarn" and not set(rope) <= _YARN
    )
    found[f"tensors of its own ({', '.join(unknown)})"] = bool(unknown)
    return next((what for what, there in found.items() if there), "")


def architecture_of(config: HeadConfig | DFlashConfig) -> str:
    """What llama.cpp calls the kind of head."""
    return "eagle3" if isinstance(config, HeadConfig) else "dflash"


def names_of(config: HeadConfig | DFlashConfig) -> dict[str, str]:
    """What the file calls each tensor but `d2t`, by its name here."""
    return _all_names(architecture_of(config), config.layers)


def _all_names(architecture: str, layers: int) -> dict[str, str]:
    eagle = architecture == "eagle3"
    found = {**_OUTER, **(_OF_EAGLE if eagle else _OF_DFLASH)}
    layer = _LAYER if eagle else {**_LAYER, **_HEAD_NORMS}
    for i in range(1 if eagle else layers):
        found |= {name if eagle else f"layers.{i}.{name}": f"blk.{i}.{theirs}" for name, theirs in layer.items()}
    return {f"{name}.weight": f"{theirs}.weight" for name, theirs in found.items()}


def values_of(head: Head, matrices: torch.dtype) -> dict[str, Value]:
    """The metadata, without the vocabulary. matrices: what they are written in."""
    config, name = head.config, architecture_of(head.config)
    stated: dict[str, Value] = {
        "block_count": config.layers,
        "context_length": config.max_length,
        "embedding_length": config.width,
        "feed_forward_length": config.intermediate,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.dim,
        "attention.value_length": config.dim,
        "attention.layer_norm_rms_epsilon": config.eps,
        "vocab_size": config.vocab_size,
        "rope.dimension_count": config.dim,
        **_rotation(config.rope),
        "target_layers": list(config.layer_ids),
        **(_of_eagle(config) if isinstance(config, HeadConfig) else _of_dflash(config)),
    }
    general: dict[str, Value] = {"architecture": name, "type": "model", "quantization_version": 2}
    general["file_type"] = _FILE_TYPES[matrices]
    found = {f"general.{key}": value for key, value in general.items()}
    found |= {f"{name}.{key}": value for key, value in stated.items()}
    return found if isinstance(config, HeadConfig) else {**found, MASK: config.mask_token_id}


def tensors_of(head: Head, matrices: torch.dtype) -> dict[str, Tensor]:
    """The tensors by the file's names: matrices in this dtype, gains in float32, ids in int64."""
    config = head.config
    found = {}
    for name, theirs in names_of(config).items():
        if (tensor := head.tensors.get(name)) is None:
            continue
        if isinstance(config, HeadConfig) and name.startswith(("self_attn.q", "self_attn.k")):
            tensor = neighbours(tensor, config.dim)
        found[theirs] = tensor.to(matrices if tensor.dim() == 2 else torch.float32)
    if head.token_ids is not None:
        found["d2t"] = head.token_ids.long()
    if config.rope.rope_parameters["rope_type"] == "llama3":
        found[FREQUENCIES] = _divisors(config.rope)
    return found


def neighbours(matrix: Tensor, dim: int) -> Tensor:
    """Rows that turn together beside each other, where they lie half a head apart."""
    return matrix.reshape(-1, 2, dim // 2, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)


def stored(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file holds, as the flat form of a head's config and the tensors by their names here.

    Raises:
        UnsupportedModel: it is no head, or rotates by divisors of its own.
        DamagedModel: a key is missing, or a value of another type.
    """
    file = open_gguf(path)
    name = file.metadata.text("general.architecture")
    if name not in ("eagle3", "dflash"):
        raise file.not_run(f"it is of architecture {name!r}, and heads are of 'eagle3' or 'dflash'")
    if FREQUENCIES in file.tensors:
        raise file.not_run(f"it has {FREQUENCIES}, which is not read of heads")
    said = file.metadata.below(f"{name}.")
    raw = _sizes(file, said)
    raw |= _eagle_fields(said) if name == "eagle3" else _dflash_fields(file, said)
    found = {}
    theirs = {stated: ours for ours, stated in _all_names(name, said.count("block_count")).items()}
    for each, tensor in file.tensors.items():
        numbers = torch.from_numpy(floats(tensor).reshape(tensor.shape))
        if each == "d2t":
            numbers = torch.from_numpy(tensor.data.view("<i8").reshape(-1) - np.arange(tensor.count))
        elif name == "eagle3" and each in ("blk.0.attn_q.weight", "blk.0.attn_k.weight"):
            numbers = _halves(numbers, raw["head_dim"])
        found[theirs.get(each, each)] = numbers
    raw["draft_vocab_size"] = len(found["d2t"]) if "d2t" in found else raw["vocab_size"]
    if "markov_head.markov_w1.weight" in found:
        raw["markov_rank"] = found["markov_head.markov_w1.weight"].shape[-1]
    return raw, found


def _sizes(file: GgufFile, said: Metadata) -> dict[str, Any]:
    """The fields of both kinds."""
    heads, width = said.count("attention.head_count"), said.count("embedding_length")
    return {
        "hidden_size": width,
        "intermediate_size": said.count("feed_forward_length"),
        "num_hidden_layers": said.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": said.count("attention.head_count_kv", heads),
        "head_dim": said.count("attention.key_length", width // heads),
        "rms_norm_eps": said.positive("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": said.count("context_length"),
        "vocab_size": said.count("vocab_size", len(file.metadata.texts("tokenizer.ggml.tokens", [])) or 1),
        "rope_parameters": _rotation_read(file, said),
    }


def _rotation_read(file: GgufFile, said: Metadata) -> dict[str, Any]:
    kind = said.text("rope.scaling.type", "none")
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": said.positive("rope.freq_base", 10000.0)}
    if kind == "none":
        return found
    if kind not in _SCALED or "rope.scaling.yarn_attn_factor" in said:
        raise file.not_run(f"rope.scaling.type is {kind!r}, with settings that are not read of heads")
    found |= {"rope_type": kind, "factor": said.positive("rope.scaling.factor")}
    if kind == "yarn":
        found["original_max_position_embeddings"] = said.count("rope.scaling.original_context_length")
        found["beta_fast"] = said.positive("rope.scaling.yarn_beta_fast", 32.0)
        found["beta_slow"] = said.positive("rope.scaling.yarn_beta_slow", 1.0)
    return found


def _layer_ids(said: Metadata) -> list[int]:
    found = said.numbers("target_layers")
    return [int(each) for each in found]


def _eagle_fields(said: Metadata) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "target_hidden_size": said.count("target_hidden_size"),
        "eagle_aux_hidden_state_layer_ids": _layer_ids(said),
        "norm_before_residual": said.flag("norm_before_residual", False),
        "norm_before_fc": said.flag("norm_before_fc", False),
    }


def _dflash_fields(file: GgufFile, said: Metadata) -> dict[str, Any]:
    found: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "aux_hidden_state_layer_ids": _layer_ids(said),
        "block_size": said.count("block_size", 16),
        "mask_token_id": file.metadata.whole(MASK),
        "causal": said.flag("attention.causal", False),
        # Where the file is silent llama-server goes by --spec-type; Markov heads are DSpark's
        "sample_from_anchor": said.flag("sample_from_anchor", "markov_w1.weight" in file.tensors),
        "sliding_window_non_causal": True,
    }
    if window := said.whole("attention.sliding_window", 0):
        sliding = said.numbers("attention.sliding_window_pattern").tolist()
        found["sliding_window"] = window
        found["layer_types"] = ["sliding_attention" if each else "full_attention" for each in sliding]
    return found


def _halves(matrix: Tensor, dim: int) -> Tensor:
    """What `neighbours` undoes."""
    return matrix.reshape(-1, dim // 2, 2, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)


def _of_eagle(config: HeadConfig) -> dict[str, Value]:
    return {
        "target_hidden_size": config.target_width,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
    }


def _of_dflash(config: DFlashConfig) -> dict[str, Value]:
    found: dict[str, Value] = {
        "block_size": config.block,
        "attention.causal": config.causal[0],
        "sample_from_anchor": config.from_anchor,
        "has_confidence_head": False,
    }
    window = next((each for each in config.windows if each is not None), None)
    if window is not None:
        found["attention.sliding_window"] = window
        found["attention.sliding_window_pattern"] = [each is not None for each in config.windows]
    return found


def _rotation(rope: Any) -> dict[str, Value]:
    stated = rope.rope_parameters
    found: dict[str, Value] = {"rope.freq_base": float(stated["rope_theta"])}
    if stated["rope_type"] not in _SCALED:
        return found
    found |= {"rope.scaling.type": stated["rope_type"], "rope.scaling.factor": float(stated["factor"])}
    if stated["rope_type"] == "yarn":
        original = stated.get("original_max_position_embeddings") or rope.max_position_embeddings
        found["rope.scaling.original_context_length"] = int(original)
        found["rope.scaling.yarn_beta_fast"] = float(stated.get("beta_fast") or 32.0)
        found["rope.scaling.yarn_beta_slow"] = float(stated.get("beta_slow") or 1.0)
    return found


def _divisors(rope: Any) -> Tensor:
    """What each frequency is divided by."""
    dim, base = rope.head_dim, rope.rope_parameters["rope_theta"]
    plain = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    found: Tensor = (
        plain / transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config=rope).inv_freq.float().cpu()
    )
    return found
