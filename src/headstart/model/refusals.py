"""Models that cannot be decoded exactly with rollback are refused, with the reason, before any weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.base.errors import RemoteCodeRequired, UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.recipes import BUILDERS, recipe_of
from headstart.model.wrappers import SAME_WHOLE

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}
_OTHERS = "choose a model with softmax attention in every layer, or one that docs/supported-models.md lists"


def check_config(config: Any) -> None:
    """Refuse, with the reason, what cannot be decoded exactly with rollback: see the messages."""
    name = config.model_type
    if config.is_encoder_decoder:
        raise UnsupportedModel(
            f"{name} is an encoder-decoder model", hint="headstart runs decoder-only (causal) language models"
        )
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ()) - _ATTENTION_KINDS
    if kinds and (unknown := _unknown(config)):
        raise UnsupportedModel(
            f"{name} has layers of kind {', '.join(sorted(kinds))}, whose state transformers' modules cannot roll back "
            f"after a rejected draft; and {unknown}",
            hint=_OTHERS,
        )
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        if getattr(config, "auto_map", None):
            return  # the user has allowed remote code; the probe at load decides
        raise UnsupportedModel(f"{name} is not a causal language model", hint="choose a *ForCausalLM model")
    check_class(transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config)


def check_class(model_class: Any, config: Any) -> None:
    """Refuse recurrent models, and those that do not let their attention be replaced and have no recipe."""
    name = config.model_type
    stateful = getattr(model_class, "_is_stateful", False)
    if not stateful and getattr(model_class, "_supports_attention_backend", False):
        return
    unknown = _unknown(config)
    if unknown and stateful:
        raise UnsupportedModel(
            f"{name} keeps a recurrent state, which transformers' modules cannot roll back after a rejected draft; "
            f"and {unknown}",
            hint=_OTHERS,
        )
    if unknown and config.get_text_config().model_type in BUILDERS and model_class._can_set_attn_implementation():
        return  # of a family that has a recipe, and its modules hand their attention over: the probe decides
    if unknown:
        raise UnsupportedModel(
            f"{name} computes attention in its own code: neither its mask nor its positions can be driven "
            f"through transformers' attention interface; and {unknown}",
            hint="choose a model that supports attention backends (Llama, Qwen, Mistral, Gemma, OPT, GPT-2, ...)",
        )


def _unknown(config: Any) -> str:
    """Why headstart's own decoders do not know a model; empty where they do."""
    try:
        recipe_of(config)
    except UnsupportedModel as unknown:
        return unknown.message
    return ""


def refuse_remote_code(source: str, config: Mapping[str, Any]) -> None:
    """config: what config.json says. Of a hub id, transformers refuses remote code itself."""
    if config.get("auto_map") and config.get("model_type") not in {*transformers.CONFIG_MAPPING, *SAME_WHOLE}:
        raise RemoteCodeRequired(
            f"{source} needs Python code from its own repository ({config['auto_map']})",
            hint="read that code; if you trust it, pass trust_remote_code=True",
        )
