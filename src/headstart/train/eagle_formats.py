"""EAGLE-3 heads in the two formats of the field, always safetensors.

"hf": `model.safetensors` with `midlayer.*` beside a flat config, which vLLM, SGLang and headstart load. "speculators":
the same tensors as `layers.0.*` beside a nested config, which vLLM serves together with its target.

Layer ids come in two conventions: as the layers that the states go into ("inputs": 2, L // 2, L - 3), or as those they
come out of ("outputs": one less). A flat config says them in both, because its readers look in different places. vLLM
looks for `eagle_aux_hidden_state_layer_ids` at the top, as inputs; without it its older runner takes the list in
`eagle_config` for inputs, which is one layer too low, and its newer one takes layers of its own. SGLang reads only the
list in `eagle_config`, as outputs. `headstart.layer_ids_are` records which is which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.heads.stored_tensors import write_head, write_tensors
from headstart.train.unrolled_head import EagleHead

WEIGHTS, SELECTOR = "model.safetensors", "selector.safetensors"
SPECULATORS_VERSION = "0.3.0"  # of the format's library that this config was written after


@dataclass(frozen=True, slots=True)
class Masks:
    """The token of masked rows, and the head's own embedding [V, d] if that was learnt."""

    token: int
    embedding: Tensor | None = None


def write(
    folder: Path,
    head: EagleHead,
    kept: Tensor,
    target: Any,
    *,
    layer_ids: tuple[int, ...],
    target_name: str,
    speculative_tokens: int,
    form: str,
    masks: Masks | None = None,
) -> None:
    """Write the head into an empty directory; with "both", the speculators form goes below `speculators/`.

    kept [draft vocabulary]: the target's id of each token that the head may propose. target: its config. masks: of a
    head that guesses several tokens in one forward. A selector has a file of its own, which only headstart reads.
    """
    stored = tensors(head, kept, target.get_text_config().vocab_size)
    if masks is not None and masks.embedding is not None:
        stored["embed_tokens.weight"] = masks.embedding
    shared = _head_config(head, layer_ids, masks)
    own = {"layer_ids": list(layer_ids), "layer_ids_are": "inputs", "version": version("headstart")}
    if form != "speculators":
        guesses = {"guesses": speculative_tokens} if head.shape.parallel else {}
        config = _hf_config(head, target, shared) | {"headstart": {**own, **guesses, "target": target_name}}
        _write(folder, stored if head.shape.layers == 1 else _numbered(stored), config)
    if form != "hf":
        below = folder if form == "speculators" else folder / "speculators"
        below.mkdir(exist_ok=True)
        config = _speculators_config(head, target, shared, target_name, speculative_tokens) | {"headstart": own}
        _write(below, _numbered(stored), config)


def check_layer_ids(layer_ids: Sequence[int], layers: int) -> None:
    """Refuse layer ids (as inputs) that another engine would read otherwise than headstart does.

    vLLM sorts the ids and takes each once, so only rising ones keep their places in `fc`. The number of layers itself
    means the state before the final norm there, and after it in transformers and here.

    Raises:
        UnsupportedModel: they do not rise, or one is not the input of a layer.
    """
    ids = list(layer_ids)
    if ids != sorted(set(ids)):
        problem = f"the head reads the layers {ids}, and vLLM would read {sorted(set(ids))}"
        raise UnsupportedModel(problem, hint="train a head whose layer ids rise; headstart's training sorts them")
    if any(not 0 <= i < layers for i in ids):
        raise UnsupportedModel(
            f"the head reads the layers {ids} of a target with {layers}: engines differ in what {layers} means, the "
            "state before the final norm or after it",
            hint=f"train a head on inputs of layers, which are 0 to {layers - 1}",
        )


def tensors(head: EagleHead, kept: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """The weights; where the vocabularies differ also `d2t` int64 [draft V] (what to add to a draft id to get the
    target's) and `t2d` bool [V] (whether the head knows the token)."""
    stored = {name: tensor for name, tensor in head.state_dict().items() if name != "mask_row"}
    if len(kept) < vocab_size:
        known = torch.zeros(vocab_size, dtype=torch.bool)
        known[kept] = True
        stored |= {"d2t": kept.long() - torch.arange(len(kept)), "t2d": known}
    return stored


def _head_config(head: EagleHead, layer_ids: tuple[int, ...], masks: Masks | None) -> dict[str, Any]:
    """What both forms record of a head beside its layers; vLLM calls the mask token `pard_token`.

    `norm_before_residual` is always given: where it is missing, vLLM takes true for a speculators form, others false.
    """
    shape = head.shape
    config: dict[str, Any] = {
        "draft_vocab_size": shape.draft_vocab,
        "target_hidden_size": shape.hidden,
        "norm_before_residual": shape.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(layer_ids),
    }
    if masks is not None:
        config["mask_token_id"] = masks.token
    if shape.selector_rank:
        config |= {"selector_rank": shape.selector_rank, "selector_top_k": head.candidate_selector.top}
    return config


def _hf_config(head: EagleHead, target: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """The flat form, with the layer ids where each of its readers looks."""
    outputs = [i - 1 for i in shared["eagle_aux_hidden_state_layer_ids"]]
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_decoder_config(head, target),
        **shared,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": outputs, "use_aux_hidden_state": True},
    }


def _speculators_config(
    head: EagleHead, target: Any, shared: dict[str, Any], target_name: str, speculative_tokens: int
) -> dict[str, Any]:
    """The nested form: a proposal is taken only if it is the target's own token (accept_k 1, no tolerance)."""
    kind, architecture = ("peagle", "PEagleDraftModel") if head.shape.parallel else ("eagle3", "Eagle3Speculator")
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": speculative_tokens,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "architectures": [architecture],
        "speculators_model_type": kind,
        "speculators_version": SPECULATORS_VERSION,
        "dtype": "bfloat16",
        **shared,
        "tie_word_embeddings": False,
        "transformer_layer_config": _decoder_config(head, target),
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"name_or_path": target_name, "architectures": target.architectures or []},
        },
    }


def _decoder_config(head: EagleHead, target: Any) -> dict[str, Any]:
    """The head's layers as a Llama's config."""
    shape, text = head.shape, target.get_text_config()
    return {
        "model_type": "llama",
        "vocab_size": text.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": getattr(text, "max_position_embeddings", None) or 4096,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": text.bos_token_id,
        "eos_token_id": text.eos_token_id,
        "pad_token_id": text.pad_token_id,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _numbered(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.replace("midlayer.", "layers.0."): tensor for name, tensor in stored.items()}


def _write(folder: Path, stored: Mapping[str, Tensor], config: dict[str, Any]) -> None:
    """The weights and the config; a selector apart, under an index that keeps other engines from reading its file."""
    apart = {name: tensor for name, tensor in stored.items() if name.startswith("candidate_selector.")}
    own = {name: tensor for name, tensor in stored.items() if name not in apart}
    total = write_head(folder, own, config)
    if apart:
        write_tensors(folder / SELECTOR, apart)
        index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(own, WEIGHTS)}
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
