"""Checkpoints that wrap a text model: what sees and hears is neither made nor read, and the text model runs alone.

On text alone these wrappers compute what their text model does. Other wrappers are not known here: some attend to a
whole prompt at once (PaliGemma), or feed their text model more than tokens (BLIP-2).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from headstart.base.errors import UnsupportedModel
from headstart.base.lazy import transformers

WRAPPERS = frozenset({
    "aria", "aya_vision", "cohere2_vision", "deepseek_vl", "deepseek_vl_hybrid", "exaone4_5", "gemma3", "gemma4",
    "gemma4_unified", "glm46v", "glm4v", "got_ocr2", "hyperclovax_vision_v2", "idefics2", "idefics3", "internvl",
    "lfm2_vl", "lfm3_vl", "lighton_ocr", "llava", "llava_next", "llava_next_video", "llava_onevision", "mistral3",
    "ovis2", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_5", "qwen3_vl", "smolvlm", "video_llama_3", "video_llava",
    "vipllava", "voxtral",
})  # fmt: skip
"""By the `model_type` of a config of transformers."""

SAME_ON_TEXT = {
    "glm4v_text": "glm4", "qwen2_5_vl_text": "qwen2", "qwen2_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
}  # fmt: skip
"""Text models that transformers has no causal LM for, and models that compute the same. Theirs turn queries and keys
by three positions, which are equal for a token of text."""

_UNLISTED = {"mistral4": "Mistral4ForCausalLM"}
"""Text models whose class for causal language models transformers has, and lists as another kind."""

SAME_WHOLE = {"mimo": "qwen2"}
"""Models that transformers does not know, whose repositories bring code that computes what a model that it knows does:
those of MiMo-7B have Qwen2's, and a head of its own beside it."""

RENAMED = {
    r"^language_model\.lm_head\.": "lm_head.",
    r"^(?:model\.(?:language_model|text_model)|language_model\.model)\.": "model.",
}
"""What names of the text model's weights begin with, and what its own class calls that: transformers' `key_mapping`."""

_STORED_AS = {"gpt_neox": ("embed_out.", "lm_head.")}
"""What names of a part begin with in checkpoints, and what its class calls it, by `model_type`: transformers renames it
itself where it reads and writes a whole model."""

_BESIDE = re.compile(
    r"(?:model\.)?(?:visual|visual_embeddings_table|vision_tower|vision_model|vision_encoder|vision_embedder"
    r"|vision_projection|vision_projector|high_res_vision_(?:alpha|model|neck|proj)|embed_vision|image_tower"
    r"|image_newline|video_tower|audio_tower|embed_audio|multi_modal_projector|projector|connector|aligner|mtp)\b"
)
"""What names of all other weights begin with: of towers, and of heads that guess further tokens (Qwen3.5)."""

_MEDIA = ("image", "video", "audio")
_ONLY_POSITIONS = ("mrope_section", "mrope_interleaved")
_WRAPPER = "_wrapper"
"""The attribute of a text model's config that says what wrapped it: its `model_type`, and the tokens of media. What
begins with an underscore is no field of the model's."""


def text_of(config: Any) -> Any:
    """The config of the text model that a config wraps; the config itself where it wraps none that is known.

    Raises:
        UnsupportedModel: the text model's config states what the class that runs it does not know.
    """
    if hasattr(config, _WRAPPER):
        delattr(config, _WRAPPER)  # a model that was saved after it had been unwrapped
    if config.model_type not in WRAPPERS:
        return listed(config)
    text = listed(_with_causal_class(config.text_config))
    for name in ("tie_word_embeddings", "dtype", "quantization_config"):
        if getattr(config, name, None) is not None:
            setattr(text, name, getattr(config, name))
    if getattr(text, "eos_token_id", None) is None:
        text.eos_token_id = getattr(config, "eos_token_id", None)
    media = {
        kind: int(token)
        for kind in _MEDIA
        for token in (getattr(config, f"{kind}_token_{form}", None) for form in ("id", "index"))
        if token is not None
    }
    setattr(text, _WRAPPER, {"model_type": config.model_type, "media": media})
    return text


def listed(config: Any) -> Any:
    """The same config, for which transformers knows the class of its causal language model if it has one."""
    name = _UNLISTED.get(config.model_type)
    if name is not None and type(config) is transformers.CONFIG_MAPPING[config.model_type]:
        transformers.AutoModelForCausalLM.register(type(config), getattr(transformers, name), exist_ok=True)
    return config


def config_of(source: str, *, trust_remote_code: bool) -> Any:
    """The config of transformers of a directory or hub id."""
    stated, _ = transformers.PretrainedConfig.get_config_dict(source)
    kind = SAME_WHOLE.get(stated.get("model_type", ""))
    if kind is None or trust_remote_code:
        return transformers.AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
    said = {name: value for name, value in stated.items() if name not in ("architectures", "auto_map", "model_type")}
    return transformers.CONFIG_MAPPING[kind](**said, name_or_path=source)


def is_wrapped(config: Any) -> bool:
    """Whether this text model's config was inside another."""
    return hasattr(config, _WRAPPER)


def wrapper_of(config: Any) -> str:
    """The `model_type` of what wraps this text model; empty where nothing does."""
    return str(getattr(config, _WRAPPER, {}).get("model_type", ""))


def media_tokens(config: Any) -> dict[int, str]:
    """The tokens that stand for something else than text, and what that is."""
    wrapper: Mapping[str, Any] = getattr(config, _WRAPPER, {})
    return {token: kind for kind, token in wrapper.get("media", {}).items()}


def names_of(config: Any) -> Callable[[str], str | None]:
    """What the class of a model calls a stored tensor; None for one that is no part of the text model."""
    if is_wrapped(config):
        return _text_name
    stored, own = _STORED_AS.get(config.model_type, ("", ""))
    return lambda name: own + name.removeprefix(stored) if name.startswith(stored) else name


def names_stated(stated: Mapping[str, Any]) -> Callable[[str], str | None]:
    """The same by what a config.json says."""
    return _text_name if stated.get("model_type") in WRAPPERS else lambda name: name


def _text_name(name: str) -> str | None:
    return None if _BESIDE.match(name) else unwrapped(name)


def unwrapped(name: str) -> str:
    """A stored tensor's name without what a wrapper puts before those of its text model."""
    for begin, own in RENAMED.items():
        name = re.sub(begin, own, name)
    return name


def _with_causal_class(text: Any) -> Any:
    """A copy of this config, of the class that runs it."""
    kind = SAME_ON_TEXT.get(text.model_type)
    if kind is None:
        return copy.deepcopy(text)
    said = {name: value for name, value in text.to_dict().items() if not name.startswith("_") and name != "model_type"}
    rope = dict(said.get("rope_parameters") or {})
    said["rope_parameters"] = {name: value for name, value in rope.items() if name not in _ONLY_POSITIONS}
    if kind == "glm4":  # whose class takes other values for what these leave out
        said["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
        said["head_dim"] = text.hidden_size // text.num_attention_heads
    known, plain = transformers.CONFIG_MAPPING[kind]().to_dict(), type(text)().to_dict()
    for name in sorted(said.keys() - known.keys()):
        if said.pop(name) not in (None, plain.get(name)):
            raise UnsupportedModel(
                f"{text.model_type} states {name}={getattr(text, name)!r:.60}, which {kind} does not know",
                hint="choose another checkpoint of this model",
            )
    return transformers.CONFIG_MAPPING[kind](**said)
